//! `hartline bench service`: starts a daemon and measures the rate of runs, runs from a snapshot, leaked resources, the
//! cost of idle machines, and the time until machines are back after a kill of the daemon.

mod again;
mod daemon;
mod left;
mod load;
mod machines;
mod results;

use anyhow::{Context, ensure};
use daemon::Daemon;
use left::Left;
use results::{Results, Times};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `hartline bench service`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Measure this many runs one after another
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sequential: u32,

    /// Measure the rate of this many runs of several clients at once
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    parallel: u32,

    /// Use this many clients at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    clients: u32,

    /// Measure this many commands in a running machine, one after another; 0: skip
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    commands: u32,

    /// Measure this many runs from a snapshot of python3, one after another; 0: skip
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    snapshot_runs: u32,

    /// Make this many runs between two counts of resources, to find leaks; 0: skip
    #[arg(long, value_name = "N", default_value_t = 5000)]
    runs: u32,

    /// Start this many idle machines at once; 0: skip
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=180))]
    machines: u32,

    /// Measure the idle machines' CPU time for this many seconds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// Keep this many of the machines running while the daemon is killed and started again
    #[arg(long, value_name = "N", default_value_t = 50)]
    restart: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Take the programs from this directory, which `make bench-programs` prepares
    #[arg(long, value_name = "DIR", default_value = "target/bench-programs")]
    programs: PathBuf,
}

/// Measures, and prints the results on standard output and progress on standard error. The exit
/// code is 1 if runs leaked resources or a machine was lost.
///
/// # Errors
/// Not root, the program is missing, the daemon does not start or refuses, or a run fails.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let program = arguments.programs.join("riscv64/service");
    ensure!(
        program.exists(),
        "{}: make bench-programs prepares it",
        program.display()
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let results = runtime.block_on(measure(arguments, &program))?;
    match arguments.json {
        true => writeln!(io::stdout(), "{}", serde_json::to_string(&results)?)?,
        false => write!(io::stdout(), "{results}")?,
    }
    Ok(ExitCode::from(u8::from(!results.is_clean())))
}

async fn measure(arguments: &Arguments, program: &std::path::Path) -> anyhow::Result<Results> {
    let mut daemon = Daemon::start().await?;
    let measured = measure_with(&mut daemon, arguments, program).await;
    measured.with_context(|| format!("the daemon's log ends with:\n{}", daemon.end_of_log()))
}

async fn measure_with(
    daemon: &mut Daemon,
    arguments: &Arguments,
    program: &std::path::Path,
) -> anyhow::Result<Results> {
    let program = daemon.push(program).await?;
    // The first runs wait for VMMs and start the daemon's threads, so they are not measured.
    load::parallel(daemon, &program, arguments.clients * 4, arguments.clients).await?;
    let times = load::sequential(daemon, &program, arguments.sequential).await?;
    let per_second = load::parallel(daemon, &program, arguments.parallel, arguments.clients);
    let mut results = Results::new(&times, per_second.await?, arguments);
    progress(&results.speed());
    if arguments.commands > 0 {
        let machine = machines::start(daemon, &program, 1).await?;
        let times = load::commands(daemon, &machine[0], arguments.commands).await?;
        results.commands = Some(Times::new(times));
        machines::end(daemon, &machine).await?;
    }
    if arguments.snapshot_runs > 0 {
        let root = arguments.programs.join("roots/riscv64/python3.13");
        let again = again::measure(daemon, &root, arguments.snapshot_runs).await?;
        progress(&format!("runs from a snapshot: {}", again.again));
        results.again = Some(again);
    }
    if arguments.runs > 0 {
        let before = daemon.settle(None).await?;
        progress(&format!("before {} runs: {before}", arguments.runs));
        load::parallel(daemon, &program, arguments.runs, arguments.clients).await?;
        let after = daemon.settle(Some(&before)).await?;
        progress(&format!("after: {after}"));
        results.set_left(arguments.runs, before, after);
    }
    if arguments.machines > 0 {
        let started = machines::start(daemon, &program, arguments.machines).await?;
        results.idle = Some(machines::idle(daemon, &started, arguments.seconds).await?);
        let kept = started.len().min(arguments.restart as usize);
        let (kept, rest) = started.split_at(kept);
        machines::end(daemon, rest).await?;
        if !kept.is_empty() {
            results.restart = Some(machines::restart(daemon, kept).await?);
        }
        machines::end(daemon, kept).await?;
    }
    Ok(results)
}

/// Writes progress to standard error. A closed standard error is not a failure.
fn progress(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
