//! Warm clones in this process: from the request for a run to its first output, and how many there are in a second.

use super::results::Percentiles;
use super::starts::LINE;
use crate::memory::Private;
use anyhow::{Context, ensure};
use hartline_embed::{Streams, Template, TemplateOptions, WarmClone};
use std::fs::{File, OpenOptions};
use std::io::{PipeReader, Read, Write, pipe};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A run takes longer only if something is wrong.
const LIMIT: Option<Duration> = Some(Duration::from_secs(60));
/// Runs before the first that counts: the VM then knows all translations.
const WARM: u32 = 5;
/// Clones whose memory is measured.
const CLONES: u64 = 4;

/// The figures of warm clones of a program.
#[derive(Debug, Clone, Copy)]
pub struct Warm {
    /// Until a VM is ready for its first run, ms.
    pub ready_ms: f64,
    /// Of its first run to the first output, ms.
    pub first_ms: f64,
    /// Of later runs to the first output, ms.
    pub warm_ms: Percentiles,
    /// Private memory of a clone that has not run, MiB.
    pub idle_mib: f64,
    /// Private memory of one that has run, MiB.
    pub used_mib: f64,
}

/// The streams of a run that reads a line, and its output.
fn streams() -> anyhow::Result<(Streams, PipeReader)> {
    let (input, mut line) = pipe()?;
    line.write_all(LINE)?;
    let (reader, output) = pipe()?;
    let error = OpenOptions::new().write(true).open("/dev/null")?;
    let streams = Streams {
        input: Some(input.into()),
        outputs: [output.into(), File::into(error)],
        output_limit: u64::MAX,
    };
    Ok((streams, reader))
}

/// Runs a clone. Result: the time to the first byte of its output, ms.
fn run(clone: &WarmClone) -> anyhow::Result<f64> {
    let (streams, mut output) = streams()?;
    thread::scope(|scope| {
        let first = scope.spawn(move || -> anyhow::Result<(Instant, usize)> {
            let count = output.read(&mut [0; 1])?;
            let first = Instant::now();
            std::io::copy(&mut output, &mut std::io::sink())?;
            Ok((first, count))
        });
        let start = Instant::now();
        let end = clone.run(streams, LIMIT)?;
        ensure!(
            end.code == 0,
            "a clone ended with {}: {}",
            end.code,
            end.message
        );
        let first = first.join();
        let (first, count) = first.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        ensure!(count == 1, "a clone printed nothing");
        Ok((first - start).as_secs_f64() * 1e3)
    })
}

/// Loads a snapshot.
fn template(snapshot: &Path) -> anyhow::Result<Arc<Template>> {
    let template = Template::load(snapshot, TemplateOptions::default());
    Ok(Arc::new(template.context("the snapshot")?))
}

/// Measures one clone after another, and `runs` runs of the last one.
pub fn measure(snapshot: &Path, runs: u32) -> anyhow::Result<Warm> {
    let template = template(snapshot)?;
    // What all clones share is there then.
    run(&WarmClone::start(&template)?)?;
    let before = Private::of_this_process()?;
    let start = Instant::now();
    let mut clones = vec![WarmClone::start(&template)?];
    let ready_ms = start.elapsed().as_secs_f64() * 1e3;
    for _ in 1..CLONES {
        clones.push(WarmClone::start(&template)?);
    }
    let idle = Private::of_this_process()?;
    let mut first = Vec::new();
    for clone in &clones {
        first.push(run(clone)?);
    }
    let used = Private::of_this_process()?;
    let clone = clones.pop().context("no clones")?;
    drop(clones);
    for _ in 1..WARM {
        run(&clone)?;
    }
    let times = (0..runs).map(|_| run(&clone));
    let times = times.collect::<anyhow::Result<Vec<f64>>>()?;
    let each = |now: Private| now.mib_since(before) / CLONES as f64;
    Ok(Warm {
        ready_ms,
        first_ms: Percentiles::of(&first).p50,
        warm_ms: Percentiles::of(&times),
        idle_mib: each(idle),
        used_mib: each(used),
    })
}

/// Measures how many runs a second `workers` clones make.
pub fn rate(snapshot: &Path, workers: u32, runs: u32) -> anyhow::Result<f64> {
    let template = template(snapshot)?;
    let start = || -> anyhow::Result<WarmClone> {
        let clone = WarmClone::start(&template)?;
        for _ in 0..WARM {
            run(&clone)?;
        }
        Ok(clone)
    };
    let clones = (0..workers).map(|_| start());
    let clones = clones.collect::<anyhow::Result<Vec<_>>>()?;
    let each = runs.div_ceil(workers);
    let begin = Instant::now();
    thread::scope(|scope| {
        let work = |clone| (0..each).try_for_each(|_| run(clone).map(drop));
        let threads: Vec<_> = clones
            .iter()
            .map(|clone| scope.spawn(move || work(clone)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            let worked = thread.join();
            worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    Ok(f64::from(each * workers) / begin.elapsed().as_secs_f64())
}
