//! What other threads want from the vCPU threads.

use crate::platform::{self, Kicker};
use hartline_devices::console::RingError;
use hartline_devices::virtio::DeviceError;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    /// The thread that serves the volumes ended: a mistake of the VMM.
    Volumes,
    /// The guest broke a ring of a device.
    Device(DeviceError),
}

/// Ends the vCPU threads' runs of the guest, or their waiting in host calls.
#[derive(Debug)]
pub struct Control {
    stop: OnceLock<Stop>,
    /// The guest has ended by itself.
    ended: AtomicBool,
    vcpus: Vec<(Arc<Kicker>, EventFd)>,
    /// Whether the guest wants attention from time to time, and how many vCPUs wait.
    ticking: AtomicBool,
    idle: AtomicUsize,
    /// The watching thread sleeps although the guest wants ticks, since that waits.
    asleep: AtomicBool,
    busy: EventFd,
    /// The program has changed the settings of the terminal.
    manages_terminal: AtomicBool,
}

impl Control {
    /// Nothing is wanted yet from so many vCPUs, at least one.
    ///
    /// # Errors
    /// If the host has no event descriptor left.
    pub fn new(cpus: usize) -> Result<Self, platform::Error> {
        let event = || {
            EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map_err(|source| platform::Error::Request {
                request: "eventfd",
                source,
            })
        };
        Ok(Self {
            stop: OnceLock::new(),
            ended: AtomicBool::new(false),
            vcpus: (0..cpus.max(1))
                .map(|_| Ok((Arc::default(), event()?)))
                .collect::<Result<_, platform::Error>>()?,
            ticking: AtomicBool::new(false),
            idle: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            busy: event()?,
            manages_terminal: AtomicBool::new(false),
        })
    }

    /// The vCPU threads are to end. The first reason counts.
    pub fn stop(&self, reason: Stop) {
        // A second reason changes nothing.
        let _ = self.stop.set(reason);
        self.take_back();
    }

    /// One vCPU saw the end of the guest: the others' threads are to end too.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.take_back();
    }

    fn take_back(&self) {
        for (kicker, _) in &self.vcpus {
            kicker.kick();
        }
        self.wake();
    }

    /// Makes waiting host calls look for signals and for [`Control::is_over`].
    pub fn wake(&self) {
        (0..self.vcpus.len()).for_each(|cpu| self.wake_cpu(cpu));
    }

    /// Wakes one vCPU.
    pub fn wake_cpu(&self, cpu: usize) {
        if let Some((_, event)) = self.vcpus.get(cpu) {
            // Fails only if the counter is at its limit: then it is signalled already.
            let _: io::Result<()> = event.write(1);
        }
    }

    /// The guest has more than one task: it is to be asked to look from time to time.
    pub fn start_ticking(&self) {
        self.ticking.store(true, Ordering::SeqCst);
        self.rouse();
    }

    /// The program sees to the terminal itself from now on, as a shell does.
    pub fn manage_terminal(&self) {
        self.manages_terminal.store(true, Ordering::SeqCst);
    }

    /// Whether the program sees to the terminal itself: all that is typed is for it.
    #[must_use]
    pub fn is_terminal_managed(&self) -> bool {
        self.manages_terminal.load(Ordering::SeqCst)
    }

    /// Serves a call in which one vCPU waits.
    pub fn while_idle<T>(&self, serve: impl FnOnce() -> T) -> T {
        self.idle.fetch_add(1, Ordering::SeqCst);
        let result = serve();
        self.idle.fetch_sub(1, Ordering::SeqCst);
        if self.ticking.load(Ordering::SeqCst) {
            self.rouse();
        }
        result
    }

    fn rouse(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.look();
        }
    }

    /// Lets the watching thread look at the guest's next time.
    pub fn look(&self) {
        // As in `wake`.
        let _: io::Result<()> = self.busy.write(1);
    }

    /// Whether all vCPUs wait.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.idle.load(Ordering::SeqCst) >= self.vcpus.len()
    }

    /// Whether the watching thread has to tick. If not it may sleep until
    /// [`Control::busy_event`] is readable.
    #[must_use]
    pub fn ticks(&self) -> bool {
        // Noted before looking: whoever changes what is looked at rouses the sleeper.
        self.asleep.store(true, Ordering::SeqCst);
        let ticks = self.ticking.load(Ordering::SeqCst) && !self.is_idle();
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

    /// Whether the vCPU threads are to end, for whatever reason.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::SeqCst) || self.stopped().is_some()
    }

    /// Whether and why the VM was stopped from outside.
    #[must_use]
    pub fn stopped(&self) -> Option<Stop> {
        self.stop.get().copied()
    }

    /// Number of vCPUs.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.vcpus.len()
    }

    /// The kicker of vCPU `cpu`, and an event that is readable when that is to be woken,
    /// until it is read. Those of the last one, if there are not so many.
    #[must_use]
    pub fn of_cpu(&self, cpu: usize) -> (&Arc<Kicker>, &EventFd) {
        let (kicker, event) = &self.vcpus[cpu.min(self.vcpus.len() - 1)];
        (kicker, event)
    }
}
