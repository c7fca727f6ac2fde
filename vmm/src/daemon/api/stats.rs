//! What machines use.

use super::extract::Target;
use super::lookup::find;
use crate::daemon::problem::Problem;
use crate::daemon::store::Kind;
use crate::jailed::protocol::{Exits, Traffic};
use serde::Serialize;
use std::fs;

/// What a machine uses, or used.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub struct Stats {
    /// Processor time of the running VMM, milliseconds.
    cpu_ms: Option<u64>,
    /// Memory of the running VMM, with the guest's, bytes.
    memory: Option<u64>,
    /// Milliseconds from the start until the program was entered, once it has ended.
    boot_ms: Option<f64>,
    /// Milliseconds that the program ran, once it has ended.
    run_ms: Option<f64>,
    /// Exits of its vCPUs to the VMM, once it has ended.
    exits: Option<Exits>,
    /// Exits that KVM counted, once it has ended.
    kvm_exits: Option<u64>,
    /// What went over its network interface, if it has one.
    network: Option<Traffic>,
}

/// What a machine uses while it runs, and used when it has ended
#[utoipa::path(get, path = "/v1/machines/{id}/stats", params(("id" = String, Path)),
    responses((status = 200, body = Stats),
    (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub async fn stats(target: Target) -> Result<axum::Json<Stats>, Problem> {
    let machine = find(&target, Kind::Machine)?;
    let mut stats = Stats::default();
    if let Some((cpu_ms, memory)) = target.daemon.machines.pid(&target.id).and_then(usage) {
        (stats.cpu_ms, stats.memory) = (Some(cpu_ms), Some(memory));
    }
    if let Some(address) = machine.address.filter(|_| machine.state.has_started()) {
        let networks = &target.daemon.networks;
        let traffic = || networks.traffic(&target.caller.tenant, address);
        stats.network = tokio::task::block_in_place(traffic);
    }
    if let Some(result) = machine.result {
        let milliseconds = |us: u64| Some(us as f64 / 1000.0);
        stats.boot_ms = milliseconds(result.boot_us);
        stats.run_ms = milliseconds(result.run_us);
        stats.exits = Some(result.exits);
        stats.kvm_exits = result.kvm_exits;
        stats.network = result.network;
    }
    Ok(axum::Json(stats))
}

/// Processor time in milliseconds and resident memory in bytes of a process (proc(5)).
fn usage(pid: i32) -> Option<(u64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<u64> = fields
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    // SAFETY: no memory is involved.
    let (ticks, page) = unsafe {
        (
            libc::sysconf(libc::_SC_CLK_TCK),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    let (ticks, page) = (u64::try_from(ticks).ok()?, u64::try_from(page).ok()?);
    let time = fields.get(11)? + fields.get(12)?;
    Some((time * 1000 / ticks.max(1), fields.get(21)? * page))
}
