//! The thread of a pair of queues: it moves packets between the queues and the backend.

use super::backend::{Backend, Endpoint};
use super::rx::Rx;
use super::rx_buffers::RxBuffers;
use super::shared::Shared;
use super::stats::Counters;
use super::tx::Tx;
use crate::virtio::kick::Kick;
use crate::virtio::stats::count;
use crate::virtio::worker::{self, Work};
use crate::virtio::{DeviceError, Guest, feature_bit};
use hartline_abi::virtio::{MAX_FRAME, NetHeader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_GUEST_TSO4, VIRTIO_NET_F_GUEST_TSO6, VIRTIO_NET_F_GUEST_USO4,
    VIRTIO_NET_F_GUEST_USO6, VIRTIO_NET_F_MRG_RXBUF,
};
use virtio_queue::{Queue, QueueState};

/// The features with which the driver accepts packets that are larger than the MTU.
const LARGE_RX: u64 = feature_bit(VIRTIO_NET_F_GUEST_TSO4)
    | feature_bit(VIRTIO_NET_F_GUEST_TSO6)
    | feature_bit(VIRTIO_NET_F_GUEST_USO4)
    | feature_bit(VIRTIO_NET_F_GUEST_USO6);
/// Length of an Ethernet header, bytes.
const ETHERNET_HEADER: usize = 14;

/// The worker of a pair of queues.
#[derive(Debug)]
pub(super) struct Worker {
    endpoint: Endpoint,
    rx: Rx,
    tx: Tx,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    kick: Arc<Kick>,
}

impl Worker {
    /// A worker that moves packets between `backend` and an RX and a TX queue.
    pub fn new(
        backend: Box<dyn Backend>,
        [rx, tx]: [Queue; 2],
        features: u64,
        shared: Arc<Shared>,
        counters: Arc<Counters>,
        kick: Arc<Kick>,
    ) -> Self {
        let merges = features & feature_bit(VIRTIO_NET_F_MRG_RXBUF) != 0;
        let frame = match features & LARGE_RX {
            0 => usize::from(backend.mtu()) + ETHERNET_HEADER,
            _ => MAX_FRAME,
        };
        Self {
            endpoint: Endpoint {
                backend,
                is_disconnected: false,
            },
            rx: Rx::new(rx, RxBuffers::new(NetHeader::LENGTH + frame, merges)),
            tx: Tx::new(tx),
            shared,
            counters,
            kick,
        }
    }

    /// Moves packets until the kick ends the thread, or the guest breaks a ring.
    pub fn run(&mut self) {
        let kick = Arc::clone(&self.kick);
        let longest = self.shared.polling;
        if let Err(error) = worker::run(self, &kick, longest) {
            self.shared.guest.fail(error);
        }
    }

    /// The backend.
    pub fn backend(&mut self) -> &mut dyn Backend {
        &mut *self.endpoint.backend
    }

    /// The RX and the TX queue. RX buffers without a packet are available again.
    pub fn queue_states(&self) -> [QueueState; 2] {
        [self.rx.state(), self.tx.state()]
    }

    /// Drops the queues and returns the backend.
    pub fn into_backend(self) -> Box<dyn Backend> {
        self.endpoint.backend
    }

    /// Sleeps until a kick or a packet of the backend, for at most `timeout` if one is given.
    /// If `receives` is false, packets of the backend do not end the sleep.
    fn wait(&mut self, receives: bool, timeout: Option<Duration>) {
        let backend = &self.endpoint.backend;
        let (descriptor, backend_timeout) = match receives {
            true => (backend.descriptor(), backend.timeout()),
            false => (None, None),
        };
        let timeout = timeout.into_iter().chain(backend_timeout).min();
        let timeout = timeout.map(|time| Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        });
        let kick = self.kick.as_fd();
        let mut entries = [kick, descriptor.unwrap_or(kick)]
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let used = 1 + usize::from(descriptor.is_some());
        // After a signal no entry has events, and the worker processes the queues once more.
        let _ = poll(&mut entries[..used], timeout.as_ref());
        let [kicked, backend] = entries.map(|entry| entry.revents());
        if !kicked.is_empty() {
            self.kick.clear();
        }
        if backend.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
            self.endpoint.is_disconnected = true;
        }
    }
}

impl Work for Worker {
    fn guest(&self) -> &dyn Guest {
        &*self.shared.guest
    }

    fn process(&mut self) -> Result<bool, DeviceError> {
        let (endpoint, shared, counters) = (&mut self.endpoint, &*self.shared, &*self.counters);
        // RX first: the guest can work on received packets while the host transmits others.
        let received = self.rx.process(endpoint, shared, counters)?;
        let sent = self.tx.process(endpoint, shared, counters)?;
        Ok(received || sent)
    }

    fn count_poll(&self) {
        count(&self.counters.polls, 1);
    }

    fn sleep(&mut self) -> Result<(), DeviceError> {
        let memory = &self.shared.memory;
        let rx_wait = self.shared.rx_limiter.wait();
        let tx_wait = self.shared.tx_limiter.wait();
        let is_throttled = rx_wait.is_some() || tx_wait.is_some();
        count(&self.counters.throttled, is_throttled.into());
        // If the limits stop TX, packets in the ring do not keep the thread awake.
        let more = tx_wait.is_none() && self.tx.enable_notification(memory)?;
        let lacks_buffers = self.rx.lacks_buffers();
        let more = more || lacks_buffers && self.rx.enable_notification(memory)?;
        if more {
            return Ok(());
        }
        count(&self.counters.sleeps, 1);
        let receives = !lacks_buffers && !self.endpoint.is_disconnected && rx_wait.is_none();
        let timeout = rx_wait.into_iter().chain(tx_wait).min();
        self.wait(receives, timeout);
        Ok(())
    }
}
