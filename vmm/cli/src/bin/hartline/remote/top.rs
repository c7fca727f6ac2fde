//! `hartline top`: shows periodically the resources that running machines use.

use super::{Remote, done, list, table, wait};
use hartline_cli::client::{ClientError, Connection, escape};
use hyper::Method;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Moves a terminal's cursor to its upper left corner and erases everything.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Arguments of `hartline top`.
#[derive(Debug, clap::Args)]
pub struct Top {
    #[command(flatten)]
    remote: Remote,

    /// Seconds between two updates
    #[arg(short, long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,

    /// Stop after this many updates
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
}

/// The resources that the machines use at one time.
#[derive(Debug, Serialize)]
struct Look {
    /// Milliseconds since 1970.
    at_ms: u64,
    machines: Vec<Usage>,
}

/// The resources that one machine uses.
#[derive(Debug, Serialize)]
struct Usage {
    id: String,
    program: String,
    state: String,
    /// Processor time in percent of one processor, since the last update or the machine's start.
    cpu_percent: f64,
    /// Processor time since its start, milliseconds.
    cpu_ms: u64,
    /// Resident memory, bytes.
    memory: u64,
    /// Exits that KVM counted since its start, if it counts them.
    kvm_exits: Option<u64>,
    /// KVM's exits per second, since the last update or the machine's start.
    exits_per_second: Option<f64>,
}

/// Prints the resources that the running machines use.
///
/// # Errors
/// The daemon does not answer.
pub fn top(arguments: &Top) -> anyhow::Result<ExitCode> {
    wait(async {
        let mut daemon = arguments.remote.connect().await?;
        let mut before = None;
        for number in 1.. {
            let look = look(&mut daemon, before.as_ref()).await?;
            print(arguments, &look)?;
            if arguments.count.is_some_and(|count| number >= count) {
                break;
            }
            before = Some(look);
            tokio::time::sleep(Duration::from_secs(arguments.interval)).await;
        }
        done()
    })
}

async fn look(daemon: &mut Connection, before: Option<&Look>) -> anyhow::Result<Look> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let at_ms = u64::try_from(now.as_millis())?;
    let earlier = before.map_or(0, |look| look.at_ms);
    let known: HashMap<&str, &Usage> = before
        .iter()
        .flat_map(|look| &look.machines)
        .map(|usage| (usage.id.as_str(), usage))
        .collect();
    let mut machines = Vec::new();
    for state in ["running", "paused"] {
        for machine in list(daemon, "/v1/machines", &format!("state={state}")).await? {
            let id = table::text(&machine, "id");
            let path = format!("/v1/machines/{}/stats", escape(&id));
            let stats: Value = match daemon.json(Method::GET, &path, None).await {
                Ok(stats) => stats,
                // The machine was deleted a moment ago.
                Err(ClientError::Problem { status: 404, .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let number = |of: &Value, field: &str| of.get(field).and_then(Value::as_u64);
            // Both are missing if the machine ended a moment ago.
            let used = (number(&stats, "cpu_ms"), number(&stats, "memory"));
            let (Some(cpu_ms), Some(memory)) = used else {
                continue;
            };
            let kvm_exits = number(&stats, "kvm_exits");
            let started = number(&machine, "started_ms").unwrap_or(at_ms);
            let (cpu_before, exits_before, since) = match known.get(id.as_str()) {
                Some(before) => (before.cpu_ms, before.kvm_exits, earlier),
                None => (0, Some(0), started),
            };
            let each = |(before, now)| per_second((before, since), (now, at_ms));
            machines.push(Usage {
                cpu_percent: percent((cpu_before, since), (cpu_ms, at_ms)),
                exits_per_second: exits_before.zip(kvm_exits).map(each),
                kvm_exits,
                program: table::short(machine.get("spec").unwrap_or(&Value::Null), "program"),
                state: state.to_owned(),
                id,
                cpu_ms,
                memory,
            });
        }
    }
    machines.sort_by(|a, b| b.cpu_percent.total_cmp(&a.cpu_percent));
    Ok(Look { at_ms, machines })
}

/// Share of one processor between two points of (processor time, time), in percent.
fn percent(before: (u64, u64), after: (u64, u64)) -> f64 {
    // Milliseconds per second.
    per_second(before, after) / 10.0
}

/// Growth per second between two points of (count, milliseconds), rounded.
fn per_second(before: (u64, u64), after: (u64, u64)) -> f64 {
    let [used, time] = [(before.0, after.0), (before.1, after.1)].map(|(b, a)| a.saturating_sub(b));
    if time == 0 {
        return 0.0;
    }
    (used as f64 * 1000.0 / time as f64).round()
}

fn print(arguments: &Top, look: &Look) -> anyhow::Result<()> {
    let mut out = io::stdout();
    if arguments.remote.is_json() {
        writeln!(out, "{}", serde_json::to_string(look)?)?;
        return Ok(());
    }
    if out.is_terminal() {
        write!(out, "{CLEAR}")?;
    }
    let cpu: f64 = look.machines.iter().map(|usage| usage.cpu_percent).sum();
    let memory: u64 = look.machines.iter().map(|usage| usage.memory).sum();
    writeln!(
        out,
        "{} machines, {cpu:.1} % of a processor, {} MiB\n",
        look.machines.len(),
        memory >> 20
    )?;
    let row = |usage: &Usage| {
        [
            usage.id.clone(),
            usage.program.clone(),
            usage.state.clone(),
            format!("{:.1}", usage.cpu_percent),
            format!("{:.1}", usage.cpu_ms as f64 / 1000.0),
            format!("{:.1}", usage.memory as f64 / f64::from(1 << 20)),
            usage
                .exits_per_second
                .map_or_else(|| "-".to_owned(), |each| each.to_string()),
        ]
    };
    let rows: Vec<_> = look.machines.iter().map(row).collect();
    let head = ["ID", "PROGRAM", "STATE", "CPU %", "CPU S", "MIB", "EXITS/S"];
    table::print(head, &rows)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_processor() {
        assert_eq!(percent((0, 1000), (250, 2000)), 25.0);
        assert_eq!(percent((100, 1000), (4100, 3000)), 200.0);
        assert_eq!(per_second((10, 1000), (40, 3000)), 15.0);
        // The clock was set back, or a number is used again.
        assert_eq!(percent((100, 1000), (50, 900)), 0.0);
    }
}
