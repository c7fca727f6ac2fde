//! Idle machines, and machines that survive a kill of the daemon.

use super::daemon::Daemon;
use super::left;
use crate::memory::Memory;
use anyhow::{Context, bail, ensure};
use hartline_cli::client::Connection;
use hyper::Method;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// RAM of a machine, bytes: the smallest amount allowed.
const RAM: u64 = 64 << 20;
/// The longest wait for all machines to start or to end.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two polls.
const PERIOD: Duration = Duration::from_millis(10);
/// The idle time before machines are measured.
const REST: Duration = Duration::from_secs(3);

/// The cost of idle machines.
#[derive(Debug, Clone, Serialize)]
pub struct Idle {
    /// The number of machines.
    pub machines: usize,
    /// Memory of each machine beyond the pages that its guest touched, MiB: the VMM's private
    /// memory and its proportional share of shared memory.
    pub memory_each_mib: f64,
    /// Pages that the guest of each machine touched, in the page size that the host used, MiB.
    pub guest_each_mib: f64,
    /// CPU time of all machines and the daemon, percent of one CPU.
    pub cpu_percent: f64,
}

/// The state of machines after a restart of the daemon.
#[derive(Debug, Clone, Serialize)]
pub struct Restart {
    /// The number of machines that ran before.
    pub machines: usize,
    /// Seconds from the start of the new daemon until it reported all of them as running.
    pub seconds: f64,
    /// The number of machines that were lost or are other processes than before.
    pub lost: usize,
}

/// Starts machines whose program sleeps. Result: their ids.
///
/// # Errors
/// A machine is refused or does not run.
pub async fn start(daemon: &Daemon, program: &str, count: u32) -> anyhow::Result<Vec<String>> {
    let mut connection = daemon.connect().await?;
    let mut started = Vec::new();
    let request = json!({
        "program": program, "args": ["idle"], "memory": RAM, "start": true,
    });
    for _ in 0..count {
        let machine: Value = connection
            .json(Method::POST, "/v1/machines", Some(&request))
            .await?;
        let id = machine.get("id").and_then(Value::as_str);
        started.push(id.context("the answer has no id")?.to_owned());
    }
    until(&mut connection, "running", started.len()).await?;
    Ok(started)
}

/// Waits until `count` machines are in a state.
async fn until(connection: &mut Connection, state: &str, count: usize) -> anyhow::Result<()> {
    let start = Instant::now();
    let path = format!("/v1/machines?limit=1000&state={state}");
    loop {
        let machines: Vec<Value> = connection.json(Method::GET, &path, None).await?;
        if machines.len() == count {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            bail!("{} machines are {state}, not {count}", machines.len());
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Measures idle machines.
///
/// # Errors
/// A machine has ended.
pub async fn idle(daemon: &Daemon, started: &[String], seconds: u32) -> anyhow::Result<Idle> {
    tokio::time::sleep(REST).await;
    let processes = processes(&daemon.data());
    ensure!(
        processes.len() == started.len(),
        "{} processes of {} machines were found",
        processes.len(),
        started.len()
    );
    let used = || -> anyhow::Result<u64> {
        let own = [Some(daemon.pid()), left::service(daemon.pid())];
        let pids = processes.values().copied().chain(own.into_iter().flatten());
        pids.map(processor_time).sum()
    };
    let (before, start) = (used()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let (after, time) = (used()?, start.elapsed());
    let mut own = 0;
    let mut guest = 0;
    for &pid in processes.values() {
        let memory = Memory::of(pid)?;
        own += memory.own_kib;
        guest += memory.guest_kib;
    }
    let each = |kib: u64| kib as f64 / 1024.0 / started.len() as f64;
    Ok(Idle {
        machines: started.len(),
        memory_each_mib: each(own),
        guest_each_mib: each(guest),
        cpu_percent: after.saturating_sub(before) as f64 / time.as_nanos() as f64 * 100.0,
    })
}

/// Kills the daemon and starts it again.
///
/// # Errors
/// The daemon does not start again.
pub async fn restart(daemon: &mut Daemon, kept: &[String]) -> anyhow::Result<Restart> {
    let data = daemon.data();
    let before = processes(&data);
    let start = daemon.restart().await?;
    let mut connection = daemon.connect().await?;
    until(&mut connection, "running", kept.len()).await?;
    let seconds = start.elapsed().as_secs_f64();
    let after = processes(&data);
    let lost = |id: &&String| !before.contains_key(*id) || before.get(*id) != after.get(*id);
    Ok(Restart {
        machines: kept.len(),
        seconds,
        lost: kept.iter().filter(lost).count(),
    })
}

/// Ends and deletes machines.
///
/// # Errors
/// The daemon refuses.
pub async fn end(daemon: &Daemon, machines: &[String]) -> anyhow::Result<()> {
    let mut connection = daemon.connect().await?;
    for id in machines {
        let path = format!("/v1/machines/{id}/kill");
        let _: Value = connection.json(Method::POST, &path, None).await?;
    }
    until(&mut connection, "exited", machines.len()).await?;
    for id in machines {
        let path = format!("/v1/machines/{id}");
        let _: Value = connection.json(Method::DELETE, &path, None).await?;
    }
    Ok(())
}

/// Kills the remaining machines of a data directory. Processes that cannot be killed have ended.
pub fn end_all(data: &Path) {
    for pid in processes(data).into_values() {
        // SAFETY: no memory is involved.
        unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
    }
}

/// Returns the processes of machines by id: their standard output is a file of the machine.
fn processes(data: &Path) -> BTreeMap<String, u32> {
    let machines = data.join("machines");
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let output = fs::read_link(format!("/proc/{pid}/fd/1")).ok()?;
        let id = output.strip_prefix(&machines).ok()?.parent()?.to_str()?;
        Some((id.to_owned(), pid))
    })
    .collect()
}

/// Returns the CPU time of all threads of a process, nanoseconds.
fn processor_time(pid: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has just ended is not counted.
        let times = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        let time = times.split(' ').next().and_then(|time| time.parse().ok());
        sum += time.unwrap_or(0);
    }
    Ok(sum)
}
