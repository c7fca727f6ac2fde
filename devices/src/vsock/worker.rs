//! The thread of a socket device: it moves packets between the queues and the connections.

use super::backend::Host;
use super::connections::Connections;
use super::rx::Rx;
use super::stats::Counters;
use super::tx::{BATCH, Tx};
use crate::virtio::kick::Kick;
use crate::virtio::stats::count;
use crate::virtio::worker::{self, Work};
use crate::virtio::{DeviceError, Guest, MAX_QUEUE_SIZE, Memory};
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::Arc;
use std::time::{Duration, Instant};
use virtio_queue::Queue;

/// Time within which the host must take the guest's last bytes after the end of the VM.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The worker of a socket device.
pub(super) struct Worker {
    pub(super) connections: Connections,
    rx: Rx,
    tx: Tx,
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    kick: Arc<Kick>,
}

impl Worker {
    /// A worker that serves an RX and a TX queue.
    pub fn new(
        host: Host,
        cid: u64,
        [rx, tx]: [Queue; 2],
        memory: Memory,
        guest: Arc<dyn Guest>,
        counters: Arc<Counters>,
        kick: Arc<Kick>,
    ) -> Self {
        Self {
            connections: Connections::new(host, cid, Arc::clone(&counters)),
            rx: Rx::new(rx),
            tx: Tx::new(tx),
            memory,
            guest,
            counters,
            kick,
        }
    }

    /// Moves packets until the device is reset, or the guest breaks a ring. Returns the backend,
    /// without connections.
    pub fn run(mut self, polling: Duration) -> Host {
        let kick = Arc::clone(&self.kick);
        // Bytes that the guest has sent before its end still reach the host.
        let result = worker::run(&mut self, &kick, polling).and_then(|()| self.drain());
        if let Err(error) = result {
            self.guest.fail(error);
        }
        self.connections.into_host()
    }

    /// Handles the last packets of the guest, and waits for the host to take their bytes.
    fn drain(&mut self) -> Result<(), DeviceError> {
        // No more than the ring has room for, so a guest that keeps sending cannot delay the end.
        for _ in 0..usize::from(MAX_QUEUE_SIZE) / BATCH {
            // The guest no longer receives replies.
            self.connections.clear_replies();
            self.transmit()?;
        }
        let end = Instant::now() + DRAIN_TIMEOUT;
        while self.connections.is_behind() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.connections.poll(left);
        }
        Ok(())
    }

    fn transmit(&mut self) -> Result<bool, DeviceError> {
        let parts = (&self.memory, &*self.guest);
        self.tx
            .process(&mut self.connections, parts, &self.counters)
    }

    fn receive(&mut self) -> Result<bool, DeviceError> {
        let parts = (&self.memory, &*self.guest);
        self.rx
            .process(&mut self.connections, parts, &self.counters)
    }
}

impl Work for Worker {
    fn guest(&self) -> &dyn Guest {
        &*self.guest
    }

    fn process(&mut self) -> Result<bool, DeviceError> {
        let sent = self.transmit()?;
        let polled = self.connections.poll(Duration::ZERO);
        let received = self.receive()?;
        Ok(sent || polled || received)
    }

    fn count_poll(&self) {
        count(&self.counters.polls, 1);
    }

    fn sleep(&mut self) -> Result<(), DeviceError> {
        // Without room for replies, packets in the TX ring do not keep the thread awake.
        let has_room = self.connections.has_room();
        let more = has_room && self.tx.enable_notification(&self.memory)?;
        let more = more || self.rx.lacks_buffers() && self.rx.enable_notification(&self.memory)?;
        if more {
            return Ok(());
        }
        count(&self.counters.sleeps, 1);
        let host = self.connections.host();
        let mut entries = [
            PollFd::new(&*self.kick, PollFlags::IN),
            PollFd::new(host, PollFlags::IN),
        ];
        // After a signal no entry has events, and the worker processes the queues once more.
        let _ = poll(&mut entries, None);
        if !entries[0].revents().is_empty() {
            self.kick.clear();
        }
        Ok(())
    }
}
