//! Programs that go on where the host's clocks show other times: after a restart of the host, or on another one.

use super::{PATIENCE, Place, Running, expect, from, writing};
use hartline_tests::compare::Run;
use hartline_tests::{Result, compile, process};
use std::io::{BufRead, Write};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// More seconds than a host with these tests has run for.
const FAR: &str = "100000000";
/// The most that two clocks of the host differ in a run of the program.
const ACCURACY: Duration = Duration::from_millis(100);

/// Returns the command in a time namespace in which the host has run for `ahead` seconds more.
fn shifted(ahead: &str, inner: &Command) -> Command {
    let (monotonic, boot) = (
        format!("--monotonic={ahead}"),
        format!("--boottime={ahead}"),
    );
    let words = ["unshare", "--time", "--kill-child", &monotonic, &boot];
    process::within(words, inner)
}

/// The host's clocks are far ahead of those at the snapshot.
pub fn ahead() -> Result<()> {
    jump(&["0", FAR])
}

/// The host's clocks are far behind those at the snapshot.
pub fn behind() -> Result<()> {
    jump(&[FAR, "0"])
}

/// The snapshot of a program from a snapshot, with a jump in each direction.
pub fn there_and_back() -> Result<()> {
    jump(&["0", FAR, "0"])
}

/// Runs the program where the host's clocks are so many seconds ahead, each time from the snapshot of the time before,
/// and checks what it finds the last time.
fn jump(ahead: &[&str]) -> Result<()> {
    let place = Place {
        program: compile::alone("clock_jumps", "riscv64-linux-gnu-gcc")?,
        ..Place::new()?
    };
    let (last, earlier) = ahead.split_last().ok_or("no times")?;
    for (number, ahead) in earlier.iter().enumerate() {
        let next = place.path(&(number + 1).to_string());
        let command = match number {
            0 => {
                let run = Run::new(&place.program, [""; 0]);
                writing(&run, &next, "stdin", &["--snapshot-end"])?
            }
            _ => {
                let next = next.display().to_string();
                let options = ["--snapshot", &next, "--snapshot-at", "stdin"];
                let options = [&options[..], &["--snapshot-end"]].concat();
                from(&place.path(&number.to_string()), &options)?
            }
        };
        expect(&process::run(&mut shifted(ahead, &command), b"")?, 0, "")?;
    }
    goes_on(&mut shifted(
        last,
        &from(&place.path(&earlier.len().to_string()), &[])?,
    ))
}

/// Checks the clocks of a program that goes on, against those of the host.
fn goes_on(command: &mut Command) -> Result<()> {
    let (start, realtime) = (Instant::now(), SystemTime::now());
    let mut running = Running::start(command)?;
    let mut input = running.child.stdin.take().ok_or("no input")?;
    input.write_all(b"x")?;
    let told = Duration::from_nanos(number(&mut running, "realtime ")?);
    let least = realtime.duration_since(UNIX_EPOCH)? - ACCURACY;
    let most = UNIX_EPOCH.elapsed()? + ACCURACY;
    if told < least || told > most {
        return Err(format!("{told:?}, not from {least:?} to {most:?}").into());
    }
    let counted = Duration::from_nanos(number(&mut running, "slept ")?);
    let passed = start.elapsed();
    if counted > passed + ACCURACY || passed > PATIENCE {
        return Err(format!("{counted:?} within {passed:?} of the host").into());
    }
    let status = process::wait(&mut running.child)?.ok_or("it does not end")?;
    match status.code() {
        Some(8) => Ok(()),
        _ => Err(format!("{status}").into()),
    }
}

/// The number after `name` in the next line.
fn number(running: &mut Running, name: &str) -> Result<u64> {
    let mut line = String::new();
    running.output.read_line(&mut line)?;
    let number = line.trim_end().strip_prefix(name);
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("{line:?}, not {name:?} and a number").into())
}
