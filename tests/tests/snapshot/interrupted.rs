//! Snapshots that are not finished.

use super::{PATIENCE, Place, Running, expect, from, until};
use hartline_tests::tree::Scratch;
use hartline_tests::{Result, hartline, process};
use std::fs::{self, DirEntry};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The VMM is killed at different times while it writes. There is either no snapshot or a whole one,
/// and the next snapshot leaves nothing of an unfinished one.
pub fn killed() -> Result<()> {
    let place = Place::new()?;
    let (snapshot, partial) = (place.path("one"), place.path(".one.partial"));
    let mut unfinished = 0;
    for round in 0..8 {
        let mut command = place.writing("one", "stdin", &["large", "100"], &["--snapshot-end"])?;
        let mut running = Running::start(&mut command)?;
        let start = Instant::now();
        while !partial.exists() && !snapshot.exists() {
            if start.elapsed() > PATIENCE {
                return Err("no snapshot is written".into());
            }
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(Duration::from_millis(round * 15));
        running.child.kill()?;
        running.child.wait()?;
        if snapshot.exists() {
            expect(&place.from("one", "x", &[])?, 0, "100 MiB\n")?;
            fs::remove_dir_all(&snapshot)?;
        } else {
            unfinished += 1;
            let outcome = place.from("one", "x", &[])?;
            super::expect_refusal(&outcome, "No such file")?;
        }
    }
    if unfinished == 0 {
        return Err("each snapshot was finished before its writer was killed".into());
    }
    place.write("one", &["large", "100"])?;
    let left: Vec<_> = fs::read_dir(place.folder.path())?.flatten().collect();
    match left.len() == 1 && left[0].path() == snapshot {
        true => Ok(()),
        false => Err(format!("{left:?}").into()),
    }
}

/// The delays after which a VMM is killed: they span its start, the check of the snapshot and the start of the guest.
fn delays() -> impl Iterator<Item = Duration> {
    (0..=40).step_by(2).map(Duration::from_millis)
}

/// The VMM is killed at different times while it restores a snapshot. Nothing of it is left, and the snapshot is as it
/// was, also if its checksums are known and its memory is mapped.
pub fn killed_restoring() -> Result<()> {
    let place = Place::new()?;
    let (cache, temporary) = (place.path("cache"), place.path("temporary"));
    fs::create_dir(&cache)?;
    fs::create_dir(&temporary)?;
    let alone = |mut command: Command| {
        command
            .env("HARTLINE_CACHE", &cache)
            // The first run makes all translations, in no time.
            .env(hartline::BASELINE, "only")
            .env("TMPDIR", &temporary)
            .current_dir(&temporary)
            .process_group(0);
        command
    };
    for (name, part, text) in [
        ("small", &["everything"][..], SMALL),
        ("large", &["large", "60"], "60 MiB\n"),
    ] {
        place.write(name, part)?;
        let snapshot = place.path(name);
        let restores = || -> Result<()> {
            let outcome = process::run(&mut alone(from(&snapshot, &[])?), INPUT)?;
            let code = if name == "small" { 3 } else { 0 };
            expect(&outcome, code, text)
        };
        let before = state_of(&snapshot)?;
        let mut killed = 0;
        for is_settled in [false, true] {
            if is_settled {
                // Only the checksums of files that have settled are noted as right.
                thread::sleep(Duration::from_millis(2100));
            }
            restores()?;
            for delay in delays() {
                killed += usize::from(kill_after(alone(from(&snapshot, &[])?), delay)?);
                let mut left = names(&cache)?;
                left.retain(|name| !CACHED.iter().any(|suffix| name.ends_with(suffix)));
                left.extend(names(&temporary)?);
                if !left.is_empty() || state_of(&snapshot)? != before {
                    return Err(format!("{name}, {delay:?}: {left:?}").into());
                }
                if name == "small" && delay.as_millis().is_multiple_of(10) {
                    restores()?;
                }
            }
            restores()?;
        }
        if killed == 0 {
            return Err(format!("{name}: each VM had gone on before it was killed").into());
        }
    }
    Ok(())
}

/// Ends of the names of the files that a cache keeps: images, what the host can do, snapshots and images that are right.
const CACHED: [&str; 4] = [".img", "probe.json", "snapshots", "validated"];
/// The input of the programs that are restored, and the output of the small one.
const INPUT: &[u8] = b"3 first\n";
const SMALL: &str = "after first\nwiped 1 0\nall there\n";

/// Starts a command with input, and kills it after a time. Nothing of its process group is left. Result: whether it
/// was killed before the program had any output.
fn kill_after(mut command: Command, delay: Duration) -> Result<bool> {
    let mut running = Running::start(&mut command)?;
    let mut input = running.child.stdin.take().ok_or("no input")?;
    // The process may have ended.
    let _ = input.write_all(INPUT);
    thread::sleep(delay);
    running.child.kill()?;
    let status = running.child.wait()?;
    let group = -libc::pid_t::try_from(running.child.id())?;
    let is_over = || {
        // SAFETY: no memory is involved, and signal 0 is not sent.
        let found = unsafe { libc::kill(group, 0) };
        found != 0
    };
    until("the end of its processes", is_over)?;
    // Each process that had the output open has ended.
    let mut output = String::new();
    running.output.read_to_string(&mut output)?;
    Ok(status.signal() == Some(libc::SIGKILL) && output.is_empty())
}

/// The names of the files in a folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    let name = |entry: std::io::Result<DirEntry>| {
        let name = entry?.file_name();
        Ok(name.to_string_lossy().into_owned())
    };
    let names = fs::read_dir(folder)?.map(name);
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// The files of a snapshot with their lengths, and the times of their last changes, ns.
fn state_of(snapshot: &Path) -> Result<Vec<(String, u64, i64, i64)>> {
    let state = |name: String| {
        let status = fs::metadata(snapshot.join(&name))?;
        Ok((name, status.len(), status.ctime(), status.ctime_nsec()))
    };
    names(snapshot)?.into_iter().map(state).collect()
}

/// The program goes on if its snapshot does not fit, and nothing is left.
pub fn full() -> Result<()> {
    let folder = Scratch::new()?;
    let place = Place::new()?;
    let mount = folder.path().display();
    // The mount is in a separate mount namespace, which ends with the VM.
    let prepare = format!(
        "mount -t tmpfs -o size=2m none {mount} && \"$@\"; code=$?; ls -A {mount}; exit $code"
    );
    for (end, code, output) in [
        (&[][..], 5, "before\nafter on\nwiped 0 0\nall there\n"),
        (&["--snapshot-end"], 125, "before\n"),
    ] {
        let name = folder.path().join("one").display().to_string();
        let inner = place.writing(&name, "stdin", &["everything"], end)?;
        let words = ["unshare", "-m", "sh", "-c", &prepare, "sh"];
        let mut command = process::within(words, &inner);
        let outcome = process::run(&mut command, b"5 on\n")?;
        let text = outcome.stderr_text();
        let is_told = text.lines().count() == 1
            && text.starts_with("hartline: --snapshot: ")
            && text.contains("memory: write: No space left on device");
        if outcome.code != code || outcome.stdout_text() != output || !is_told {
            return Err(format!("{outcome:?}").into());
        }
    }
    Ok(())
}
