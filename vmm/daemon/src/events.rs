//! State changes of machines, for subscribers.

use super::store::{Machine, MachineState, now_ms};
use serde::Serialize;
use tokio::sync::broadcast;

/// Events that a slow reader may lag behind before it misses some.
const BEHIND: usize = 4096;

/// A machine has a new state.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Event {
    /// The machine's tenant.
    #[serde(skip)]
    pub tenant: String,
    /// Its id.
    pub machine: String,
    /// The state.
    pub state: MachineState,
    /// Time of the change, milliseconds since 1970.
    pub time_ms: i64,
}

/// All events. Clones are the same.
#[derive(Debug, Clone)]
pub struct Events(broadcast::Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(BEHIND))
    }
}

impl Events {
    /// Publishes a machine's state to all subscribers.
    pub fn publish(&self, machine: &Machine) {
        let event = Event {
            tenant: machine.tenant.clone(),
            machine: machine.id.clone(),
            state: machine.state,
            time_ms: now_ms(),
        };
        // It is no error if there are no subscribers.
        let _ = self.0.send(event);
    }

    /// Subscribes to the events from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}
