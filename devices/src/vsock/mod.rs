//! The socket device (virtio 1.3, section 5.10): streams between the guest and programs of the
//! host, which are at Unix sockets ([`Host`]), and one thread that carries them. Ports of the
//! guest and of the host are separate: CID 2 is the host's, and there is nobody else.

mod connection;
mod host;
mod stats;
#[cfg(test)]
mod tests;
mod worker;

pub use host::{Host, HostError};
pub use stats::{Counters, Statistics};

use crate::virtio::stats::count;
use crate::virtio::worker::Thread;
use crate::virtio::{Device, Guest, Memory};
use hartline_abi::virtio::device;
use hartline_abi::vsock::VSOCK_EVENT;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use virtio_queue::Queue;
use worker::Worker;

/// A socket device.
#[derive(Debug)]
pub struct Vsock {
    /// The guest's CID.
    config: [u8; 8],
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    /// Longest time that the thread watches the rings before it sleeps.
    polling: Duration,
    /// None while the thread has it.
    host: Option<Host>,
    thread: Thread<Host>,
}

impl Vsock {
    /// A device for a guest with this CID, whose rings and buffers are in `memory`.
    ///
    /// # Errors
    /// If the host has no event descriptor left.
    pub fn new(
        host: Host,
        cid: u32,
        polling: Duration,
        memory: Memory,
        guest: Arc<dyn Guest>,
    ) -> io::Result<Self> {
        Ok(Self {
            config: u64::from(cid).to_le_bytes(),
            memory,
            guest,
            counters: Arc::default(),
            polling,
            host: Some(host),
            thread: Thread::new()?,
        })
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

impl Device for Vsock {
    fn kind(&self) -> u32 {
        device::VSOCK
    }

    fn features(&self) -> u64 {
        // Streams need none.
        0
    }

    fn queues(&self) -> usize {
        usize::from(VSOCK_EVENT) + 1
    }

    fn config(&self) -> &[u8] {
        &self.config
    }

    fn activate(&mut self, _: u64, queues: Vec<Queue>) -> bool {
        let (Some(host), Ok([receive, transmit, _])) =
            (self.host.take(), <[Queue; 3]>::try_from(queues))
        else {
            return false;
        };
        let worker = Worker::new(
            host,
            u64::from_le_bytes(self.config),
            [receive, transmit],
            self.memory.clone(),
            Arc::clone(&self.guest),
            Arc::clone(&self.counters),
            Arc::clone(self.thread.bell()),
        );
        let polling = self.polling;
        self.thread.start("vsock", move || worker.run(polling))
    }

    fn notify(&self, _: u32) {
        count(&self.counters.doorbells, 1);
        self.thread.bell().ring();
    }

    fn reset(&mut self) {
        // After a panic there is no host's side any more, and no second start.
        if let Some(host) = self.thread.stop() {
            self.host = Some(host);
        }
    }
}
