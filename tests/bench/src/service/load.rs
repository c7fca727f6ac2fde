//! Runs, one after another and several at once.

use super::daemon::Daemon;
use anyhow::{Context, ensure};
use hyper::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Path of an uploaded program in its machine.
const PROGRAM: &str = "/program";

/// Makes runs one after another as one client. Result: the time of each, shortest first.
///
/// # Errors
/// A run fails.
pub async fn sequential(
    daemon: &Daemon,
    program: &str,
    count: u32,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = runs(daemon, program, count).await?;
    times.sort_unstable();
    Ok(times)
}

/// Makes at least the given number of runs with several clients at once. Result: runs per second.
///
/// # Errors
/// A run fails.
pub async fn parallel(
    daemon: &Daemon,
    program: &str,
    count: u32,
    clients: u32,
) -> anyhow::Result<f64> {
    let each = count.div_ceil(clients);
    let start = Instant::now();
    let all = (0..clients).map(|_| runs(daemon, program, each));
    futures_util::future::try_join_all(all).await?;
    Ok(f64::from(each * clients) / start.elapsed().as_secs_f64())
}

/// Executes commands one after another in a running machine. Result: the time of each from the request
/// to the whole answer, which comes after the first output.
///
/// # Errors
/// A command fails.
pub async fn commands(daemon: &Daemon, machine: &str, count: u32) -> anyhow::Result<Vec<Duration>> {
    let mut connection = daemon.connect().await?;
    let request = json!({ "command": [PROGRAM] });
    let path = format!("/v1/machines/{machine}/exec");
    let mut times = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        let ended: Value = connection.json(Method::POST, &path, Some(&request)).await?;
        times.push(start.elapsed());
        let code = ended.get("exit_code").and_then(Value::as_u64);
        ensure!(code == Some(0), "the command did not succeed: {ended}");
    }
    Ok(times)
}

async fn runs(daemon: &Daemon, program: &str, count: u32) -> anyhow::Result<Vec<Duration>> {
    let mut connection = daemon.connect().await?;
    let request = json!({ "program": program });
    let mut times = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        let outcome: Value = connection
            .json(Method::POST, "/v1/runs", Some(&request))
            .await?;
        times.push(start.elapsed());
        let code = outcome.get("exit_code").and_then(Value::as_u64);
        let code = code.context("the answer has no exit code")?;
        ensure!(code == 0, "the program ended with code {code}: {outcome}");
    }
    Ok(times)
}
