//! The daemon as its operator works with it: reloads, kills, and long outputs.

use super::{await_state, check, machine, push, run, start};
use hartline_tests::daemon::{Daemon, until};
use hartline_tests::{Result, compile, hartline};
use serde_json::json;
use std::fs;
use std::process::{Command, Output};

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
    // An answer without a stream has a limit, which does not go unnoticed.
    let output = submit(&daemon, &["-o", "json", &program, "long"])?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let right = output.status.code() == Some(125) && told.contains("standard output");
    check("cut", right, &(output.status, told))?;
    let request = json!({ "program": program, "args": ["long"] });
    let outcome = run(&daemon, &request)?;
    check(
        "truncated",
        outcome["stdout"]["truncated"] == true,
        &outcome["exit_code"],
    )?;
    let output = submit(&daemon, &[&program, "exit"])?;
    let right = output.status.code() == Some(7) && output.stderr.is_empty();
    check("its own exit code", right, &output)
}
