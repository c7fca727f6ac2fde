//! The virtio-vsock device: configuration space, queues and activation.

use super::backend::Host;
use super::stats::Counters;
use super::worker::Worker;
use crate::virtio::stats::count;
use crate::virtio::worker::WorkerThread;
use crate::virtio::{ActivateError, Device, Guest, Memory};
use hartline_abi::vsock::{VSOCK_EVENT, VSOCK_RECEIVE};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use virtio_bindings::virtio_ids::VIRTIO_ID_VSOCK;
use virtio_queue::Queue;

const NAME: &str = "virtio-vsock";

/// A socket device.
#[derive(Debug)]
pub struct Vsock {
    /// The guest's CID.
    config: [u8; 8],
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    /// Longest busy-poll of the thread before it sleeps.
    polling: Duration,
    /// `None` while the thread has it.
    host: Option<Host>,
    thread: WorkerThread<Host>,
}

impl Vsock {
    /// A device for a guest with this CID, whose rings and buffers are in `memory`.
    ///
    /// # Errors
    /// The host has no event descriptor left.
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
            thread: WorkerThread::new()?,
        })
    }

    /// The counters of the device.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

impl Device for Vsock {
    fn name(&self) -> &'static str {
        NAME
    }

    fn device_id(&self) -> u32 {
        VIRTIO_ID_VSOCK
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

    fn activate(&mut self, _: u64, queues: Vec<Queue>) -> Result<(), ActivateError> {
        let queues = <[Queue; 3]>::try_from(queues);
        let [rx, tx, _] = queues.map_err(|queues| ActivateError::QueueCount {
            device: NAME,
            found: queues.len(),
            expected: 3,
        })?;
        let queue = VSOCK_RECEIVE.into();
        let host = self.host.take().ok_or_else(|| ActivateError::Backend {
            device: NAME,
            queue,
            source: io::ErrorKind::NotConnected.into(),
        })?;
        let worker = Worker::new(
            host,
            u64::from_le_bytes(self.config),
            [rx, tx],
            self.memory.clone(),
            Arc::clone(&self.guest),
            Arc::clone(&self.counters),
            Arc::clone(self.thread.kick()),
        );
        let polling = self.polling;
        let started = self.thread.start("vsock", move || worker.run(polling));
        started.map_err(|source| ActivateError::Thread {
            device: NAME,
            queue,
            source,
        })
    }

    fn notify(&self, _: u32) {
        count(&self.counters.kicks, 1);
        self.thread.kick().notify();
    }

    fn reset(&mut self) {
        // After a panic the backend is lost, and the device cannot be activated again.
        if let Some(host) = self.thread.stop() {
            self.host = Some(host);
        }
    }
}
