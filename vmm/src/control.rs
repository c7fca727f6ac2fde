//! What other threads want from the vCPU thread.

use crate::platform::{self, Kicker};
use hartline_devices::console::RingError;
use std::io;
use std::sync::{Arc, OnceLock};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Why a VM was stopped from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The time given with `--timeout` is over.
    Timeout,
    /// This signal was sent to the VMM, and the program did not end by it.
    Signal(i32),
    /// The guest broke its console ring.
    Console(RingError),
}

/// Ends the vCPU thread's run of the guest, or its waiting in a host call.
#[derive(Debug)]
pub struct Control {
    stop: OnceLock<Stop>,
    kicker: Arc<Kicker>,
    wake: EventFd,
}

impl Control {
    /// Nothing is wanted yet.
    ///
    /// # Errors
    /// If the host has no event descriptor left.
    pub fn new() -> Result<Self, platform::Error> {
        let wake = EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map_err(|source| {
            platform::Error::Request {
                request: "eventfd",
                source,
            }
        })?;
        Ok(Self {
            stop: OnceLock::new(),
            kicker: Arc::default(),
            wake,
        })
    }

    /// The vCPU thread is to end. The first reason counts.
    pub fn stop(&self, reason: Stop) {
        // A second reason changes nothing.
        let _ = self.stop.set(reason);
        self.kicker.kick();
        self.wake();
    }

    /// Makes a waiting host call look for signals and for [`Control::stopped`].
    pub fn wake(&self) {
        // Fails only if the counter is at its limit: then it is signalled already.
        let _: io::Result<()> = self.wake.write(1);
    }

    /// Whether and why the vCPU thread is to end.
    #[must_use]
    pub fn stopped(&self) -> Option<Stop> {
        self.stop.get().copied()
    }

    /// For the vCPU.
    #[must_use]
    pub fn kicker(&self) -> Arc<Kicker> {
        Arc::clone(&self.kicker)
    }

    /// Readable after [`Control::wake`] or [`Control::stop`], until it is read.
    #[must_use]
    pub fn wake_event(&self) -> &EventFd {
        &self.wake
    }
}
