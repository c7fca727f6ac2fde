//! The time from the start of a process to its first output: natively, in a new VM, and from a snapshot.

use super::Start;
use super::results::{Percentiles, Rates, StartRow};
use super::warm;
use crate::memory::Memory;
use crate::programs::{Programs, Way, run};
use crate::suite::Benchmark;
use anyhow::{Context, ensure};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

/// The line that programs read.
pub(super) const LINE: &[u8] = b"a line\n";
/// Processes at a time.
const WORKERS: u32 = 2;

/// A process that has printed something, and reads its input.
struct Answered {
    child: Child,
    milliseconds: f64,
}

impl Answered {
    /// Starts a process, and waits for the first byte of its output.
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let start = Instant::now();
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let input = child.stdin.as_mut().context("no input")?;
        input.write_all(LINE)?;
        let output = child.stdout.as_mut().context("no output")?;
        let read = output.read(&mut [0; 1])?;
        let milliseconds = start.elapsed().as_secs_f64() * 1e3;
        let answered = Self {
            child,
            milliseconds,
        };
        match read {
            0 => {
                answered.end()?;
                anyhow::bail!("{:?} printed nothing", command.get_program())
            }
            _ => Ok(answered),
        }
    }

    /// Ends the input, and waits for the end of the process. Result: the time to the first output, ms.
    fn end(mut self) -> anyhow::Result<f64> {
        drop(self.child.stdin.take());
        // The rest of the output is short.
        let status = self.child.wait()?;
        ensure!(status.success(), "a program failed: {status}");
        Ok(self.milliseconds)
    }
}

/// Makes a snapshot of a program that is about to read its input.
fn make_snapshot(
    programs: &Programs,
    benchmark: &Benchmark,
    directory: &Path,
) -> anyhow::Result<()> {
    let options = [
        format!("--snapshot={}", directory.display()),
        "--snapshot-at=stdin".to_owned(),
        "--snapshot-end".to_owned(),
    ];
    let programs = programs.with_options(options.to_vec());
    let mut command = programs.command(benchmark, Way::Hartline, false);
    run(&mut command, Way::Hartline).map(drop)
}

/// The command of a clone.
fn clone_command(programs: &Programs, snapshot: &Path) -> Command {
    let mut command = programs.hartline("run");
    command.arg("--from").arg(snapshot);
    command
}

/// Starts a program in all ways in turn, so that a disturbance of the machine affects all of them.
pub fn measure(programs: &Programs, start: &Start, runs: u32) -> anyhow::Result<StartRow> {
    let benchmark = &start.benchmark;
    let directory = tempfile::tempdir()?;
    let snapshot = directory.path().join("snapshot");
    make_snapshot(programs, benchmark, &snapshot).context(benchmark.name)?;
    let (mut native, mut new, mut clones) = (Vec::new(), Vec::new(), Vec::new());
    let mut memory = Memory::default();
    for _ in 0..runs {
        let timed = |command: &mut Command, times: &mut Vec<f64>| -> anyhow::Result<()> {
            times.push(Answered::start(command).and_then(Answered::end)?);
            Ok(())
        };
        let command = |way| programs.command(benchmark, way, false);
        timed(&mut command(Way::Native), &mut native)?;
        timed(&mut command(Way::Hartline), &mut new)?;
        let clone = Answered::start(&mut clone_command(programs, &snapshot))?;
        memory = Memory::of(clone.child.id())?;
        clones.push(clone.end()?);
    }
    let mib = |kib: u64| kib as f64 / 1024.0;
    let warm = warm::measure(&snapshot, runs)?;
    Ok(StartRow {
        name: benchmark.name,
        native_ms: Percentiles::of(&native),
        run_ms: Percentiles::of(&new),
        clone_ms: Percentiles::of(&clones),
        warm_ready_ms: warm.ready_ms,
        warm_first_ms: warm.first_ms,
        warm_ms: warm.warm_ms,
        warm_idle_mib: warm.idle_mib,
        warm_used_mib: warm.used_mib,
        limit_ms: start.limit_ms,
        own_mib: mib(memory.own_kib),
        guest_mib: mib(memory.guest_kib),
    })
}

/// Measures how many processes a second two workers start, and wait for.
pub fn rates(programs: &Programs, benchmark: &Benchmark, runs: u32) -> anyhow::Result<Rates> {
    let directory = tempfile::tempdir()?;
    let snapshot = directory.path().join("snapshot");
    make_snapshot(programs, benchmark, &snapshot)?;
    let command = |way| programs.command(benchmark, way, false);
    Ok(Rates {
        native_per_s: rate(runs, || command(Way::Native))?,
        run_per_s: rate(runs, || command(Way::Hartline))?,
        clone_per_s: rate(runs, || clone_command(programs, &snapshot))?,
        warm_per_s: warm::rate(&snapshot, WORKERS, runs * 20)?,
    })
}

fn rate(runs: u32, command: impl Fn() -> Command + Sync) -> anyhow::Result<f64> {
    let each = runs.div_ceil(WORKERS);
    let start = Instant::now();
    let work = || -> anyhow::Result<()> {
        (0..each).try_for_each(|_| Answered::start(&mut command())?.end().map(drop))
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            let worked = worker.join();
            worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    Ok(f64::from(each * WORKERS) / start.elapsed().as_secs_f64())
}
