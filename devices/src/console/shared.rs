//! The state that the console's thread, the vCPU threads and the VMM share.

use super::backend::Output;
use super::control::Controls;
use super::ports::Port;
use super::stats::Counters;
use crate::virtio::kick::Kick;
use crate::virtio::stats::count;
use crate::virtio::{DeviceError, Guest, Memory};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use virtio_queue::Queue;

/// The state that the console's thread, the vCPU threads and the VMM share.
#[derive(Debug)]
pub(super) struct Shared {
    pub ports: Vec<Port>,
    pub memory: Memory,
    pub guest: Arc<dyn Guest>,
    pub counters: Arc<Counters>,
    pub kick: Kick,
    pub state: Mutex<State>,
    pub changed: Condvar,
}

/// The part of the state that changes.
#[derive(Debug)]
pub(super) struct State {
    /// `None` while the device is reset or has stopped.
    pub queues: Option<Queues>,
    /// Number of resets. Chains that were taken before a reset are not returned after it.
    pub resets: u64,
    /// The ports whose descriptors accept no more bytes.
    pub closed: Vec<bool>,
    /// The outputs that the thread uses from its next write on.
    pub next_outputs: Option<Vec<Output>>,
    /// Number of flush requests. After the bytes that were sent before one are written, `flushed`
    /// has its number.
    pub flush_requests: u64,
    pub flushed: u64,
    /// The VM has ended: the thread writes the remaining bytes and ends.
    pub stop: bool,
    /// The guest broke a queue since the device was activated.
    pub broken: Option<DeviceError>,
    /// The result of the thread after its end.
    pub ended: Option<Result<(), DeviceError>>,
}

/// The queues of an active device.
#[derive(Debug)]
pub(super) struct Queues {
    pub controls: Controls,
    /// TX queues, by port.
    pub tx: Vec<Queue>,
}

impl Shared {
    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers of the ports, of which there are at most [`STREAMS`](hartline_abi::console::STREAMS).
    pub fn port_numbers(&self) -> Range<u16> {
        0..u16::try_from(self.ports.len()).unwrap_or(u16::MAX)
    }

    /// Waits until the state changes, for at most `time`.
    pub fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        let result = self.changed.wait_timeout(state, time);
        result.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Serves the control queues.
    ///
    /// # Errors
    /// The guest broke a queue.
    pub fn serve_controls(&self, state: &mut State) -> Result<(), DeviceError> {
        let Some(queues) = &mut state.queues else {
            return Ok(());
        };
        let ports = (&self.ports[..], &state.closed[..]);
        let interrupts = queues.controls.serve(&self.memory, &*self.guest, ports)?;
        count(&self.counters.interrupts, interrupts);
        Ok(())
    }
}
