//! Snapshots that are not finished.

use super::{PATIENCE, Place, Running, expect};
use hartline_tests::Result;
use hartline_tests::process;
use hartline_tests::tree::Scratch;
use std::fs;
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
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &prepare, "sh"]);
        command.arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
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
