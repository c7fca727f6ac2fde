//! Machines for unit tests.

use super::{Kind, Machine, MachineState};

/// A running machine `id` of a tenant, without a process.
///
/// # Panics
/// `spec` is no spec.
pub(crate) fn machine(id: &str, tenant: &str, spec: serde_json::Value) -> Machine {
    Machine {
        id: id.to_owned(),
        name: None,
        tenant: tenant.to_owned(),
        kind: Kind::Machine,
        spec: serde_json::from_value(spec).unwrap(),
        state: MachineState::Running,
        process: None,
        address: None,
        processors: Vec::new(),
        stopped: false,
        killed: false,
        restarts: 0,
        result: None,
        message: String::new(),
        created_ms: 0,
        started_ms: None,
        ended_ms: None,
        suspended: None,
        ran_ms: 0,
        entered_ms: None,
    }
}
