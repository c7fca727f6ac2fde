//! Resource use of machines.

use super::Refused;
use super::extract::Target;
use super::lookup::find;
use crate::jailed::protocol::{Exits, KvmReasons, Traffic};
use crate::machines::usage;
use crate::problem::Problem;
use crate::store::Kind;
use hartline_vmm::live::exits_per_operation;
use serde::Serialize;

/// Resources that a machine uses or used.
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
    /// Exits of its vCPUs to the VMM, by reason.
    exits: Option<Exits>,
    /// Exits of its vCPUs that KVM counted, also those that the VMM did not see.
    kvm_exits: Option<u64>,
    /// Reasons of the exits that KVM counted. One exit may count for two reasons, or for none of
    /// these.
    kvm_reasons: Option<KvmReasons>,
    /// Traffic of its network interface, if it has one.
    network: Option<Traffic>,
    /// Requests of the machine to its volumes.
    volume_requests: Option<u64>,
    /// `kvm_exits` without those for interrupts of the host (`irq_exits`), divided by
    /// operations: packets that it received and sent, and requests to its volumes. Null if there
    /// was no operation.
    exits_per_operation: Option<f64>,
}

impl Stats {
    /// Divides exits by operations.
    fn divide(&mut self) {
        let packets = |traffic: Traffic| {
            let (received, sent) = (traffic.received_packets, traffic.sent_packets);
            received.saturating_add(sent)
        };
        let packets = self.network.map_or(0, packets);
        let operations = packets.saturating_add(self.volume_requests.unwrap_or(0));
        if let (Some(exits), Some(reasons)) = (self.kvm_exits, self.kvm_reasons) {
            self.exits_per_operation = exits_per_operation(exits, reasons.irq_exits, operations);
        }
    }
}

/// Get the resources that a machine uses, or has used if it has ended
#[utoipa::path(get, path = "/v1/machines/{id}/stats",
    operation_id = "get_machine_stats", params(("id" = String, Path)),
    responses((status = 200, description = "The statistics", body = Stats), Refused))]
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
    let live = || target.daemon.machines.live(&machine);
    if let Some((live, kvm)) = tokio::task::block_in_place(live) {
        stats.exits = Some(live.exits.into());
        stats.kvm_exits = kvm.as_ref().map(|kvm| kvm.get("exits"));
        stats.kvm_reasons = kvm.as_ref().map(KvmReasons::from);
        stats.volume_requests = Some(live.volume_requests);
    }
    if let Some(result) = machine.result {
        let milliseconds = |us: u64| Some(us as f64 / 1000.0);
        stats.boot_ms = milliseconds(result.boot_us);
        stats.run_ms = milliseconds(result.run_us);
        stats.exits = Some(result.exits);
        stats.kvm_exits = result.kvm_exits;
        stats.kvm_reasons = result.kvm_reasons;
        stats.network = result.network;
        stats.volume_requests = Some(result.volume_requests);
    }
    stats.divide();
    Ok(axum::Json(stats))
}
