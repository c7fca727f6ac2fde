//! Requests of other threads to the vCPU threads.

use crate::idt::GateError;
use crate::platform::{self, Kicker};
use hartline_abi::handshake;
use hartline_devices::event::Event;
use hartline_devices::virtio::DeviceError;
use rustix::fs::fstat;
use rustix::stdio::stdin;
use std::ops::BitOr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The reason why a VM was stopped from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The time limit of `--timeout` has expired.
    Timeout,
    /// This signal was sent to the VMM, and did not end the program.
    Signal(i32),
    /// The thread that serves the volumes ended: a bug of the VMM.
    Volumes,
    /// The guest corrupted a ring of a device.
    Device(DeviceError),
    /// The guest requested an interrupt gate that it may not have.
    Gate(GateError),
    /// The owner of a VM that is called does not need it any more.
    Closed,
    /// The VM was to end after its snapshot.
    Snapshot {
        /// Whether the snapshot was written.
        is_written: bool,
    },
}

/// Standard input of a program.
#[derive(Debug, Clone, Default)]
pub enum Input {
    /// That of this process.
    #[default]
    Own,
    /// There is none: it is at its end.
    Empty,
    /// This descriptor.
    Given(Arc<OwnedFd>),
}

impl Input {
    /// The descriptor to read; `None`: the input is at its end.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Own => Some(stdin()),
            Self::Empty => None,
            Self::Given(descriptor) => Some(descriptor.as_fd()),
        }
    }
}

/// What a program sees of the file behind a standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// `st_mode`.
    pub mode: u32,
    /// `st_size`, bytes.
    pub size: u64,
    /// `st_rdev`.
    pub rdev: u64,
}

impl Status {
    /// Of a character device with this number, as `/dev/null` is one.
    pub const NULL: Self = Self {
        mode: libc::S_IFCHR | 0o666,
        size: 0,
        rdev: libc::makedev(1, 3),
    };

    /// Of the file of a descriptor.
    ///
    /// # Errors
    /// A Linux error number.
    pub fn of(descriptor: BorrowedFd<'_>) -> Result<Self, i32> {
        let stat = fstat(descriptor).map_err(rustix::io::Errno::raw_os_error)?;
        Ok(Self {
            mode: stat.st_mode,
            size: stat.st_size.unsigned_abs(),
            rdev: stat.st_rdev,
        })
    }
}

/// Interrupts the vCPU threads, in the guest or in waiting host calls.
#[derive(Debug)]
pub struct Control {
    stop: Mutex<Option<Stop>>,
    /// The first vCPU must reset the VM, or end.
    resets: AtomicBool,
    /// Standard input of the program.
    input: Mutex<Input>,
    /// What the program sees of its standard streams, if they are not those of this process.
    status: Mutex<[Option<Status>; 3]>,
    /// This process has other work: its standard streams are not the program's.
    shares_process: AtomicBool,
    /// The guest has ended by itself.
    ended: AtomicBool,
    vcpus: Vec<(Arc<Kicker>, Event)>,
    /// Whether the guest has requested ticks.
    ticking: AtomicBool,
    /// Waiting vCPUs, a bit for each. All but the first wait from the beginning, before their threads
    /// run: an interrupt must not count on a vCPU that was never started.
    sleepers: AtomicU64,
    /// vCPUs that can take an interrupt vector while they do not wait.
    reachable: AtomicU64,
    /// vCPUs with a pending interrupt vector.
    interrupted: AtomicU64,
    /// Whether the watching thread sleeps although the guest has requested ticks, because all vCPUs
    /// wait.
    asleep: AtomicBool,
    busy: Event,
    /// Whether the program has changed the settings of the terminal.
    manages_terminal: AtomicBool,
}

impl Control {
    /// Makes the control of `cpus` vCPUs, at least one, without requests.
    ///
    /// # Errors
    /// If the host has no event descriptor left.
    pub fn new(cpus: usize) -> Result<Self, platform::Error> {
        let event = || {
            Event::new().map_err(|source| platform::Error::Request {
                request: "eventfd",
                source,
            })
        };
        Ok(Self {
            stop: Mutex::default(),
            resets: AtomicBool::new(false),
            input: Mutex::default(),
            status: Mutex::default(),
            shares_process: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            sleepers: AtomicU64::new((1..cpus).map(bit).fold(0, BitOr::bitor)),
            vcpus: (0..cpus.max(1))
                .map(|_| Ok((Arc::default(), event()?)))
                .collect::<Result<_, platform::Error>>()?,
            ticking: AtomicBool::new(false),
            // The first vCPU sets up its hart before a device is started.
            reachable: AtomicU64::new(1),
            interrupted: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            busy: event()?,
            manages_terminal: AtomicBool::new(false),
        })
    }

    /// Requests the end of the vCPU threads. The first reason counts.
    pub fn stop(&self, reason: Stop) {
        self.lock().get_or_insert(reason);
        self.take_back();
    }

    /// Forgets that the VM was stopped for something that the guest did: it was reset.
    pub fn forget_failure(&self) {
        let mut stop = self.lock();
        stop.take_if(|stop| matches!(stop, Stop::Device(_) | Stop::Gate(_)));
    }

    /// The program's standard input is empty from the beginning.
    pub fn close_input(&self) {
        *lock(&self.input) = Input::Empty;
    }

    /// Standard input of the program.
    #[must_use]
    pub fn input(&self) -> Input {
        lock(&self.input).clone()
    }

    /// Gives the program a standard input, or an empty one, and says what it sees of its streams: `None` looks like
    /// `/dev/null`.
    pub fn give_input(&self, input: Option<OwnedFd>, status: [Option<Status>; 3]) {
        let input = input.map_or(Input::Empty, |input| Input::Given(Arc::new(input)));
        let before = std::mem::replace(&mut *lock(&self.input), input);
        // Closing may take time.
        drop(before);
        *lock(&self.status) = status;
    }

    /// What the program sees of a standard stream that is not this process's.
    #[must_use]
    pub fn status(&self, stream: u64) -> Option<Status> {
        let stream = usize::try_from(stream).ok()?;
        lock(&self.status).get(stream).copied().flatten()
    }

    /// Keeps the guest from the standard streams of this process, and from stopping it.
    pub fn share_process(&self) {
        self.close_input();
        self.shares_process.store(true, Ordering::Relaxed);
    }

    /// Whether [`share_process`](Self::share_process) was called.
    #[must_use]
    pub fn shares_process(&self) -> bool {
        self.shares_process.load(Ordering::Relaxed)
    }

    /// Makes the first vCPU leave the guest, and any wait, for a reset.
    pub fn request_reset(&self) {
        self.resets.store(true, Ordering::SeqCst);
        self.take_back();
    }

    /// Whether a reset was requested, and not taken.
    #[must_use]
    pub fn is_resetting(&self) -> bool {
        self.resets.load(Ordering::SeqCst)
    }

    /// Takes the request for a reset.
    pub fn take_reset(&self) -> bool {
        self.is_resetting() && self.resets.swap(false, Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Stop>> {
        lock(&self.stop)
    }

    /// Notes that one vCPU saw the end of the guest: the other threads must end too.
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

    /// Makes waiting host calls check for signals and for [`Control::is_over`].
    pub fn wake(&self) {
        (0..self.vcpus.len()).for_each(|cpu| self.wake_cpu(cpu));
    }

    /// Wakes one vCPU.
    pub fn wake_cpu(&self, cpu: usize) {
        if let Some((_, event)) = self.vcpus.get(cpu) {
            event.signal();
        }
    }

    /// Starts ticks: the guest has more than one task, and must check its queues from time to time.
    pub fn start_ticking(&self) {
        self.ticking.store(true, Ordering::SeqCst);
        self.rouse();
    }

    /// Notes that the program manages the terminal itself from now on, as a shell does.
    pub fn manage_terminal(&self) {
        self.manages_terminal.store(true, Ordering::SeqCst);
    }

    /// Whether the program manages the terminal itself: all input is then for the program.
    #[must_use]
    pub fn is_terminal_managed(&self) -> bool {
        self.manages_terminal.load(Ordering::SeqCst)
    }

    /// Serves a call in which vCPU `cpu` waits. `serve` must check for the events that wake the
    /// vCPU.
    pub fn while_idle<T>(&self, cpu: usize, serve: impl FnOnce() -> T) -> T {
        handshake::begin_sleep(&self.sleepers, bit(cpu));
        let result = serve();
        handshake::end_sleep(&self.sleepers, bit(cpu));
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

    /// Makes the watching thread check the guest's next time.
    pub fn look(&self) {
        // As in `wake_cpu`.
        self.busy.signal();
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

    /// Whether a set contains all vCPUs.
    #[must_use]
    pub fn are_all(&self, set: u64) -> bool {
        set.count_ones() as usize >= self.vcpus.len()
    }

    /// Notes that the hart of a vCPU is set up, so that the vCPU can take interrupt vectors.
    pub fn make_reachable(&self, cpu: usize) {
        self.reachable.fetch_or(bit(cpu), Ordering::SeqCst);
    }

    /// The best vCPU for an interrupt vector: a running one, or the first.
    #[must_use]
    pub fn interrupt_target(&self) -> usize {
        let sleepers = self.sleepers.load(Ordering::SeqCst);
        let running = self.reachable.load(Ordering::SeqCst) & !sleepers;
        match running {
            0 => 0,
            _ => running.trailing_zeros() as usize,
        }
    }

    /// Notes that a vCPU has a pending interrupt vector, and wakes the vCPU if it waits.
    pub fn interrupt(&self, cpu: usize) {
        let sleepers = handshake::raise(&self.interrupted, bit(cpu), &self.sleepers);
        if sleepers & bit(cpu) != 0 {
            self.wake_cpu(cpu);
        }
    }

    /// Whether a vCPU had a pending interrupt vector since the last call; clears the note.
    pub fn take_interrupt(&self, cpu: usize) -> bool {
        self.interrupted.fetch_and(!bit(cpu), Ordering::SeqCst) & bit(cpu) != 0
    }

    /// Whether the watching thread has to tick. If not, the thread may sleep until
    /// [`Control::busy_event`] is readable.
    #[must_use]
    pub fn ticks(&self) -> bool {
        // Stored before the check: a thread that changes one of the conditions wakes the sleeper.
        self.asleep.store(true, Ordering::SeqCst);
        let ticks = self.ticking.load(Ordering::SeqCst) && !self.is_idle();
        if ticks {
            self.asleep.store(false, Ordering::SeqCst);
        }
        ticks
    }

    /// Readable when [`Control::ticks`] may have changed, until it is read.
    #[must_use]
    pub fn busy_event(&self) -> &Event {
        &self.busy
    }

    /// Whether the vCPU threads must end, for any reason.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::SeqCst) || self.stopped().is_some()
    }

    /// Whether and why the VM was stopped from outside.
    #[must_use]
    pub fn stopped(&self) -> Option<Stop> {
        *self.lock()
    }

    /// Number of vCPUs.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.vcpus.len()
    }

    /// The kicker of vCPU `cpu`, and an event that is readable when the vCPU must wake, until it is
    /// read. For a larger number, the ones of the last vCPU.
    #[must_use]
    pub fn of_cpu(&self, cpu: usize) -> (&Arc<Kicker>, &Event) {
        let (kicker, event) = &self.vcpus[cpu.min(self.vcpus.len() - 1)];
        (kicker, event)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bit of a vCPU in a set.
fn bit(cpu: usize) -> u64 {
    1 << (cpu % u64::BITS as usize)
}
