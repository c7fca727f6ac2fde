//! `hartline bench service`: how fast the daemon runs programs, and whether it leaks.

use super::{Remote, wait};
use anyhow::{Context, ensure};
use hyper::Method;
use serde::Serialize;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Arguments of `hartline bench service`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    remote: Remote,

    /// Runs one after another
    #[arg(long, default_value_t = 200)]
    sequential: usize,

    /// Runs of several clients at once, all together
    #[arg(long, default_value_t = 400)]
    parallel: usize,

    /// Clients at once
    #[arg(long, default_value_t = 8)]
    clients: usize,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Id of a program, as push printed it
    program: String,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Results {
    /// Milliseconds of a run from request to answer, one client.
    p50_ms: f64,
    p99_ms: f64,
    /// Runs per second of all clients at once.
    runs_per_s: f64,
    clients: usize,
    sequential: usize,
    parallel: usize,
}

/// Runs a program again and again.
///
/// # Errors
/// The daemon refuses, or a run fails.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    ensure!(
        arguments.sequential > 0 && arguments.parallel > 0 && arguments.clients > 0,
        "there must be at least one run and one client"
    );
    let results = wait(measure(arguments))?;
    match arguments.json {
        true => println!("{}", serde_json::to_string(&results)?),
        false => println!(
            "one client: p50 {:.1} ms, p99 {:.1} ms; {} clients: {:.1} runs/s",
            results.p50_ms, results.p99_ms, results.clients, results.runs_per_s
        ),
    }
    super::done()
}

async fn measure(arguments: &Arguments) -> anyhow::Result<Results> {
    // The first ones wait until there are VMMs.
    runs(arguments, 3).await?;
    let mut times = runs(arguments, arguments.sequential).await?;
    times.sort_unstable();
    let percentile = |p: usize| {
        let index = (times.len() * p).div_ceil(100).max(1) - 1;
        times[index].as_secs_f64() * 1000.0
    };
    let start = Instant::now();
    let each = arguments.parallel.div_ceil(arguments.clients);
    let clients = (0..arguments.clients).map(|_| runs(arguments, each));
    futures_util::future::try_join_all(clients).await?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Results {
        p50_ms: percentile(50),
        p99_ms: percentile(99),
        runs_per_s: (each * arguments.clients) as f64 / seconds,
        clients: arguments.clients,
        sequential: arguments.sequential,
        parallel: each * arguments.clients,
    })
}

/// So many runs, one after another; how long each took.
async fn runs(arguments: &Arguments, count: usize) -> anyhow::Result<Vec<Duration>> {
    let mut daemon = arguments.remote.connect().await?;
    let request = json!({ "program": arguments.program });
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        let outcome: Value = daemon
            .json(Method::POST, "/v1/runs", Some(&request))
            .await?;
        times.push(start.elapsed());
        let code = outcome.get("exit_code").and_then(Value::as_u64);
        let code = code.context("the answer has no exit code")?;
        ensure!(code == 0, "the program ended with code {code}: {outcome}");
    }
    Ok(times)
}
