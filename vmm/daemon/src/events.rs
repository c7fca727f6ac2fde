//! State changes of machines and snapshots, for subscribers.

use super::store::{KeptSnapshot, Machine, MachineState, now_ms};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// Events of its tenant that a slow reader may lag behind before it misses some.
const BEHIND: usize = 1024;

/// A state change. Its kind is the name of the server-sent event.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Event {
    /// Of a machine or a kept run (`machine`).
    Machine(MachineEvent),
    /// Of a snapshot (`snapshot`).
    Snapshot(SnapshotEvent),
}

impl Event {
    /// The name of the server-sent event.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Machine(_) => "machine",
            Self::Snapshot(_) => "snapshot",
        }
    }

    /// Whether a machine has a new state.
    #[must_use]
    pub fn is_of_machine(&self, id: &str) -> bool {
        matches!(self, Self::Machine(event) if event.machine == id)
    }
}

/// A machine has a new state.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct MachineEvent {
    /// Its id.
    pub machine: String,
    /// The state.
    pub state: MachineState,
    /// Time of the change, milliseconds since 1970.
    pub time_ms: i64,
}

/// The state of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotState {
    /// It is complete.
    Created,
    /// It could not be made, and nothing of it is left.
    Failed,
    /// It was deleted.
    Deleted,
}

/// A snapshot has a new state.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct SnapshotEvent {
    /// Its id.
    pub snapshot: String,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Id of the machine that it was made of, which may be gone.
    pub machine: String,
    /// The state.
    pub state: SnapshotState,
    /// Why it failed, or why the daemon deleted it without a request.
    pub reason: Option<String>,
    /// Time of the change, milliseconds since 1970.
    pub time_ms: i64,
}

impl SnapshotEvent {
    /// A snapshot has a new state now.
    #[must_use]
    pub fn new(snapshot: &KeptSnapshot, state: SnapshotState, reason: Option<String>) -> Self {
        Self {
            snapshot: snapshot.id.clone(),
            name: snapshot.name.clone(),
            machine: snapshot.machine.clone(),
            state,
            reason,
            time_ms: now_ms(),
        }
    }
}

/// The events of all tenants, each with a channel of its own: the machines of one tenant make no
/// reader of another one miss events. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Events(Arc<Mutex<HashMap<String, broadcast::Sender<Event>>>>);

impl Events {
    /// Publishes a machine's state to the subscribers of its tenant.
    pub fn publish(&self, machine: &Machine) {
        let event = MachineEvent {
            machine: machine.id.clone(),
            state: machine.state,
            time_ms: now_ms(),
        };
        self.send(&machine.tenant, Event::Machine(event));
    }

    /// Publishes a snapshot's state to the subscribers of its tenant.
    pub fn publish_snapshot(&self, tenant: &str, event: SnapshotEvent) {
        self.send(tenant, Event::Snapshot(event));
    }

    fn send(&self, tenant: &str, event: Event) {
        let mut channels = self.lock();
        if let Some(channel) = channels.get(tenant)
            && channel.send(event).is_err()
        {
            // There is no subscriber any more.
            channels.remove(tenant);
        }
    }

    /// Subscribes to the events of a tenant from now on.
    #[must_use]
    pub fn subscribe(&self, tenant: &str) -> broadcast::Receiver<Event> {
        let mut channels = self.lock();
        let channel = channels.entry(tenant.to_owned());
        channel
            .or_insert_with(|| broadcast::Sender::new(BEHIND))
            .subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, broadcast::Sender<Event>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing;
    use tokio::sync::broadcast::error::TryRecvError;

    fn machine(tenant: &str) -> Machine {
        let id = format!("machine of {tenant}");
        testing::machine(&id, tenant, serde_json::json!({ "program": "a" }))
    }

    #[test]
    fn readers_miss_only_events_of_their_tenant() {
        let events = Events::default();
        let (mut first, mut second) = (events.subscribe("first"), events.subscribe("second"));
        events.publish(&machine("second"));
        (0..BEHIND + 7).for_each(|_| events.publish(&machine("first")));
        assert_eq!(first.try_recv().unwrap_err(), TryRecvError::Lagged(7));
        let received = second.try_recv().unwrap();
        assert!(received.is_of_machine("machine of second"));
        assert_eq!(second.try_recv().unwrap_err(), TryRecvError::Empty);
        drop((first, second));
        events.publish(&machine("first"));
        assert_eq!(events.lock().len(), 1, "nobody reads the first");
    }
}
