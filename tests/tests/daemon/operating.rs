//! The daemon as its operator works with it: reloads, kills, and long outputs.

use super::{await_state, check, machine, push, run, start, state};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, compile, hartline};
use serde_json::json;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// Makes the daemon read its configuration again, and waits until its log has this text once more.
fn reload_until(daemon: &Daemon, text: &str) -> Result<()> {
    let count = || daemon.log().matches(text).count();
    let before = count();
    daemon.hang_up();
    until(|| count() > before).map_err(|_| format!("{text:?}: {}", daemon.log()).into())
}

const RELOADED: &str = "the configuration was reloaded";

/// SIGHUP puts new limits in force, and names the settings that need a restart.
pub fn reload() -> Result<()> {
    let daemon = Daemon::start("pool = 1\nmax_upload = 100")?;
    let file = fs::read(compile::service()?)?;
    let upload = || daemon.request_with("POST", "/v1/programs?name=x", &[], &file);
    let refused = upload()?;
    check("too large", refused.status == 413, &refused)?;
    daemon.configure("pool = 2\nmax_upload = 1000000000")?;
    reload_until(&daemon, RELOADED)?;
    let log = daemon.log();
    check("changed", log.contains("max_upload has changed"), &log)?;
    let told = log.contains("pool takes effect when hartlined is started again");
    check("not changed", told, &log)?;
    let program = push(&daemon)?;
    let idle = machine(&daemon, &program, &["idle"])?;
    await_state(&daemon, &idle, "running")?;
    // Machines go on, and several signals do no harm.
    for _ in 0..3 {
        daemon.hang_up();
    }
    reload_until(&daemon, RELOADED)?;
    await_state(&daemon, &idle, "running")?;
    let outcome = run(&daemon, &json!({ "program": program }))?;
    check("runs", outcome["exit_code"] == 0, &outcome)
}

/// A configuration that is wrong changes nothing.
pub fn invalid_configuration() -> Result<()> {
    let daemon = Daemon::start("pool = 1")?;
    for wrong in [
        "max_upload = 1\nunknown = 2",
        "max_upload = 1\nuids = 2",
        "max_upload =",
    ] {
        daemon.configure(wrong)?;
        reload_until(&daemon, "the configuration stays as it was")?;
    }
    push(&daemon)?;
    daemon.configure("pool = 1")?;
    reload_until(&daemon, RELOADED)
}

/// A daemon that is started within milliseconds of the kill of another one waits for its lock and
/// its sockets.
pub fn started_at_once() -> Result<()> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let mut daemon = Daemon::start(&format!("pool = 2\nlisten = '127.0.0.1:{port}'"))?;
    let program = push(&daemon)?;
    let idle = machine(&daemon, &program, &["idle"])?;
    await_state(&daemon, &idle, "running")?;
    for _ in 0..10 {
        daemon.kill()?;
        daemon.restart()?;
        await_state(&daemon, &idle, "running")?;
    }
    Ok(())
}

fn submit(daemon: &Daemon, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(hartline::binary()?);
    let host = format!("unix://{}", daemon.socket().display());
    command
        .arg("submit")
        .args(arguments)
        .env("HARTLINE_HOST", host);
    Ok(command.output()?)
}

/// `submit` prints outputs of any length that a VMM may write, and says if one was cut.
pub fn long_output() -> Result<()> {
    const LINE: &[u8] = b"all work and no play makes jack a dull boy\n";
    const LINES: usize = 65_536;
    let (daemon, program) = start()?;
    let output = submit(&daemon, &[&program, "long"])?;
    let is_whole = output.stdout == LINE.repeat(LINES);
    let found = (output.status, output.stdout.len(), &output.stderr);
    check("whole", is_whole && output.status.success(), &found)?;
    // What a slow reader misses does not go unnoticed.
    let mut slow = Command::new(hartline::binary()?)
        .args(["submit", &program, "gush", "64"])
        .env(
            "HARTLINE_HOST",
            format!("unix://{}", daemon.socket().display()),
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // Meanwhile the program writes more than the daemon keeps.
    thread::sleep(Duration::from_secs(2));
    let mut stdout = slow.stdout.take().ok_or("no output")?;
    let read = thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    let output = slow.wait_with_output()?;
    let length = read.join().map_err(|_| "the reader panicked")??;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let right = output.status.code() == Some(125)
        && told.contains("standard output")
        && (1 << 20..64 << 20).contains(&length);
    check("cut", right, &(output.status, length, told))?;
    let output = submit(&daemon, &[&program, "exit"])?;
    let right = output.status.code() == Some(7) && output.stderr.is_empty();
    check("its own exit code", right, &output)
}

/// `hartlined backup` or `hartlined restore`, with the configuration and the data of a daemon.
fn keep(daemon: &Daemon, command: &str, file: &Path) -> Result<Output> {
    let mut keep = Command::new(hartline::daemon()?);
    keep.arg(command)
        .arg(file)
        .arg("--data-dir")
        .arg(daemon.data());
    Ok(keep.output()?)
}

/// A backup of a daemon that works is a complete one.
pub fn backup() -> Result<()> {
    let (mut daemon, program) = start()?;
    let folder = Scratch::new()?;
    let file = folder.path().join("backup.tar");
    let made = daemon.request("POST", "/v1/tenants/default/keys", br#"{"scope": "write"}"#)?;
    let key = format!("Bearer {}", made.expect(201)?.text("key"));
    let volume = br#"{"name": "data", "size": 1048576}"#;
    daemon.request("POST", "/v1/volumes", volume)?.expect(201)?;
    let with_volume = |daemon: &Daemon, args: &[&str]| -> Result<String> {
        let body = json!({ "program": program, "args": args, "start": true,
            "volumes": [{ "volume": "data", "path": "/data" }] });
        let made = daemon.request("POST", "/v1/machines", body.to_string().as_bytes())?;
        let path = format!("/v1/machines/{}", made.expect(201)?.text("id"));
        await_state(daemon, &path, "exited")?;
        Ok(path)
    };
    with_volume(&daemon, &["put", "/data/file", "contents"])?;
    let ended = machine(&daemon, &program, &[])?;
    await_state(&daemon, &ended, "exited")?;
    let ticking = machine(&daemon, &program, &["tick"])?;
    await_state(&daemon, &ticking, "running")?;
    let saved = keep(&daemon, "backup", &file)?;
    let told = String::from_utf8_lossy(&saved.stdout).into_owned();
    let right =
        saved.status.success() && told.starts_with("1 programs, 3 machines and runs, 1 vol");
    check("saved", right, &saved)?;
    let mode = fs::metadata(&file)?.mode() & 0o7777;
    check("its mode", mode == 0o600, &mode)?;
    let twice = keep(&daemon, "backup", &file)?;
    check("not twice", twice.status.code() == Some(125), &twice)?;
    let occupied = keep(&daemon, "restore", &file)?;
    check("occupied", occupied.status.code() == Some(125), &occupied)?;

    daemon
        .request("POST", &format!("{ticking}/kill"), b"")?
        .expect(200)?;
    await_state(&daemon, &ticking, "exited")?;
    daemon.kill()?;
    until(|| fs::remove_dir_all(daemon.data()).is_ok())?;
    let restored = keep(&daemon, "restore", &file)?;
    check("restored", restored.status.success(), &restored)?;
    daemon.restart()?;
    let path = format!("/v1/programs/{program}");
    until(|| {
        let found = daemon.request("GET", &path, b"");
        found.is_ok_and(|found| found.text("state") == "ready")
    })
    .map_err(|_| format!("the program is not ready: {}", daemon.log()))?;
    let outcome = run(&daemon, &json!({ "program": program }))?;
    check(
        "runs",
        outcome["stdout"]["text"] == "hello, world\n",
        &outcome,
    )?;
    check("ended", state(&daemon, &ended)? == "exited", &ended)?;
    let log = daemon
        .request("GET", &format!("{ended}/logs"), b"")?
        .expect(200)?;
    check("its output", log.body == b"hello, world\n", &log)?;
    let failed = daemon.request("GET", &ticking, b"")?;
    let told = failed.text("message") == "it was running when the backup was made";
    check("failed", failed.text("state") == "failed" && told, &failed)?;
    let asked = daemon.request_with("GET", "/v1/machines", &[("Authorization", &key)], b"")?;
    check("the key", asked.status == 200, &asked)?;
    let got = with_volume(&daemon, &["get", "/data/file"])?;
    let log = daemon
        .request("GET", &format!("{got}/logs"), b"")?
        .expect(200)?;
    check("the volume", log.body == b"contents", &log)
}
