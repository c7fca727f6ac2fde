//! What other threads want from the vCPU threads.

use crate::idt::GateError;
use crate::platform::{self, Kicker};
use hartline_abi::handshake;
use hartline_devices::virtio::DeviceError;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// Why a VM was stopped from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The time given with `--timeout` is over.
    Timeout,
    /// This signal was sent to the VMM, and the program did not end by it.
    Signal(i32),
    /// The thread that serves the volumes ended: a mistake of the VMM.
    Volumes,
    /// The guest broke a ring of a device.
    Device(DeviceError),
    /// The guest asked for an interrupt gate that it may not have.
    Gate(GateError),
}

/// Ends the vCPU threads' runs of the guest, or their waiting in host calls.
#[derive(Debug)]
pub struct Control {
    stop: OnceLock<Stop>,
    /// The guest has ended by itself.
    ended: AtomicBool,
    vcpus: Vec<(Arc<Kicker>, EventFd)>,
    /// Whether the guest wants attention from time to time.
    ticking: AtomicBool,
    /// vCPUs that wait, a bit for each.
    sleepers: AtomicU64,
    /// vCPUs that can take an interrupt by a vector while they do not wait.
    reachable: AtomicU64,
    /// vCPUs that have one to take.
    interrupted: AtomicU64,
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
            sleepers: AtomicU64::new(0),
            // The first one has set its hart up before a device is started.
            reachable: AtomicU64::new(1),
            interrupted: AtomicU64::new(0),
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

    /// Serves a call in which vCPU `cpu` waits. What it is to be woken for has to be looked
    /// at in `serve`.
    pub fn while_idle<T>(&self, cpu: usize, serve: impl FnOnce() -> T) -> T {
        handshake::lie_down(&self.sleepers, bit(cpu));
        let result = serve();
        handshake::rise(&self.sleepers, bit(cpu));
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
        self.are_all(self.sleepers.load(Ordering::SeqCst))
    }

    /// The vCPUs that wait, a bit for each.
    #[must_use]
    pub fn sleepers(&self) -> &AtomicU64 {
        &self.sleepers
    }

    /// Whether a set has all vCPUs.
    #[must_use]
    pub fn are_all(&self, set: u64) -> bool {
        set.count_ones() as usize >= self.vcpus.len()
    }

    /// The hart of a vCPU is set up, so that it can take interrupts by vectors.
    pub fn make_reachable(&self, cpu: usize) {
        self.reachable.fetch_or(bit(cpu), Ordering::SeqCst);
    }

    /// The vCPU that is best interrupted by a vector: one that runs, or the first.
    #[must_use]
    pub fn interrupt_target(&self) -> usize {
        let sleepers = self.sleepers.load(Ordering::SeqCst);
        let running = self.reachable.load(Ordering::SeqCst) & !sleepers;
        match running {
            0 => 0,
            _ => running.trailing_zeros() as usize,
        }
    }

    /// A vCPU has an interrupt by a vector to take: it is woken if it waits.
    pub fn interrupt(&self, cpu: usize) {
        let sleepers = handshake::raise(&self.interrupted, bit(cpu), &self.sleepers);
        if sleepers & bit(cpu) != 0 {
            self.wake_cpu(cpu);
        }
    }

    /// Whether a vCPU had an interrupt by a vector to take since it was last asked.
    pub fn take_interrupt(&self, cpu: usize) -> bool {
        self.interrupted.fetch_and(!bit(cpu), Ordering::SeqCst) & bit(cpu) != 0
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

/// A vCPU in a set.
fn bit(cpu: usize) -> u64 {
    1 << (cpu % u64::BITS as usize)
}
