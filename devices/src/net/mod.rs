//! The network device (virtio 1.3, section 5.1): a [`Backend`], which is a TAP interface of the
//! host or a network that ends in this process, and one thread that moves packets between it
//! and the rings.
//!
//! A packet is in one receive buffer: the driver gives buffers that the largest segment fits
//! into, which saves merging. What is not used of them is not touched.

mod backend;
mod stats;
mod tap;
pub mod user;
mod worker;

pub use backend::Backend;
pub use stats::{Counters, Statistics};
pub use tap::{Tap, TapError};

use crate::limiter::Limits;
use crate::virtio::stats::count;
use crate::virtio::worker::Bell;
use crate::virtio::{Device, Guest, Memory};
use hartline_abi::virtio::{NET_TRANSMIT, NetConfig, device, net_feature};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use virtio_queue::Queue;
use worker::Worker;

/// Called on the thread of a device before that does anything.
pub type Begin = Arc<dyn Fn() + Send + Sync>;

/// A network device.
pub struct Net {
    config: [u8; 12],
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    bell: Arc<Bell>,
    /// Longest time that the thread watches the rings before it sleeps.
    polling: Duration,
    limits: Arc<Limits>,
    begin: Begin,
    /// None while the thread has it.
    backend: Option<Box<dyn Backend>>,
    worker: Option<JoinHandle<Box<dyn Backend>>>,
}

impl Net {
    /// A device with the address `mac`, whose rings and buffers are in `memory`. `limits` hold
    /// for each direction, and may be changed at any time. Its thread calls `begin` first.
    ///
    /// # Errors
    /// If the host has no event descriptor left.
    pub fn new(
        backend: Box<dyn Backend>,
        mac: [u8; 6],
        polling: Duration,
        limits: Arc<Limits>,
        begin: Begin,
        (memory, guest): (Memory, Arc<dyn Guest>),
    ) -> io::Result<Self> {
        let config = NetConfig {
            mac,
            status: 0,
            queue_pairs: 1,
            mtu: backend.mtu(),
        };
        Ok(Self {
            config: config.to_bytes(),
            memory,
            guest,
            counters: Arc::default(),
            bell: Arc::new(Bell::new()?),
            polling,
            limits,
            begin,
            backend: Some(backend),
            worker: None,
        })
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

impl Device for Net {
    fn kind(&self) -> u32 {
        device::NET
    }

    fn features(&self) -> u64 {
        net_feature::CHECKSUM
            | net_feature::GUEST_CHECKSUM
            | net_feature::MTU
            | net_feature::MAC
            | net_feature::GUEST_TSO4
            | net_feature::GUEST_TSO6
            | net_feature::HOST_TSO4
            | net_feature::HOST_TSO6
    }

    fn queues(&self) -> usize {
        usize::from(NET_TRANSMIT) + 1
    }

    fn config(&self) -> &[u8] {
        &self.config
    }

    fn activate(&mut self, features: u64, queues: Vec<Queue>) -> bool {
        let (Some(mut backend), Ok([receive, transmit])) =
            (self.backend.take(), <[Queue; 2]>::try_from(queues))
        else {
            return false;
        };
        if backend.set_offloads(features).is_err() {
            self.backend = Some(backend);
            return false;
        }
        self.bell.stop(false);
        let worker = Worker::new(
            backend,
            [receive, transmit],
            features,
            self.memory.clone(),
            Arc::clone(&self.guest),
            Arc::clone(&self.counters),
            Arc::clone(&self.bell),
            self.polling,
            Arc::clone(&self.limits),
        );
        let thread = thread::Builder::new().name("net".into());
        let begin = Arc::clone(&self.begin);
        let run = move || {
            begin();
            worker.run()
        };
        self.worker = thread.spawn(run).ok();
        self.worker.is_some()
    }

    fn notify(&self, _: u32) {
        count(&self.counters.doorbells, 1);
        self.bell.ring();
    }

    fn reset(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.bell.stop(true);
            // After a panic there is no backend any more, and no second start.
            self.backend = worker.join().ok();
        }
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Net");
        shown
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.reset();
    }
}
