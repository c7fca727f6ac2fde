//! Published ports of suspended machines: a client that connects resumes the machine.
//!
//! The service goes on listening. It accepts no connection until the guest runs again, so clients wait in the
//! kernel's queues, which are bounded, and nothing that they send is lost.

use super::restart::Kept;
use super::{MachineError, Machines};
use crate::network::Lease;
use crate::ports::{Claim, Held};
use crate::store::MachineState;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;

/// The time after a failure to resume a machine in which no client resumes it.
const PAUSE: Duration = Duration::from_secs(1);

/// The ports of suspended machines, by the ids of the machines.
#[derive(Debug, Default)]
pub(super) struct Asleep(Mutex<HashMap<String, Sleeper>>);

/// The ports of a suspended machine.
#[derive(Debug)]
struct Sleeper {
    ports: Claim,
    /// The task that waits for clients.
    wait: Option<Wait>,
}

/// A task that waits for clients. Dropping this ends it.
#[derive(Debug)]
struct Wait(AbortHandle);

impl Drop for Wait {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Asleep {
    /// Keeps the ports of a machine.
    pub fn put(&self, id: &str, ports: Claim) {
        let sleeper = Sleeper { ports, wait: None };
        self.lock().insert(id.to_owned(), sleeper);
    }

    /// Takes the ports of a machine that is to go on, or has ended. Nobody waits for clients any more.
    pub fn wake(&self, id: &str) -> Option<Claim> {
        Some(self.lock().remove(id)?.ports)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Sleeper>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Machines {
    /// Passes connections to the ports of a machine on to its address, from now on.
    pub(super) fn serve_ports(&self, id: &str, kept: &mut Kept, lease: Option<&Lease>) {
        if let (Some(ports), Some(lease)) = (&mut kept.ports, lease) {
            ports.serve(lease.address());
            if let Some(task) = self.lock().get_mut(id) {
                task.gate = Some(ports.gate());
            }
        }
    }

    /// Lets new clients of a running machine's ports wait until the result is dropped.
    pub(super) async fn hold_clients(&self, id: &str) -> Option<Held> {
        let gate = self.lock().get(id).and_then(|task| task.gate.clone());
        match gate {
            Some(gate) => Some(gate.hold().await),
            None => None,
        }
    }

    /// Resumes a suspended machine as soon as a client connects to one of its ports; a while later if it
    /// could not go on the last time.
    pub(super) fn await_clients(self: &Arc<Self>, id: &str, has_failed: bool) {
        if let Some(sleeper) = self.asleep.lock().get_mut(id)
            && sleeper.wait.is_none()
        {
            let client = sleeper.ports.client();
            let (machines, id) = (Arc::clone(self), id.to_owned());
            let wait = tokio::spawn(async move {
                if has_failed {
                    tokio::time::sleep(PAUSE).await;
                }
                client.await;
                tokio::task::block_in_place(|| machines.resume(&id));
            });
            sleeper.wait = Some(Wait(wait.abort_handle()));
        }
    }

    /// Resumes a machine for a client, in the task that waited for it. If that fails, the client's
    /// connection is closed, and the machine's message has the reason.
    fn resume(self: &Arc<Self>, id: &str) {
        if let Some(sleeper) = self.asleep.lock().get_mut(id) {
            // This task does not wait any more.
            sleeper.wait = None;
        }
        let started = self.store.machine(id).map_err(MachineError::from);
        let started = started.and_then(|machine| match machine {
            Some(machine) if machine.state == MachineState::Suspended => {
                tracing::info!(machine = %id, "a client resumes it");
                self.start(&machine).map(drop)
            }
            // Somebody else has resumed, ended or deleted it.
            _ => Ok(()),
        });
        if let Err(error) = started {
            tracing::warn!(machine = %id, "a client does not resume it: {error}");
            if let Some(sleeper) = self.asleep.lock().get(id) {
                sleeper.ports.close_clients();
            }
        }
        // If it is still suspended.
        self.await_clients(id, true);
    }
}
