//! How long the daemon keeps asynchronous runs, machines, programs and translations, including
//! translations made on demand.

use super::commands::client;
use super::{check, machine, push, run, start, state, tar};
use hartline_tests::daemon::{Answer, Daemon, until};
use hartline_tests::{Result, compile, paths, process};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Submits an asynchronous run.
pub(super) fn submit(daemon: &Daemon, headers: &[(&str, &str)], request: &Value) -> Result<Answer> {
    let json = [("Content-Type", "application/json")];
    let headers = [&json[..], headers].concat();
    daemon.request_with("POST", "/v1/runs", &headers, request.to_string().as_bytes())
}

/// Returns the path of the new object from an answer's `Location` header.
pub(super) fn location(answer: &Answer) -> Result<String> {
    let mut lines = answer.head.lines();
    let line = lines.find_map(|line| line.strip_prefix("location: "));
    Ok(line.ok_or("no Location")?.to_owned())
}

pub fn asynchronous_runs() -> Result<()> {
    let (mut daemon, program) = start()?;
    let with = |args: &[&str]| json!({ "program": program, "args": args, "stdin": "in and out", "wait": false });
    let copy = submit(&daemon, &[], &with(&["copy"]))?.expect(202)?;
    let copy = location(&copy)?;
    let ended = daemon.request("GET", &format!("{copy}?seconds=60"), b"")?;
    let (outcome, state) = (&ended.json()["outcome"], ended.text("state"));
    let right = outcome["stdout"]["text"] == "in and out" && outcome["exit_code"] == 0;
    check("its output", right && state == "exited", &ended)?;
    let machines = daemon.request("GET", "/v1/machines", b"")?.json();
    check("no machine", machines == json!([]), &machines)?;
    let id = copy.rsplit('/').next().unwrap_or_default();
    let as_machine = daemon.request("GET", &format!("/v1/machines/{id}"), b"")?;
    check("not found as one", as_machine.status == 404, &as_machine)?;

    let prefer = [
        ("Prefer", "wait=5, respond-async"),
        ("Idempotency-Key", "k"),
    ];
    let spin = json!({ "program": program, "args": ["spin"], "timeout_ms": 600_000 });
    let first = location(&submit(&daemon, &prefer, &spin)?.expect(202)?)?;
    let again = location(&submit(&daemon, &prefer, &spin)?.expect(202)?)?;
    check("the same run", first == again, &again)?;
    let other = submit(&daemon, &prefer, &with(&["exit"]))?;
    check("another request", other.status == 409, &other)?;
    // With an idempotency key, a run is kept even if the request waits for its end.
    let key = [("Idempotency-Key", "exit")];
    let exit = json!({ "program": program, "args": ["exit"] });
    for _ in 0..2 {
        let ended = submit(&daemon, &key, &exit)?.expect(200)?;
        check("its outcome", ended.json()["exit_code"] == 7, &ended)?;
    }
    let kept = fs::read_dir(daemon.data().join("machines"))?.count();
    check("runs that are kept", kept == 3, &kept)?;
    let mut interactive = spin.clone();
    interactive["interactive"] = true.into();
    let refused = submit(&daemon, &prefer, &interactive)?;
    check(
        "interactive",
        refused.text("code") == "not-interactive",
        &refused,
    )?;

    // Ended and active runs survive a kill of the daemon.
    let code = location(&submit(&daemon, &[], &with(&["exit"]))?.expect(202)?)?;
    daemon.request("GET", &format!("{code}?seconds=60"), b"")?;
    daemon.kill()?;
    daemon.restart()?;
    let ended = daemon.request("GET", &format!("{code}?seconds=60"), b"")?;
    check(
        "after a restart",
        ended.json()["outcome"]["exit_code"] == 7,
        &ended,
    )?;
    let running = daemon.request("GET", &first, b"")?;
    check("still runs", running.text("state") == "running", &running)?;
    for run in [&first, &copy, &code] {
        daemon.request("DELETE", run, b"")?.expect(204)?;
        let gone = daemon.request("GET", run, b"")?;
        check("gone", gone.status == 404, &gone)?;
    }
    let left = fs::read_dir(daemon.data().join("machines"))?.count();
    check("files", left == 1, &left)?;

    // A refused run leaves nothing behind, and its key may be used again.
    daemon
        .request("PUT", "/v1/tenants/default", br#"{"max_machines": 0}"#)?
        .expect(200)?;
    let key = [("Idempotency-Key", "new")];
    let refused = submit(&daemon, &key, &with(&["exit"]))?;
    check("quota", refused.text("code") == "quota", &refused)?;
    daemon
        .request("PUT", "/v1/tenants/default", b"{}")?
        .expect(200)?;
    let accepted = submit(&daemon, &key, &with(&["exit"]))?;
    check("accepted", accepted.status == 202, &accepted)
}

/// Counts the translations of all tenants in a data directory.
pub fn images(data: &Path) -> usize {
    files(&data.join("images"))
}

/// Counts the files of all tenants in a directory.
fn files(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let counts = entries.map(|entry| match entry.path().is_dir() {
        true => files(&entry.path()),
        false => 1,
    });
    counts.sum()
}

pub fn images_on_demand() -> Result<()> {
    // LLVM's images are counted.
    let daemon = Daemon::start("pool = 1\nbaseline = false")?;
    let program = push(&daemon)?;
    check(
        "translated",
        images(&daemon.data()) == 1,
        &images(&daemon.data()),
    )?;
    // A program that handles its own faults gets the precise variant.
    let request = json!({ "program": program, "args": ["handle"] });
    let outcome = run(&daemon, &request)?;
    check("handled", outcome["exit_code"] == 11, &outcome)?;
    until(|| images(&daemon.data()) == 2)?;
    let outcome = run(&daemon, &request)?;
    check(
        "handled in precise code",
        outcome["exit_code"] == 11,
        &outcome,
    )?;

    // A root file system contains a program that no request names before the run.
    let daemon = Daemon::start("pool = 1\nbaseline = false")?;
    let archive = tar(&[("service", b'0', "", &fs::read(compile::service()?)?)]);
    let program = daemon.push("name=root", &archive)?;
    check(
        "nothing is translated",
        images(&daemon.data()) == 0,
        &program,
    )?;
    let request = json!({ "program": program["id"], "path": "/service" });
    let outcome = run(&daemon, &request)?;
    check(
        "interpreted",
        outcome["stdout"]["text"] == "hello, world\n",
        &outcome,
    )?;
    until(|| images(&daemon.data()) == 1)
}

/// A program runs while it is translated: as a run, as a machine, and after a restart of the daemon.
pub fn before_the_translation() -> Result<()> {
    let mut daemon = Daemon::start("pool = 1")?;
    let busybox = paths::repository().join(".debian/riscv64/usr/bin/busybox");
    let output = client(
        &daemon,
        &["push", "--no-wait", &busybox.display().to_string()],
        "",
    )?;
    check("pushed", output.status.success(), &output)?;
    let is_translated = |daemon: &Daemon| -> Result<bool> {
        let program = daemon
            .request("GET", "/v1/programs/busybox", b"")?
            .expect(200)?;
        check("its state", program.text("state") != "failed", &program)?;
        Ok(program.text("state") == "ready")
    };
    for round in ["new", "after a restart"] {
        let request = json!({ "program": "busybox", "args": ["echo", "interpreted"] });
        let outcome = run(&daemon, &request)?;
        let right = outcome["stdout"]["text"] == "interpreted\n";
        check(round, right, &outcome)?;
        let ended = machine(&daemon, "busybox", &["false"])?;
        let waited = daemon.request("GET", &format!("{ended}/wait?seconds=60"), b"")?;
        check(round, waited.text("exit_code") == "1", &waited)?;
        // Its translation takes many times as long as both.
        check("it did not wait", !is_translated(&daemon)?, &daemon.log())?;
        if round == "new" {
            daemon.kill()?;
            daemon.restart()?;
        }
    }
    Ok(())
}

/// A worker that is killed is followed by another. If all are killed, the program has no translation
/// until one is left alone.
pub fn killed_workers() -> Result<()> {
    let daemon = Daemon::start("pool = 1\ncollect_every_s = 1")?;
    // Its translation takes seconds: no worker is faster than this test.
    let path = compile::programs(compile::VARIANTS[1])?
        .display()
        .to_string();
    let pushed = client(
        &daemon,
        &["push", "--no-wait", "--name", "killed", &path],
        "",
    )?;
    check("pushed", pushed.status.success(), &pushed)?;
    let program = || daemon.request("GET", "/v1/programs/killed", b"");
    let has_problem = |problem: &str| program().is_ok_and(|found| found.text("problem") == problem);
    let told = |_| format!("{:?}, {}", program(), daemon.log());
    until(|| {
        for worker in daemon.workers() {
            // SAFETY: no memory is involved. The number of a process that has ended since is not
            // reused this soon.
            unsafe { libc::kill(worker.cast_signed(), libc::SIGKILL) };
        }
        has_problem("worker-killed")
    })
    .map_err(told)?;
    let is_ready = || program().is_ok_and(|found| found.text("state") == "ready");
    until(|| is_ready() && has_problem("")).map_err(told)?;
    let log = daemon.log();
    let killed = log.matches("the worker was killed").count();
    check("attempts", killed >= 3, &log)?;
    let outcome = run(
        &daemon,
        &json!({ "program": "killed", "args": ["hotspots", "1"] }),
    )?;
    check("it runs", outcome["exit_code"] == 0, &outcome)
}

pub fn garbage_collection() -> Result<()> {
    let daemon = Daemon::start(
        "pool = 1\ncollect_every_s = 1\nkeep_runs_s = 2\nkeep_machines_s = 2\n\
         keep_programs_s = 4\nmax_images = 0",
    )?;
    let program = push(&daemon)?;
    let idle = machine(&daemon, &program, &["idle"])?;
    let ended = machine(&daemon, &program, &["exit"])?;
    let request = json!({ "program": program, "args": ["exit"], "wait": false });
    let run = location(&submit(&daemon, &[], &request)?.expect(202)?)?;
    let gone = |path: &str| {
        daemon
            .request("GET", path, b"")
            .is_ok_and(|a| a.status == 404)
    };
    until(|| gone(&ended) && gone(&run))?;
    until(|| images(&daemon.data()) == 0)?;
    // A running machine and its program are kept, and the program's image is made again.
    check("runs", state(&daemon, &idle)? == "running", &idle)?;
    let again = super::run(&daemon, &json!({ "program": program }))?;
    check("runs again", again["exit_code"] == 0, &again)?;
    std::thread::sleep(std::time::Duration::from_secs(5));
    let path = format!("/v1/programs/{program}");
    check("in use", !gone(&path), &path)?;
    daemon
        .request("POST", &format!("{idle}/kill"), b"")?
        .expect(200)?;
    until(|| gone(&idle) && gone(&path))?;
    let left = |name: &str| files(&daemon.data().join(name));
    // The database forgets the program before its files are deleted.
    until(|| left("trees") == 0 && left("uploads") == 0)
}

/// Returns the names of a machine's threads and the CPUs that they may run on.
fn places(daemon: &Daemon, id: &str) -> Result<Vec<(String, String)>> {
    let identity = |path: PathBuf| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    // The machine's standard output is a file that no other machine has.
    let output = identity(daemon.data().join("machines").join(id).join("stdout"));
    let is_its = |process: &fs::DirEntry| {
        output.is_some() && identity(process.path().join("fd/1")) == output
    };
    let mut processes = fs::read_dir("/proc")?.flatten();
    let found = processes.find(is_its).ok_or("it has no process")?;
    let number = found.file_name().to_string_lossy().parse();
    process::places(number.map_err(|_| "no number of a process")?)
}

pub fn dedicated_processors() -> Result<()> {
    let processors = std::thread::available_parallelism()?.get();
    if processors < 2 {
        return Err("this test needs two processors".into());
    }
    let mut daemon = Daemon::start("pool = 1\ndedicated_cpus = [0, 1]")?;
    let program = push(&daemon)?;
    let body = json!({ "program": program, "args": ["idle"], "cpu_class": "dedicated",
        "start": true });
    let create =
        |daemon: &Daemon| daemon.request("POST", "/v1/machines", body.to_string().as_bytes());
    let id = create(&daemon)?.expect(201)?.text("id");
    let path = format!("/v1/machines/{id}");
    until(|| state(&daemon, &path).is_ok_and(|state| state == "running"))?;
    let is_vcpu = |thread: &(String, String)| thread.0 == "vcpu0";
    until(|| places(&daemon, &id).is_ok_and(|places| places.iter().any(is_vcpu)))?;
    let pinned = || places(&daemon, &id);
    until(|| {
        pinned().is_ok_and(|places| {
            let right =
                |thread: &(String, String)| thread.1 == if is_vcpu(thread) { "0" } else { "1" };
            // KVM's own thread runs where the vCPU thread ran that started it.
            let own = |thread: &&(String, String)| !thread.0.starts_with("kvm");
            places.iter().filter(own).all(right)
        })
    })
    .map_err(|_| format!("{:?}", pinned()))?;
    // No other machine gets these CPUs, not from a later daemon either.
    for _ in 0..2 {
        let refused = create(&daemon)?;
        let right = refused.status == 409 && refused.text("code") == "no-dedicated-cpus";
        check("a second one", right, &refused)?;
        daemon.kill()?;
        daemon.restart()?;
    }
    let all = daemon.request("GET", "/v1/machines", b"")?.json();
    check("one machine", all.as_array().map(Vec::len) == Some(1), &all)?;
    daemon
        .request("POST", &format!("{path}/kill"), b"")?
        .expect(200)?;
    until(|| create(&daemon).is_ok_and(|answer| answer.status == 201))
}
