//! Volumes: their contents after machines, their limits, and their owners.

use super::{await_state, check, start, statistics};
use hartline_abi::volume::Operation;
use hartline_tests::daemon::{Answer, Daemon, until};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, process};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Linux error numbers, which are exit codes of the service program.
const ENOSPC: &str = "28";
const EROFS: &str = "30";

fn post(daemon: &Daemon, path: &str, body: &Value) -> Result<Answer> {
    daemon.request("POST", path, body.to_string().as_bytes())
}

fn mount(volume: &str, path: &str, read_only: bool) -> Value {
    json!({ "volume": volume, "path": path, "read_only": read_only })
}

/// Runs a machine with a volume to its end and deletes it. Result: exit code and output.
fn run(daemon: &Daemon, program: &str, args: &[&str], volume: Value) -> Result<(String, String)> {
    let body = json!({ "program": program, "args": args, "volumes": [volume], "start": true });
    run_machine(daemon, &body)
}

/// Runs a machine to its end and deletes it. Result: exit code and output.
fn run_machine(daemon: &Daemon, body: &Value) -> Result<(String, String)> {
    let made = post(daemon, "/v1/machines", body)?.expect(201)?;
    let path = format!("/v1/machines/{}", made.text("id"));
    await_state(daemon, &path, "exited")?;
    let code = daemon.request("GET", &path, b"")?.text("exit_code");
    statistics::per_operation(&statistics::of(daemon, &path)?)?;
    let log = daemon
        .request("GET", &format!("{path}/logs"), b"")?
        .expect(200)?;
    daemon.request("DELETE", &path, b"")?.expect(204)?;
    Ok((code, String::from_utf8_lossy(&log.body).into_owned()))
}

/// Returns the directories of volumes.
fn directories(daemon: &Daemon) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(daemon.data().join("volumes"))?;
    Ok(entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?)
}

fn expect(what: &str, found: &(String, String), code: &str, output: &str) -> Result<()> {
    check(what, found.0 == code && found.1 == output, found)
}

pub fn volumes() -> Result<()> {
    let (mut daemon, program) = start()?;
    let make = |name: &str, size: u64| json!({ "name": name, "size": size });
    post(&daemon, "/v1/volumes", &make("data", 1 << 20))?.expect(201)?;
    for (body, status, code) in [
        (make("data", 1 << 20), 409, "volume-exists"),
        (make("../data", 1 << 20), 422, "invalid-field"),
        (make("small", 1000), 422, "invalid-field"),
        (make("large", 1 << 40), 409, "storage-quota"),
    ] {
        let answer = post(&daemon, "/v1/volumes", &body)?;
        let right = answer.status == status && answer.text("code") == code;
        check(&body.to_string(), right, &answer)?;
    }
    // The guest has no such directory.
    let place = "/srv/deep/data";
    let put = ["put", "/srv/deep/data/file", "one"];
    expect(
        "written",
        &run(&daemon, &program, &put, mount("data", place, false))?,
        "0",
        "",
    )?;
    daemon.kill()?;
    daemon.restart()?;
    let get = ["get", "/x/file"];
    let found = run(&daemon, &program, &get, mount("data", "/x", true))?;
    expect("read by another machine", &found, "0", "one")?;
    let put = ["put", "/x/file", "two"];
    let found = run(&daemon, &program, &put, mount("data", "/x", true))?;
    expect("written to a read-only one", &found, EROFS, "")?;
    let found = run(&daemon, &program, &put, mount("data", "/x", false))?;
    expect("written again", &found, "0", "")?;

    // The volume holds up to its limit and no more, also in files longer than outputs may be.
    let found = run(
        &daemon,
        &program,
        &["fill", "/x/large"],
        mount("data", "/x", false),
    )?;
    expect("filled", &found, ENOSPC, "")?;
    let directory = directories(&daemon)?.pop().ok_or("no directory")?;
    check_files(&directory, 1 << 20)?;
    post(&daemon, "/v1/volumes", &make("large", 24 << 20))?.expect(201)?;
    let found = run(
        &daemon,
        &program,
        &["fill", "/x/large"],
        mount("large", "/x", false),
    )?;
    expect("filled", &found, ENOSPC, "")?;

    // Only one machine at a time may mount it writable.
    let with = |volumes: Value| json!({ "program": program, "args": ["idle"], "volumes": volumes });
    let create = |body: &Value| post(&daemon, "/v1/machines", body);
    let mut idle = with(json!([mount("data", "/x", false)]));
    let waiting = create(&idle)?.expect(201)?.text("id");
    idle["start"] = true.into();
    let writer = create(&idle)?.expect(201)?.text("id");
    let path = format!("/v1/machines/{writer}");
    await_state(&daemon, &path, "running")?;
    // The VMM has read the directory.
    let asked = |stats: Value| stats["volume_requests"].as_u64() > Some(0);
    until(|| statistics::of(&daemon, &path).is_ok_and(asked))?;
    statistics::per_operation(&statistics::of(&daemon, &path)?)?;
    let refused = create(&idle)?;
    check(
        "two writers",
        refused.text("code") == "volume-in-use",
        &refused,
    )?;
    let refused = daemon.request("POST", &format!("/v1/machines/{waiting}/start"), b"")?;
    check(
        "a second writer",
        refused.text("code") == "volume-in-use",
        &refused,
    )?;
    let found = run(&daemon, &program, &get, mount("data", "/x", true))?;
    expect("read meanwhile", &found, "0", "onetwo")?;

    for (body, status, code) in [
        (with(json!([mount("none", "/x", false)])), 404, "not-found"),
        (
            with(json!([mount("data", "/../x", false)])),
            422,
            "invalid-field",
        ),
        (
            with(json!([
                mount("data", "/x", true),
                mount("large", "/x", true)
            ])),
            409,
            "volume-twice",
        ),
    ] {
        let answer = create(&body)?;
        let right = answer.status == status && answer.text("code") == code;
        check(&body["volumes"].to_string(), right, &answer)?;
    }
    let used = daemon.request("DELETE", "/v1/volumes/data", b"")?;
    check(
        "deleted while used",
        used.text("code") == "volume-in-use",
        &used,
    )?;
    daemon
        .request("POST", &format!("/v1/machines/{writer}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &format!("/v1/machines/{writer}"), "exited")?;
    for machine in [&waiting, &writer] {
        daemon
            .request("DELETE", &format!("/v1/machines/{machine}"), b"")?
            .expect(204)?;
    }
    for name in ["data", "large"] {
        daemon
            .request("DELETE", &format!("/v1/volumes/{name}"), b"")?
            .expect(204)?;
    }
    let left = directories(&daemon)?;
    check("directories", left.is_empty(), &left)
}

/// Only root can access files of volumes on the host, and they do not exceed `most` bytes.
fn check_files(directory: &Path, most: u64) -> Result<()> {
    let volume = fs::metadata(directory)?;
    check("mode", volume.mode() & 0o777 == 0o700, &volume)?;
    let mut bytes = 0;
    for file in fs::read_dir(directory)? {
        let file = file?.metadata()?;
        bytes += file.len();
        check(
            "owner",
            file.uid() == volume.uid() && file.uid() != 0,
            &file,
        )?;
    }
    let is_full = (most - (128 << 10)..=most).contains(&bytes);
    check("bytes", is_full, &bytes)
}

pub fn of_others() -> Result<()> {
    let (daemon, _) = start()?;
    let volume = json!({ "name": "data", "size": 1 << 20 });
    post(&daemon, "/v1/volumes", &volume)?.expect(201)?;
    daemon
        .request("PUT", "/v1/tenants/other", b"{}")?
        .expect(200)?;
    let made = daemon.request("POST", "/v1/tenants/other/keys", br#"{"scope": "write"}"#)?;
    let key = format!("Bearer {}", made.expect(201)?.text("key"));
    let ask = |method: &str, path: &str, body: &[u8]| {
        let json = ("Content-Type", "application/json");
        daemon.request_with(method, path, &[("Authorization", &key), json], body)
    };
    let service = fs::read(hartline_tests::compile::service()?)?;
    let program = ask("POST", "/v1/programs?name=service", &service)?
        .expect(201)?
        .text("id");
    let path = format!("/v1/programs/{program}");
    hartline_tests::daemon::until(|| {
        ask("GET", &path, b"").is_ok_and(|program| program.text("state") == "ready")
    })?;
    // The answer is the same as for a missing volume, word for word.
    for method in ["GET", "DELETE"] {
        let found = ask(method, "/v1/volumes/data", b"")?;
        let nothing = ask(method, "/v1/volumes/none", b"")?;
        let same = found.body == nothing.body && found.status == 404;
        check(method, same, &(found, nothing))?;
    }
    let list = ask("GET", "/v1/volumes", b"")?;
    check("list", list.body == b"[]", &list)?;
    let with = |volume: &str| {
        let volumes = json!([mount(volume, "/x", true)]);
        let body = json!({ "program": program, "volumes": volumes }).to_string();
        ask("POST", "/v1/machines", body.as_bytes())
    };
    let (found, nothing) = (with("data")?, with("none")?);
    let same = found.body == nothing.body && found.status == 404;
    check("machine", same, &(found, nothing))?;
    // A volume with the same name is another volume.
    ask("POST", "/v1/volumes", volume.to_string().as_bytes())?.expect(201)?;
    with("data")?.expect(201)?;
    let own = daemon.request("DELETE", "/v1/volumes/data", b"")?;
    check("not used by its own tenant", own.status == 204, &own)
}

/// Returns the start of the lines of `volumes operations` about an operation.
fn line(operation: Operation) -> &'static str {
    match operation {
        Operation::Root => "Root: ",
        Operation::Lookup => "Lookup: ",
        Operation::Forget => "Forget: ",
        Operation::Attributes => "Attributes: ",
        Operation::SetMode => "SetMode: ",
        Operation::SetOwner => "SetOwner: ",
        Operation::SetTimes => "SetTimes: ",
        Operation::Truncate => "Truncate: ",
        Operation::ReadLink => "ReadLink: ",
        Operation::ReadDirectory => "ReadDirectory: ",
        Operation::Create => "Create: ",
        Operation::MakeDirectory => "MakeDirectory: ",
        Operation::CreateUnnamed => "CreateUnnamed: ",
        Operation::SymbolicLink => "SymbolicLink: ",
        Operation::Link => "Link: ",
        Operation::Unlink => "Unlink: ",
        Operation::RemoveDirectory => "RemoveDirectory: ",
        Operation::Rename => "Rename: ",
        Operation::Open => "Open: ",
        Operation::Read => "Read: ",
        Operation::Write => "Write: ",
        Operation::Sync => "Sync: ",
        Operation::Allocate => "Allocate: ",
        Operation::Seek => "Seek: ",
        Operation::FileSystem => "FileSystem: ",
        Operation::Copy => "Copy: ",
        Operation::GetExtended => "GetExtended: ",
        Operation::SetExtended => "SetExtended: ",
        Operation::ListExtended => "ListExtended: ",
        Operation::RemoveExtended => "RemoveExtended: ",
    }
}

/// In the jail, where a seccomp filter answers unknown system calls with `EPERM`, each volume
/// operation has the same result as on this machine.
pub fn operations() -> Result<()> {
    let native = compile::alone("volumes", "cc")?;
    let folder = Scratch::new()?;
    let mut command = Command::new(native);
    let outcome = process::run(command.arg("operations").arg(folder.path()), b"")?;
    // Extended attributes, and space beyond the end of a file, do not count toward the size of a
    // volume. A limited volume does not support them.
    let text = outcome.stdout_text();
    let limited = text.lines().map(|line| {
        let uncounted = ["Extended: ", "Allocate beyond the end: "];
        let kind = uncounted.iter().find_map(|kind| {
            let (before, _) = line.split_once(kind)?;
            Some(format!("{before}{kind}EOPNOTSUPP"))
        });
        kind.unwrap_or_else(|| line.to_owned()) + "\n"
    });
    let expected: String = limited.collect();
    let numbers = (1..).map_while(Operation::from_number);
    let missing: Vec<_> = numbers
        .filter(|&operation| {
            !expected
                .lines()
                .any(|text| text.starts_with(line(operation)))
        })
        .collect();
    check("every operation has a line", missing.is_empty(), &missing)?;

    let daemon = Daemon::start("pool = 1")?;
    let program = compile::alone("volumes", "riscv64-linux-gnu-gcc")?;
    daemon.give_image(&program)?;
    let archive = super::tar(&[("volumes", b'0', "", &fs::read(program)?)]);
    let program = daemon.push("name=volumes", &archive)?;
    let volume = json!({ "name": "data", "size": 24 << 20 });
    post(&daemon, "/v1/volumes", &volume)?.expect(201)?;
    let body = json!({
        "program": program["id"],
        "path": "/volumes",
        "args": ["operations", "/x"],
        "volumes": [mount("data", "/x", false)],
        "start": true,
    });
    let found = run_machine(&daemon, &body)?;
    expect("operations", &found, "0", &expected)
}
