//! Runs of python that go on from a snapshot, one after another, beside runs that start python.

use super::daemon::Daemon;
use super::results::Times;
use anyhow::{Context, ensure};
use hartline_cli::client::Connection;
use hyper::Method;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// RAM of a machine, bytes.
const RAM: u64 = 256 << 20;
/// The longest wait for the first output.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two looks at it.
const PERIOD: Duration = Duration::from_millis(20);
/// The time after which a change of the snapshot's files could be seen.
const SETTLED: Duration = Duration::from_millis(2100);
/// Runs that start python, for each that goes on from the snapshot.
const FEWER: u32 = 10;
/// Python, in the root file system.
const PYTHON: &str = "/usr/bin/python3.13";
/// Imports a module, prints that it is ready, as JSON, and answers lines.
const SCRIPT: &str = "from re import sub
print('\"ready\"', flush=True)
for line in open(0):
    print(sub('[aeiou]', 'x', line), flush=True)";

/// The times of runs from the request to the whole answer.
#[derive(Debug, Clone, Serialize)]
pub struct Again {
    /// Runs that start python.
    pub new: Times,
    /// The first run from the snapshot.
    pub first_ms: f64,
    /// The others.
    pub again: Times,
    /// Runs from the snapshot in a second, of two clients at once.
    pub per_s: f64,
}

/// Measures `count` runs from a snapshot of python, whose root file system is `root`.
///
/// # Errors
/// The root file system is missing, the daemon refuses, or a run fails.
pub async fn measure(daemon: &Daemon, root: &Path, count: u32) -> anyhow::Result<Again> {
    let archive = tempfile::NamedTempFile::new()?;
    let packed = Command::new("tar")
        .arg("-cf")
        .arg(archive.path())
        .arg("-C")
        .arg(root)
        .arg(".")
        .status()?;
    ensure!(packed.success(), "{}: tar: {packed}", root.display());
    let program = daemon.push_root(archive.path(), PYTHON).await?;
    let machine = json!({ "program": program, "path": PYTHON, "args": ["-I", "-S", "-B", "-c", SCRIPT],
        "memory": RAM });
    let mut connection = daemon.connect().await?;
    let mut new = machine.clone();
    new["stdin"] = "a line\n".into();
    // The first one requests translations.
    run(&mut connection, &new).await?;
    let new = times(&mut connection, &new, count.div_ceil(FEWER)).await?;
    snapshot(&mut connection, machine).await?;
    let again = json!({ "snapshot": "ready", "stdin": "a line\n" });
    let first = run(&mut connection, &again).await?;
    let each = times(&mut connection, &again, count).await?;
    // As many VMMs as clients wait after these.
    rate(daemon, &again, 1).await?;
    let per_s = rate(daemon, &again, count).await?;
    Ok(Again {
        new: Times::new(new),
        first_ms: first.as_secs_f64() * 1e3,
        again: Times::new(each),
        per_s,
    })
}

/// Makes the snapshot `ready` of a machine that waits for its input, and ends the machine.
async fn snapshot(connection: &mut Connection, mut machine: Value) -> anyhow::Result<()> {
    machine["interactive"] = true.into();
    machine["start"] = true.into();
    let made: Value = connection
        .json(Method::POST, "/v1/machines", Some(&machine))
        .await?;
    let id = made.get("id").and_then(Value::as_str);
    let path = format!("/v1/machines/{}", id.context("the answer has no id")?);
    let logs = format!("{path}/logs");
    let start = Instant::now();
    loop {
        let log = connection.json::<Value>(Method::GET, &logs, None);
        // Before the first output the log is empty, and so no JSON.
        if log.await.is_ok_and(|log| log == "ready") {
            break;
        }
        ensure!(start.elapsed() < PATIENCE, "python is not ready");
        tokio::time::sleep(PERIOD).await;
    }
    let name = json!({ "name": "ready" });
    let _: Value = connection
        .json(Method::POST, &format!("{path}/snapshots"), Some(&name))
        .await?;
    let _: Value = connection
        .json(Method::POST, &format!("{path}/kill"), None)
        .await?;
    // Until then no VMM makes another run.
    tokio::time::sleep(SETTLED).await;
    Ok(())
}

/// Makes a run. Result: its time.
async fn run(connection: &mut Connection, request: &Value) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let outcome: Value = connection
        .json(Method::POST, "/v1/runs", Some(request))
        .await?;
    let time = start.elapsed();
    let output = outcome.pointer("/stdout/text").and_then(Value::as_str);
    let is_right = output.is_some_and(|output| output.ends_with("x lxnx\n\n"));
    ensure!(is_right, "a wrong run: {outcome}");
    Ok(time)
}

async fn times(
    connection: &mut Connection,
    request: &Value,
    count: u32,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..count {
        times.push(run(connection, request).await?);
    }
    Ok(times)
}

/// Makes at least `count` runs of two clients at once. Result: runs per second.
async fn rate(daemon: &Daemon, request: &Value, count: u32) -> anyhow::Result<f64> {
    const CLIENTS: u32 = 2;
    let each = count.div_ceil(CLIENTS);
    let client = async || -> anyhow::Result<()> {
        let mut connection = daemon.connect().await?;
        times(&mut connection, request, each).await.map(drop)
    };
    let start = Instant::now();
    futures_util::future::try_join(client(), client()).await?;
    Ok(f64::from(each * CLIENTS) / start.elapsed().as_secs_f64())
}
