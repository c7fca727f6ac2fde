//! Snapshots that are not due in time.

use super::{Place, Running, expect, expect_refusal, writing};
use hartline_tests::compare::Run;
use hartline_tests::{Result, paths, process};
use std::fs;
use std::io::{BufRead, BufReader, Read};

/// The program ends before its snapshot is due.
pub fn too_late() -> Result<()> {
    let place = Place::new()?;
    let run = Run::new(&paths::busybox(), ["true"]);
    for (at, what) in [
        ("stdin", "before it read standard input"),
        ("listen", "before it waited in accept"),
        ("signal", "before hartline received SIGUSR2"),
    ] {
        let mut command = writing(&run, &place.path("one"), at, &[])?;
        expect_refusal(&process::run(&mut command, b"")?, what)?;
    }
    match fs::read_dir(place.folder.path())?.next() {
        None => Ok(()),
        Some(entry) => Err(format!("{:?} is left", entry?.path()).into()),
    }
}

/// A script that comes to no trigger. It ends at a signal.
const LATE: &str = "trap 'echo on; exit 7' HUP; echo ready; while :; do sleep 0.05; done";
/// The triggers, with the messages about those that are not reached.
const MISSED: [(&str, &str); 3] = [
    ("stdin", "the program has not read standard input"),
    (
        "listen",
        "the program has not waited in accept, epoll_wait, poll or select",
    ),
    ("signal", "hartline has not received SIGUSR2"),
];

/// The program goes on without its snapshot: its output and its exit code are its own.
pub fn late_and_on() -> Result<()> {
    let place = Place::new()?;
    for (at, missed) in MISSED {
        let run = Run::new(&paths::busybox(), ["sh", "-c", LATE]);
        let limit = ["--snapshot-within", "0.1"];
        let mut command = writing(&run, &place.path("one"), at, &limit)?;
        let mut running = Running::start(&mut command)?;
        running.expect_line("ready")?;
        let errors = running.child.stderr.take().ok_or("no standard error")?;
        let mut errors = BufReader::new(errors);
        let mut text = String::new();
        errors.read_line(&mut text)?;
        let expected = format!("not written: within 0.1 s {missed} (--snapshot-within)\n");
        if !text.starts_with("hartline: --snapshot /") || !text.ends_with(&expected) {
            return Err(format!("{at}: {text:?}").into());
        }
        if at == "signal" {
            // It is too late for this one, and the program does not get it.
            running.signal(libc::SIGUSR2)?;
        }
        running.signal(libc::SIGHUP)?;
        running.expect_line("on")?;
        errors.read_to_string(&mut text)?;
        let status = process::wait(&mut running.child)?.ok_or("it does not end")?;
        let is_left = fs::read_dir(place.folder.path())?.count() != 0;
        if status.code() != Some(7) || text.lines().count() != 1 || is_left {
            return Err(format!("{at}: {status}, {text:?}, {is_left}").into());
        }
    }
    Ok(())
}

/// With `--snapshot-end` the VM ends, whatever the program does: it sleeps, or it computes.
pub fn late_and_end() -> Result<()> {
    let place = Place::new()?;
    for script in ["sleep 1000", "while :; do :; done"] {
        for (at, missed) in MISSED {
            let run = Run::new(&paths::busybox(), ["sh", "-c", script]);
            let options = ["--snapshot-end", "--snapshot-within", "0.1"];
            let mut command = writing(&run, &place.path("one"), at, &options)?;
            let outcome = process::run(&mut command, b"")?;
            expect_refusal(&outcome, missed)?;
            if fs::read_dir(place.folder.path())?.count() != 0 {
                return Err(format!("{at}: something is left").into());
            }
        }
    }
    Ok(())
}

/// A snapshot in time is written.
pub fn in_time() -> Result<()> {
    let place = Place::new()?;
    let run = Run::new(&paths::busybox(), ["sh", "-c", "read x; echo $x; exit 3"]);
    let limit = ["--snapshot-within", "3600"];
    let mut command = writing(&run, &place.path("one"), "stdin", &limit)?;
    expect(&process::run(&mut command, b"a\n")?, 3, "a\n")?;
    let ending = ["--snapshot-within", "1e300", "--snapshot-end"];
    let mut command = writing(&run, &place.path("two"), "stdin", &ending)?;
    let unreachable = process::run(&mut command, b"a\n")?;
    if unreachable.code != 2 {
        return Err(format!("a time that no clock reaches: {unreachable:?}").into());
    }
    expect(&place.from("one", "b\n", &[])?, 3, "b\n")
}
