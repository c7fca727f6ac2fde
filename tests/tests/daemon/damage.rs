//! Failures of the host.

use super::kept::{location, submit};
use super::{await_state, check, machine, push, run, start, state};
use hartline_tests::daemon::{Answer, Daemon, Disk, until};
use hartline_tests::process::signal;
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, paths};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Bytes of the small disk.
const DISK: usize = 8 << 20;

pub fn full_disk() -> Result<()> {
    let daemon = Daemon::start_on_disk("pool = 1\ncollect_every_s = 1", DISK)?;
    let program = push(&daemon)?;
    let large = daemon.request_with("POST", "/v1/programs?name=x", &[], &vec![7; DISK])?;
    let refused = large.status == 507 && large.text("code") == "storage-full";
    check("upload", refused, &large)?;
    let temporary = daemon.data().join("tmp");
    let left = fs::read_dir(&temporary)?.count();
    check("nothing is left", left == 0, &left)?;
    // The upload fits on the disk, its unpacked tree does not.
    let tree = gzip(&super::tar(&[("sevens", b'0', "", &vec![7; DISK])]))?;
    let failed = daemon.push("name=tree", &tree)?;
    let message = failed["message"].as_str().unwrap_or_default();
    let coded = failed["state"] == "failed" && failed["problem"] == "storage-full";
    let told = coded && message.contains("keeping the tree");
    check("tree", told, &failed)?;
    let left = fs::read_dir(&temporary)?.count();
    check("nothing is left of it", left == 0, &left)?;
    let outcome = run(&daemon, &json!({ "program": program }))?;
    check("others run", outcome["exit_code"] == 0, &outcome)?;
    // The daemon retries when there is room.
    daemon.disk()?.resize(8 * DISK)?;
    await_prepared(&daemon, &failed)
}

/// Fills the disk to its last byte.
fn fill(daemon: &Daemon, name: &str) -> Result<PathBuf> {
    let path = daemon.data().join(name);
    let mut file = File::create(&path)?;
    for length in [64 << 10, 512, 1] {
        while file.write_all(&vec![7; length]).is_ok() {}
    }
    Ok(path)
}

/// Machines and runs that end on a full disk have ended for clients, and for later daemons once there
/// is room. The daemon is not ready meanwhile.
pub fn ends_on_a_full_disk() -> Result<()> {
    let mut daemon = Daemon::start_on_disk("pool = 1\ncollect_every_s = 1", 4 * DISK)?;
    let program = push(&daemon)?;
    let paths = (0..4)
        .map(|_| machine(&daemon, &program, &["idle"]))
        .collect::<Result<Vec<_>>>()?;
    for path in &paths {
        await_state(&daemon, path, "running")?;
    }
    let spin = json!({ "program": program, "args": ["spin"], "timeout_ms": 20_000 });
    let spin = location(&submit(&daemon, &[("Prefer", "respond-async")], &spin)?.expect(202)?)?;
    until(|| state(&daemon, &spin).is_ok_and(|state| state == "running"))?;
    let mut filled = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        filled.push(fill(&daemon, &format!("filler{number}"))?);
        let ready = daemon.request("GET", "/readyz", b"")?;
        let told = ready.status == 503 && ready.text("storage").contains("disk is full");
        check("not ready", told, &ready)?;
        let end = match number % 2 {
            0 => "kill",
            _ => "stop",
        };
        daemon
            .request("POST", &format!("{path}/{end}"), b"")?
            .expect(200)?;
        await_state(&daemon, path, "exited")?;
    }
    // The run reaches its time limit.
    filled.push(fill(&daemon, "filler")?);
    await_state(&daemon, &spin, "exited")?;
    let listed = daemon
        .request("GET", "/v1/machines?state=running", b"")?
        .json();
    check("none runs", listed == json!([]), &listed)?;
    let again = daemon.request("POST", &format!("{}/stop", paths[0]), b"")?;
    check(
        "stopped twice",
        again.text("detail").contains("exited"),
        &again,
    )?;
    for path in filled {
        fs::remove_file(path)?;
    }
    until(|| {
        let ready = daemon.request("GET", "/readyz", b"");
        ready.is_ok_and(|ready| ready.status == 200)
    })?;
    daemon.kill()?;
    daemon.restart()?;
    for path in paths.iter().chain([&spin]) {
        let found = state(&daemon, path)?;
        check("after a restart", found == "exited", &(path, found))?;
    }
    let ended = daemon.request("GET", &spin, b"")?.json();
    check("its result", ended["outcome"]["exit_code"] == 124, &ended)?;
    for path in &paths {
        daemon.request("DELETE", path, b"")?.expect(204)?;
    }
    Ok(())
}

/// Waits until a program is ready and has no problem.
fn await_prepared(daemon: &Daemon, program: &Value) -> Result<()> {
    let id = program["id"].as_str().unwrap_or_default();
    let get = || daemon.request("GET", &format!("/v1/programs/{id}"), b"");
    let prepared = |found: &Answer| {
        found.text("state") == "ready"
            && found.text("problem").is_empty()
            && found.text("message").is_empty()
    };
    until(|| get().is_ok_and(|found| prepared(&found)))
        .map_err(|_| format!("{:?}, {}", get(), daemon.log()).into())
}

pub fn full_images() -> Result<()> {
    const ROOM: usize = 4096;
    let mut daemon = Daemon::start("pool = 1\ncollect_every_s = 1")?;
    let data = daemon.data();
    let images = data.join("images");
    let disk = Disk::mount(&images, ROOM)?;
    let program = daemon.push("name=service", &fs::read(compile::service()?)?)?;
    let message = program["message"].as_str().unwrap_or_default();
    let coded = program["state"] == "ready" && program["problem"] == "storage-full";
    check("told", coded && message.contains("no room for"), &program)?;
    let files = || super::kept::images(&data);
    check("nothing is left of it", files() == 0, &files())?;
    // The program is interpreted, also by a daemon that was started later. The translation that a
    // run asks for cannot be made either.
    let request = json!({ "program": program["id"] });
    for _ in 0..2 {
        let outcome = run(&daemon, &request)?;
        let right = outcome["stdout"]["text"] == "hello, world\n";
        check("interpreted", right, &outcome)?;
        let again = daemon.push("name=service", &fs::read(compile::service()?)?)?;
        let kept = again["problem"] == "storage-full" && again["state"] == "ready";
        check("it is still there", kept, &again)?;
        daemon.kill()?;
        daemon.restart()?;
    }
    disk.resize(16 << 20)?;
    await_prepared(&daemon, &program)?;
    check("the image", files() == 1, &files())?;
    let outcome = run(&daemon, &request)?;
    check("translated", outcome["exit_code"] == 0, &outcome)
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let folder = Scratch::new()?;
    let file = folder.path().join("file");
    fs::write(&file, bytes)?;
    Ok(Command::new("gzip").arg("-c").arg(&file).output()?.stdout)
}

pub fn long_translation() -> Result<()> {
    let daemon = Daemon::start("pool = 1\ntranslation_timeout_s = 1")?;
    let busybox = paths::repository().join(".debian/riscv64/usr/bin/busybox");
    let program = daemon.push("name=busybox", &fs::read(busybox)?)?;
    let message = program["message"].as_str().unwrap_or_default();
    let coded = program["state"] == "ready" && program["problem"] == "too-slow";
    let right = coded && message.contains("took longer than 1 s");
    check("ended", right, &program)?;
    let request = json!({ "program": program["id"], "args": ["echo", "interpreted"] });
    let outcome = run(&daemon, &request)?;
    check(
        "output",
        outcome["stdout"]["text"] == "interpreted\n",
        &outcome,
    )
}

pub fn crash() -> Result<()> {
    let (daemon, program) = start()?;
    let idle = machine(&daemon, &program, &["idle"])?;
    await_state(&daemon, &idle, "running")?;
    for pid in daemon.jailed() {
        signal(pid, libc::SIGKILL);
    }
    await_state(&daemon, &idle, "failed")?;
    let told = daemon.request("GET", &idle, b"")?.text("message");
    check("message", told.contains("crashed"), &told)?;
    // The killed VMMs of the pool are replaced, and the machine can be started again.
    let outcome = run(&daemon, &json!({ "program": program }))?;
    check("runs again", outcome["exit_code"] == 0, &outcome)?;
    daemon
        .request("POST", &format!("{idle}/start"), b"")?
        .expect(200)?;
    await_state(&daemon, &idle, "running")
}

/// A VMM of the pool that is killed when it has got a run, and has not begun it: another one makes the run.
pub fn killed_before() -> Result<()> {
    let (daemon, program) = start()?;
    for _ in 0..3 {
        // The pool is full.
        until(|| daemon.jailed().len() == 2)?;
        let waiting = daemon.jailed();
        let outcome = thread::scope(|scope| {
            // It takes nothing that it gets now.
            waiting.iter().for_each(|&pid| signal(pid, libc::SIGSTOP));
            let outcome = scope.spawn(|| run(&daemon, &json!({ "program": program })));
            thread::sleep(Duration::from_millis(500));
            waiting.iter().for_each(|&pid| signal(pid, libc::SIGKILL));
            outcome.join().map_err(|_| "panic")?
        })?;
        check("it runs", outcome["exit_code"] == 0, &outcome)?;
    }
    Ok(())
}

pub fn hang() -> Result<()> {
    let (daemon, program) = start()?;
    let body = json!({ "program": program, "args": ["idle"], "timeout_ms": 15_000, "start": true });
    let made = daemon.request("POST", "/v1/machines", body.to_string().as_bytes())?;
    let idle = format!("/v1/machines/{}", made.expect(201)?.text("id"));
    await_state(&daemon, &idle, "running")?;
    let request = json!({ "program": program, "args": ["spin"], "timeout_ms": 15_000 });
    let outcome = thread::scope(|scope| {
        let outcome = scope.spawn(|| run(&daemon, &request));
        // Both programs run by now, on a busy machine too. A stopped process cannot report
        // anything.
        thread::sleep(Duration::from_secs(5));
        daemon
            .jailed()
            .iter()
            .for_each(|&pid| signal(pid, libc::SIGSTOP));
        outcome.join().map_err(|_| "panic")?
    })?;
    let told = outcome["message"].as_str().unwrap_or_default();
    let right = outcome["exit_code"] == 125 && told.contains("did not answer");
    check("a run", right, &outcome)?;
    await_state(&daemon, &idle, "failed")?;
    let told = daemon.request("GET", &idle, b"")?.text("message");
    check("a machine", told.contains("did not answer"), &told)
}
