//! What other threads want from the vCPU thread.

use crate::platform::{self, Kicker};
use hartline_devices::console::RingError;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Whether the guest wants attention from time to time, and whether it waits.
    ticking: AtomicBool,
    idle: AtomicBool,
    /// The watching thread sleeps although the guest wants ticks, since that waits.
    asleep: AtomicBool,
    busy: EventFd,
}

impl Control {
    /// Nothing is wanted yet.
    ///
    /// # Errors
    /// If the host has no event descriptor left.
    pub fn new() -> Result<Self, platform::Error> {
        let event = || {
            EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map_err(|source| platform::Error::Request {
                request: "eventfd",
                source,
            })
        };
        Ok(Self {
            stop: OnceLock::new(),
            kicker: Arc::default(),
            wake: event()?,
            ticking: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            busy: event()?,
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

    /// The guest has more than one task: it is to be asked to look from time to time.
    pub fn start_ticking(&self) {
        self.ticking.store(true, Ordering::SeqCst);
        self.rouse();
    }

    /// The guest waits in a host call, or goes on.
    pub fn set_idle(&self, idle: bool) {
        self.idle.store(idle, Ordering::SeqCst);
        if !idle && self.ticking.load(Ordering::SeqCst) {
            self.rouse();
        }
    }

    fn rouse(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            // As in `wake`.
            let _: io::Result<()> = self.busy.write(1);
        }
    }

    /// Whether the watching thread has to tick. If not it may sleep until
    /// [`Control::busy_event`] is readable.
    #[must_use]
    pub fn ticks(&self) -> bool {
        // Noted before looking: whoever changes what is looked at rouses the sleeper.
        self.asleep.store(true, Ordering::SeqCst);
        let ticks = self.ticking.load(Ordering::SeqCst) && !self.idle.load(Ordering::SeqCst);
        if ticks {
            self.asleep.store(false, Ordering::SeqCst);
        }
        ticks
    }

    /// Readable when [`Control::ticks`] may have changed, until it is read.
    #[must_use]
    pub fn busy_event(&self) -> &EventFd {
        &self.busy
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
