//! The thread of a console: it writes the bytes of the TX queues to the outputs.

use super::backend::Output;
use super::shared::Shared;
use crate::virtio::stats::count;
use crate::virtio::worker::{self, Work};
use crate::virtio::{
    Buffers, DeviceError, Direction, Guest, MAX_BUFFERS, Memory, add_used, enable_notification,
    next_chain, notify_used,
};
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use virtio_queue::Queue;

/// Longest busy-poll of the thread before it sleeps.
const POLLING: Duration = Duration::from_micros(200);
/// Number of buffers, and of chains, at which a batch is full.
const BATCH: usize = MAX_BUFFERS;
/// Longest chain, bytes. It limits the bytes that remain when a VM ends.
const MAX_LENGTH: usize = 1 << 20;

/// The worker of a console.
pub(super) struct Worker {
    shared: Arc<Shared>,
    /// By port.
    outputs: Vec<Output>,
}

/// Chains that were taken from a queue.
#[derive(Default)]
struct Batch {
    heads: Vec<u16>,
    buffers: Buffers,
    length: usize,
}

impl Batch {
    /// Takes available chains of a queue until the batch is full.
    fn take(queue: &mut Queue, memory: &Memory) -> Result<Self, DeviceError> {
        let mut batch = Self::default();
        while batch.buffers.count() < BATCH
            && batch.heads.len() < BATCH
            && let Some(chain) = next_chain(queue, memory, Direction::Read)?
        {
            if chain.length > MAX_LENGTH {
                return Err(DeviceError::Buffer);
            }
            batch.heads.push(chain.head);
            batch.buffers.extend(chain.buffers);
            batch.length += chain.length;
        }
        Ok(batch)
    }
}

impl Worker {
    /// A worker that writes to these outputs, one for each port.
    pub fn new(shared: Arc<Shared>, outputs: Vec<Output>) -> Self {
        Self { shared, outputs }
    }

    /// Writes the guest's bytes until the VM has ended. If the guest breaks a queue, no bytes come until the
    /// device is activated again.
    pub fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let _ending = Ending(&shared);
        loop {
            let result = worker::run(&mut self, &shared.kick, POLLING).and_then(|()| self.drain());
            let mut state = shared.lock();
            if let Err(error) = result {
                (state.queues, state.broken) = (None, Some(error));
            }
            if state.stop {
                state.ended = Some(state.broken.map_or(Ok(()), Err));
            }
            let has_ended = state.ended.is_some();
            drop(state);
            if let Err(error) = result {
                shared.changed.notify_all();
                shared.guest.fail(error);
            }
            if has_ended {
                return;
            }
        }
    }

    /// Writes the remaining bytes.
    fn drain(&mut self) -> Result<(), DeviceError> {
        while self.process()? {}
        Ok(())
    }

    /// Writes a batch of a port. Returns whether there was one.
    fn write_batch(&mut self, number: u32) -> Result<bool, DeviceError> {
        let port = number as usize;
        let Shared {
            memory,
            counters,
            guest,
            ..
        } = &*self.shared;
        let (batch, resets) = {
            let mut state = self.shared.lock();
            if let Some(outputs) = state.next_outputs.take() {
                self.outputs = outputs;
                self.shared.changed.notify_all();
            }
            let resets = state.resets;
            let Some(queues) = &mut state.queues else {
                return Ok(false);
            };
            (Batch::take(&mut queues.tx[port], memory)?, resets)
        };
        if batch.heads.is_empty() {
            return Ok(false);
        }
        // There are fewer buffers than BATCH and MAX_BUFFERS together.
        let is_open = self.outputs[port].write(batch.buffers);
        count(&counters.sent_buffers, batch.heads.len() as u64);
        count(&counters.sent_bytes, batch.length as u64);
        let mut state = self.shared.lock();
        let was_open = !mem::replace(&mut state.closed[port], !is_open);
        let is_current = state.resets == resets;
        let Some(queues) = state.queues.as_mut().filter(|_| is_current) else {
            return Ok(true);
        };
        if was_open && !is_open {
            // Before the chains become used, so that the driver knows it when it sees them.
            queues.controls.close(number);
            self.shared.serve_controls(&mut state)?;
        }
        let Some(queues) = &mut state.queues else {
            return Ok(true);
        };
        let queue = &mut queues.tx[port];
        for head in batch.heads {
            add_used(queue, memory, head, 0)?;
        }
        if notify_used(queue, memory, &**guest)? {
            count(&counters.interrupts, 1);
        }
        Ok(true)
    }

    /// Reports that all bytes of this many flush requests are written.
    fn set_flushed(&self, requests: u64) {
        let mut state = self.shared.lock();
        if state.flushed != requests {
            state.flushed = requests;
            self.shared.changed.notify_all();
        }
    }
}

impl Work for Worker {
    fn guest(&self) -> &dyn Guest {
        &*self.shared.guest
    }

    fn process(&mut self) -> Result<bool, DeviceError> {
        // Flush requests from before this call are complete if the queues are empty now.
        let requests = self.shared.lock().flush_requests;
        let mut any = false;
        for port in self.shared.port_numbers() {
            any |= self.write_batch(port.into())?;
        }
        if !any {
            self.set_flushed(requests);
        }
        Ok(any)
    }

    fn count_poll(&self) {
        count(&self.shared.counters.polls, 1);
    }

    fn sleep(&mut self) -> Result<(), DeviceError> {
        let mut state = self.shared.lock();
        let queues = state.queues.iter_mut();
        for queue in queues.flat_map(|queues| &mut queues.tx) {
            if enable_notification(queue, &self.shared.memory)? {
                return Ok(());
            }
        }
        drop(state);
        count(&self.shared.counters.sleeps, 1);
        self.shared.kick.wait(None);
        Ok(())
    }
}

/// Reports the end of the thread to waiting callers, also after a panic.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.lock().ended.get_or_insert(Ok(()));
        self.0.changed.notify_all();
    }
}
