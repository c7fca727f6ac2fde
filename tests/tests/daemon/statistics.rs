//! Exits of machines, while they run and afterwards.

use super::check;
use hartline_tests::Result;
use hartline_tests::daemon::{Daemon, until};
use serde_json::Value;

/// Returns the exits to the VMM, for all reasons, and the exits that KVM counted.
fn exits(stats: &Value) -> Option<[u64; 2]> {
    let reasons = stats["exits"].as_object()?.values();
    let all = reasons.map(Value::as_u64).sum::<Option<u64>>()?;
    Some([all, stats["kvm_exits"].as_u64()?])
}

pub fn of(daemon: &Daemon, machine: &str) -> Result<Value> {
    let path = format!("{machine}/stats");
    Ok(daemon.request("GET", &path, b"")?.expect(200)?.json())
}

/// Checks a running machine that writes now and then, and has neither network nor volumes: it has
/// made exits, and makes more.
pub fn of_running(daemon: &Daemon, machine: &str) -> Result<()> {
    let first = of(daemon, machine)?;
    let before = exits(&first).ok_or_else(|| format!("no exits: {first}"))?;
    check("exits", before[0] > 0 && before[1] > 0, &first)?;
    let grown = |stats: &Value| {
        exits(stats).is_some_and(|after| after[0] > before[0] && after[1] > before[1])
    };
    until(|| of(daemon, machine).is_ok_and(|stats| grown(&stats)))?;
    let stats = of(daemon, machine)?;
    let none = stats["exits_per_operation"].is_null() && stats["volume_requests"] == 0;
    check("no operations", none, &stats)
}

/// Checks a machine with a network or volumes, running or not: its exits, without exits that the
/// host caused, divided by packets and requests.
pub fn per_operation(stats: &Value) -> Result<()> {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let network = &stats["network"];
    let operations = [
        &network["received_packets"],
        &network["sent_packets"],
        &stats["volume_requests"],
    ];
    let operations: u64 = operations.into_iter().map(count).sum();
    let exits = count(&stats["kvm_exits"]) - count(&stats["kvm_reasons"]["irq_exits"]);
    let expected = exits as f64 / operations as f64;
    let found = stats["exits_per_operation"].as_f64();
    let close = found.is_some_and(|found| (found - expected).abs() < 1e-6 * expected);
    let right = operations > 0 && exits > 0 && close;
    check("exits per operation", right, stats)
}
