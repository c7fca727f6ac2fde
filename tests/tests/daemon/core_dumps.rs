//! Core dumps of machines: `hartline create --core-limit`, and `hartline core`.

use super::commands::client;
use super::debugged::Debugged;
use super::{await_state, check};
use hartline_tests::Result;
use hartline_tests::daemon::{Daemon, until};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

fn start(daemon: Daemon) -> Result<Debugged> {
    Debugged::start(daemon, "crash", &["-O1", "-static"])
}

/// A daemon with the program `crash`.
impl Debugged {
    /// Makes a machine with these arguments of the program, and this limit.
    fn create(&self, name: &str, args: [&str; 2], limit: Option<u64>) -> Result<()> {
        let mut body = json!({ "program": "crash", "name": name, "args": args });
        if let Some(limit) = limit {
            body["core_limit"] = limit.into();
        }
        let made = self
            .daemon
            .request("POST", "/v1/machines", body.to_string().as_bytes())?;
        made.expect(201)?;
        Ok(())
    }

    /// Starts a machine, waits for its end, and expects this state. Result: the machine.
    fn run(&self, name: &str, state: &str) -> Result<Value> {
        let path = format!("/v1/machines/{name}");
        let start = format!("{path}/start");
        self.daemon.request("POST", &start, b"")?.expect(200)?;
        self.end(name, state)
    }

    /// Waits for the end of a machine, and expects this state. Result: the machine.
    fn end(&self, name: &str, state: &str) -> Result<Value> {
        let path = format!("/v1/machines/{name}");
        let has_ended =
            |machine: &Value| matches!(machine["state"].as_str(), Some("exited" | "failed"));
        let machine = || -> Result<Value> { Ok(self.daemon.request("GET", &path, b"")?.json()) };
        until(|| machine().is_ok_and(|machine| has_ended(&machine)))?;
        let machine = machine()?;
        check(state, machine["state"] == state, &machine)?;
        Ok(machine)
    }

    /// Runs `hartline core`. Result: the file, and what the command has said.
    fn core(&self, name: &str) -> Result<(PathBuf, String)> {
        let file = self.folder.path().join(format!("{name}.core"));
        let output = client(&self.daemon, &["core", name, &file.to_string_lossy()], "")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        check("hartline core", output.status.success(), &said)?;
        Ok((file, said))
    }

    /// The files of a machine with core dumps.
    fn files(&self, id: &str) -> Vec<String> {
        let directory = fs::read_dir(self.daemon.data().join("machines").join(id));
        let names = directory.into_iter().flatten().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("core")).collect()
    }

    /// The stack that gdb shows of a core dump.
    fn stack(&self, core: &Path) -> Result<String> {
        self.gdb(Some(core), &["backtrace", "info registers pc"])
    }
}

/// A machine that crashes leaves a core dump, which later starts without a crash do not change, and
/// later crashes do. It goes with the machine.
pub fn kept() -> Result<()> {
    let crashes = start(Daemon::start("pool = 1")?)?;
    crashes.create("one", ["3", "null"], Some(64 * MIB))?;
    let machine = crashes.run("one", "exited")?;
    let id = machine["id"].as_str().unwrap_or_default().to_owned();
    let bytes = machine["core"]["bytes"].as_u64().unwrap_or(0);
    let right = machine["exit_code"] == 139 && bytes > 3 * MIB && machine["core"]["error"] == "";
    check("the machine's end", right, &machine)?;
    // The location and the registers; the stack is in the core dump.
    let message = machine["message"].as_str().unwrap_or_default();
    let right = message.contains(": SIGSEGV: ") && message.contains(" <inner+0x");
    check(
        "the message",
        right && message.contains("zero 0000"),
        &machine,
    )?;
    let answer = crashes
        .daemon
        .request("GET", "/v1/machines/one/core", b"")?;
    let right = answer.status == 200 && answer.body.len() as u64 == bytes;
    check("the answer's length", right, &answer.body.len())?;
    let (file, said) = crashes.core("one")?;
    check("what it said", said.contains("core dump of"), &said)?;
    check("the same file", fs::read(&file)? == answer.body, &said)?;
    check(
        "its owner's",
        file.metadata()?.mode() & 0o777 == 0o600,
        &said,
    )?;
    let stack = crashes.stack(&file)?;
    for wanted in ["SIGSEGV", "in inner (place=0x0, depth=", "in main (count="] {
        check(wanted, stack.contains(wanted), &stack)?;
    }
    // Not only for faults: SIGABRT.
    crashes.create("two", ["1", "6"], Some(64 * MIB))?;
    let machine = crashes.run("two", "exited")?;
    check("SIGABRT", machine["exit_code"] == 134, &machine)?;
    let stack = crashes.stack(&crashes.core("two")?.0)?;
    let right = stack.contains("SIGABRT") && stack.contains("raise") && stack.contains("main");
    check("its stack", right, &stack)?;
    // The second crash of a machine takes the place of the first.
    let again = crashes.run("one", "exited")?;
    check("the second crash", again["core"]["bytes"] == bytes, &again)?;
    check(
        "one file",
        crashes.files(&id) == ["core"],
        &crashes.files(&id),
    )?;
    let rm = client(&crashes.daemon, &["rm", "one"], "")?;
    let is_gone = crashes.files(&id).is_empty();
    check("deleted", rm.status.success() && is_gone, &rm)
}

/// A machine that continues a snapshot of a machine with a limit leaves a core dump too.
pub fn continued() -> Result<()> {
    let crashes = start(Daemon::start("pool = 1")?)?;
    crashes.create("one", ["1", "wait"], Some(64 * MIB))?;
    let command = |arguments: &[&str]| -> Result<()> {
        let output = client(&crashes.daemon, arguments, "")?;
        check("the command", output.status.success(), &output)
    };
    command(&["start", "one"])?;
    let waits = || {
        let logs = client(&crashes.daemon, &["logs", "one"], "");
        logs.is_ok_and(|logs| logs.stdout.starts_with(b"waits"))
    };
    until(waits)?;
    command(&["snapshot", "create", "--name", "waiting", "one"])?;
    command(&["create", "--start", "--name", "two", "--from", "waiting"])?;
    await_state(&crashes.daemon, "/v1/machines/two", "running")?;
    for name in ["one", "two"] {
        command(&["stop", name])?;
        let machine = crashes.end(name, "exited")?;
        check("a core dump", machine["core"]["error"] == "", &machine)?;
        let stack = crashes.stack(&crashes.core(name)?.0)?;
        check("its stack", stack.contains("in inner (place=0x0"), &stack)?;
    }
    let body = json!({ "snapshot": "waiting", "core_limit": MIB }).to_string();
    let answer = crashes
        .daemon
        .request("POST", "/v1/machines", body.as_bytes())?;
    let right = answer.text("detail").contains("core_limit cannot be given");
    check("a limit with a snapshot", right, &answer)
}

/// Machines without a core dump, and core dumps that end early.
pub fn limits() -> Result<()> {
    let crashes = start(Daemon::start_on_disk("pool = 1", 512 << 20)?)?;
    let daemon = &crashes.daemon;
    let refused = |name: &str| -> Result<()> {
        let path = format!("/v1/machines/{name}/core");
        let answer = daemon.request("GET", &path, b"")?;
        let right = answer.status == 404 && answer.text("detail").contains("core dump");
        check("no core dump", right, &answer)
    };
    crashes.create("without", ["1", "null"], None)?;
    refused("without")?;
    let machine = crashes.run("without", "exited")?;
    let right = machine["exit_code"] == 139 && machine.get("core").is_none();
    check("without a limit", right, &machine)?;
    refused("without")?;
    crashes.create("ends", ["1", "end"], Some(64 * MIB))?;
    let machine = crashes.run("ends", "exited")?;
    let right = machine["exit_code"] == 0 && machine.get("core").is_none();
    check("without a crash", right, &machine)?;
    refused("ends")?;
    let id = machine["id"].as_str().unwrap_or_default().to_owned();
    check(
        "no file",
        crashes.files(&id).is_empty(),
        &crashes.files(&id),
    )?;
    // Longer than the limit.
    crashes.create("long", ["8", "null"], Some(4 * MIB))?;
    let machine = crashes.run("long", "exited")?;
    let bytes = machine["core"]["bytes"].as_u64().unwrap_or(0);
    let error = machine["core"]["error"].as_str().unwrap_or_default();
    let right = machine["exit_code"] == 139 && (1..=4 * MIB).contains(&bytes);
    check("a part", right && !error.is_empty(), &machine)?;
    let (file, said) = crashes.core("long")?;
    let right = file.metadata()?.len() == bytes && said.contains("ends early");
    check("what it said", right, &said)?;
    // A full disk: the end of the machine is known, and the reason.
    crashes.create("full", ["200", "null"], Some(300 * MIB))?;
    daemon.disk()?.resize(160 << 20)?;
    let machine = crashes.run("full", "exited")?;
    let error = machine["core"]["error"].as_str().unwrap_or_default();
    let right = machine["exit_code"] == 139 && error.contains("No space left");
    check("a full disk", right, &machine)?;
    let rm = client(daemon, &["rm", "full"], "")?;
    check("deleted", rm.status.success(), &rm)
}

/// What is refused: other tenants, keys that only read, runs, wrong limits, a limit beyond the quota.
pub fn refused() -> Result<()> {
    let crashes = start(Daemon::start("pool = 1")?)?;
    let daemon = &crashes.daemon;
    crashes.create("one", ["1", "null"], Some(64 * MIB))?;
    crashes.run("one", "exited")?;
    daemon
        .request("PUT", "/v1/tenants/other", b"{}")?
        .expect(200)?;
    for (tenant, scope, status) in [("other", "write", 404), ("default", "read", 403)] {
        let body = json!({ "scope": scope }).to_string();
        let keys = format!("/v1/tenants/{tenant}/keys");
        let key = daemon.request("POST", &keys, body.as_bytes())?.text("key");
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str())];
        let answer = daemon.request_with("GET", "/v1/machines/one/core", &headers, b"")?;
        check(scope, answer.status == status, &answer)?;
    }
    let run = json!({ "program": "crash", "args": ["1", "end"], "core_limit": MIB }).to_string();
    let answer = daemon.request("POST", "/v1/runs", run.as_bytes())?;
    check("a run", answer.text("code") == "no-core-dump", &answer)?;
    for wrong in [
        json!(MIB - 1),
        json!((1u64 << 40) + 1),
        json!(-1),
        json!("1M"),
    ] {
        let body = json!({ "program": "crash", "core_limit": wrong }).to_string();
        let answer = daemon.request("POST", "/v1/machines", body.as_bytes())?;
        check("a limit", matches!(answer.status, 400 | 422), &answer)?;
    }
    let quota = json!({ "max_storage": 128 * MIB }).to_string();
    daemon
        .request("PUT", "/v1/tenants/default", quota.as_bytes())?
        .expect(200)?;
    crashes.create("large", ["1", "null"], Some(256 * MIB))?;
    let machine = crashes.run("large", "failed")?;
    let message = machine["message"].as_str().unwrap_or_default();
    check("beyond the quota", message.contains("may take"), &machine)
}
