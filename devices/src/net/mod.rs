//! The network device (virtio 1.3, section 5.1): a TAP interface of the host, and one thread
//! that moves packets between it and the rings.
//!
//! A packet is in one receive buffer: the driver gives buffers that the largest segment fits
//! into, which saves merging. What is not used of them is not touched.

mod stats;
mod tap;
mod worker;

pub use stats::{Counters, Statistics};
pub use tap::{Tap, TapError};

use crate::virtio::{Device, Guest, Memory};
use hartline_abi::virtio::{NET_TRANSMIT, NetConfig, device, net_feature};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use virtio_queue::Queue;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};
use worker::Worker;

/// What other threads tell the device's own.
#[derive(Debug)]
struct Bell {
    event: EventFd,
    stop: AtomicBool,
}

/// A network device.
#[derive(Debug)]
pub struct Net {
    config: [u8; 12],
    memory: Memory,
    guest: Arc<dyn Guest>,
    counters: Arc<Counters>,
    bell: Arc<Bell>,
    /// Longest time that the thread watches the rings before it sleeps.
    polling: Duration,
    /// None while the thread has it.
    tap: Option<Tap>,
    worker: Option<JoinHandle<Tap>>,
}

impl Net {
    /// A device with the address `mac`, whose rings and buffers are in `memory`.
    ///
    /// # Errors
    /// If the host has no event descriptor left.
    pub fn new(
        tap: Tap,
        mac: [u8; 6],
        polling: Duration,
        memory: Memory,
        guest: Arc<dyn Guest>,
    ) -> io::Result<Self> {
        let config = NetConfig {
            mac,
            status: 0,
            queue_pairs: 1,
            mtu: tap.mtu(),
        };
        Ok(Self {
            config: config.to_bytes(),
            memory,
            guest,
            counters: Arc::default(),
            bell: Arc::new(Bell {
                event: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
                stop: AtomicBool::new(false),
            }),
            polling,
            tap: Some(tap),
            worker: None,
        })
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    fn ring(&self) {
        // Fails only if the counter is at its limit: then it is signalled already.
        let _: io::Result<()> = self.bell.event.write(1);
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
        let (Some(tap), Ok([receive, transmit])) =
            (self.tap.take(), <[Queue; 2]>::try_from(queues))
        else {
            return false;
        };
        if tap.set_offloads(features).is_err() {
            self.tap = Some(tap);
            return false;
        }
        self.bell.stop.store(false, Ordering::SeqCst);
        let worker = Worker::new(
            tap,
            [receive, transmit],
            features,
            self.memory.clone(),
            Arc::clone(&self.guest),
            Arc::clone(&self.counters),
            Arc::clone(&self.bell),
            self.polling,
        );
        let thread = thread::Builder::new().name("net".into());
        self.worker = thread.spawn(move || worker.run()).ok();
        self.worker.is_some()
    }

    fn notify(&self, _: u32) {
        stats::count(&self.counters.doorbells, 1);
        self.ring();
    }

    fn reset(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.bell.stop.store(true, Ordering::SeqCst);
            self.ring();
            // After a panic there is no interface any more, and no second start.
            self.tap = worker.join().ok();
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.reset();
    }
}
