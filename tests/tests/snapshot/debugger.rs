//! Debuggers of programs that continue a snapshot (`hartline run --gdb --from`): the program stands still at the
//! snapshot until gdb continues it. Its input is there before gdb is.

use super::{Place, Running, from, until};
use hartline_tests::Result;
use hartline_tests::process::{self, Outcome};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Continues the snapshot `one` with this input. Result: the command, which waits for a debugger, and its socket.
fn waiting(place: &Place, input: &str) -> Result<(Child, PathBuf)> {
    let socket = place.path("gdb.socket");
    let option = format!("--gdb={}", socket.display());
    let mut command = from(&place.path("one"), &[&option])?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().ok_or("no input")?;
    stdin.write_all(input.as_bytes())?;
    drop(stdin);
    until("a socket", || socket.exists())?;
    Ok((child, socket))
}

/// Continues the snapshot `one` with this input and gdb, which executes these commands. Result: what gdb has
/// printed, and the end of the program.
fn session(place: &Place, input: &str, commands: &[&str]) -> Result<(String, Outcome)> {
    let (child, socket) = waiting(place, input)?;
    let mut gdb = Command::new("gdb-multiarch");
    let target = format!("target remote {}", socket.display());
    gdb.args(["-nx", "-batch"]);
    for command in ["set width 0", "handle SIGUSR1 nostop noprint", &target]
        .iter()
        .chain(commands)
    {
        gdb.args(["-ex", command]);
    }
    let shown = process::run(gdb.arg(&place.program), b"")?;
    let ended = child.wait_with_output()?;
    let outcome = Outcome {
        code: process::shell_code(ended.status),
        stdout: ended.stdout,
        stderr: ended.stderr,
    };
    Ok((shown.stdout_text() + &shown.stderr_text(), outcome))
}

fn check(
    (shown, outcome): &(String, Outcome),
    wanted: &[&str],
    (code, output): (i32, &str),
) -> Result<()> {
    process::check_order(shown, wanted)?;
    match outcome.code == code && outcome.stdout_text() == output {
        true => Ok(()),
        false => Err(format!("{shown}{outcome:?}").into()),
    }
}

/// The first instruction is the call for whose result the program waited.
pub fn of_read() -> Result<()> {
    const SIGSEGV: i32 = 11;
    let place = Place::new()?;
    place.write("one", &["crash"])?;
    let commands = [
        "x/i $pc",
        "print $a7",
        "break *($pc + 4)",
        "continue",
        "print $a0",
        "continue",
        "info registers pc",
        "continue",
    ];
    let wanted = [
        "ecall",
        "$1 = 63",
        "Breakpoint 1, 0x",
        " in read (",
        "$2 = 1",
        "received signal SIGSEGV",
        "<falls",
        "terminated with signal SIGSEGV",
    ];
    let end = (128 + SIGSEGV, "");
    check(&session(&place, "x", &commands)?, &wanted, end)
}

/// Both threads of the first process stand still, and go on with all state when gdb leaves. Its child is not
/// debugged.
pub fn of_threads() -> Result<()> {
    const INPUT: &str = "5 more\n";
    let place = Place::new()?;
    place.write("one", &["everything"])?;
    let expected = place.from("one", INPUT, &[])?;
    let output = expected.stdout_text();
    let end = (5, output.as_str());
    let commands = ["info threads", "detach"];
    let got = session(&place, INPUT, &commands)?;
    check(&got, &["* 1 ", "  2 ", "detached]"], end)?;
    if got.0.contains("  3 ") || !output.ends_with("all there\n") {
        return Err(format!("{got:?}, {expected:?}").into());
    }
    // Whether the new thread has run before the snapshot depends on time.
    let commands = ["thread 2", "print $pc == 0", "continue"];
    let wanted = ["Switching to thread 2", "$1 = 0", "exited with code 05]"];
    check(&session(&place, INPUT, &commands)?, &wanted, end)
}

/// Signals of the program itself, such as that of its child's end, do not end the wait for a debugger. One of the user
/// ends the program.
pub fn of_nobody() -> Result<()> {
    let place = Place::new()?;
    place.write("one", &["everything"])?;
    let (mut child, _) = waiting(&place, "5 more\n")?;
    thread::sleep(Duration::from_secs(2));
    let early = child.try_wait()?;
    // SAFETY: no memory is involved.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    let ended = child.wait_with_output()?;
    match early.is_none() && process::shell_code(ended.status) == 128 + libc::SIGTERM {
        true => Ok(()),
        false => Err(format!("{early:?}, {ended:?}").into()),
    }
}

/// The registers of a program that was computing are exact.
pub fn of_computing() -> Result<()> {
    let place = Place::new()?;
    let mut command = place.writing("one", "signal", &["compute"], &["--snapshot-end"])?;
    let mut running = Running::start(&mut command)?;
    running.expect_line("ready")?;
    running.signal(libc::SIGUSR2)?;
    let status = process::wait(&mut running.child)?.ok_or("it does not end")?;
    if !status.success() {
        return Err(format!("{status}").into());
    }
    let commands = [
        "set var $before = $pc",
        "stepi",
        "print $pc != $before",
        "stepi 1000",
        "continue",
    ];
    let wanted = ["$1 = 1", "exited with code 04]"];
    let got = session(&place, "x", &commands)?;
    check(&got, &wanted, (4, "computed\n"))
}
