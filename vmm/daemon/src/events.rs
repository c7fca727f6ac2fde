//! State changes of machines, for subscribers.

use super::store::{Machine, MachineState, now_ms};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// Events of its tenant that a slow reader may lag behind before it misses some.
const BEHIND: usize = 1024;

/// A machine has a new state.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Event {
    /// Its id.
    pub machine: String,
    /// The state.
    pub state: MachineState,
    /// Time of the change, milliseconds since 1970.
    pub time_ms: i64,
}

/// The events of all tenants, each with a channel of its own: the machines of one tenant make no
/// reader of another one miss events. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Events(Arc<Mutex<HashMap<String, broadcast::Sender<Event>>>>);

impl Events {
    /// Publishes a machine's state to the subscribers of its tenant.
    pub fn publish(&self, machine: &Machine) {
        let event = Event {
            machine: machine.id.clone(),
            state: machine.state,
            time_ms: now_ms(),
        };
        let mut channels = self.lock();
        if let Some(channel) = channels.get(&machine.tenant)
            && channel.send(event).is_err()
        {
            // There is no subscriber any more.
            channels.remove(&machine.tenant);
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
        assert_eq!(second.try_recv().unwrap().machine, "machine of second");
        assert_eq!(second.try_recv().unwrap_err(), TryRecvError::Empty);
        drop((first, second));
        events.publish(&machine("first"));
        assert_eq!(events.lock().len(), 1, "nobody reads the first");
    }
}
