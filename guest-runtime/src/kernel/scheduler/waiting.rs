//! Waiting tasks: how they block, the events that wake them, and the idle loop of a vCPU.

use super::SPIN;
use super::disks::WATCH as DISK_WATCH;
use crate::arch::clock;
use crate::drivers::streams::INPUT_READY;
use crate::kernel::Kernel;
use crate::kernel::exports::WATCH as CALL_WATCH;
use crate::kernel::signals::bit;
use crate::kernel::task::{Event, Retry, Wait};
use crate::net::vsock::Vsock;
use crate::net::wire::Wire;
use crate::wait::time::NEVER;
use crate::wait::{READABLE, Registration, Waiter};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use hartline_abi::call::Operation;
use hartline_linux::errno::Errno;
use hartline_linux::signal::SIGKILL;

impl Kernel {
    /// The time at which the current call, with a timeout of `timeout_ns` (`u64::MAX`: none), gives
    /// up. It stays the same when the call is repeated.
    pub fn deadline(&self, timeout_ns: u64) -> u64 {
        match (&self.task().retry, timeout_ns) {
            (Some(retry), _) => retry.deadline,
            (None, u64::MAX) => NEVER,
            (None, _) => clock::monotonic().saturating_add(timeout_ns).min(NEVER - 1),
        }
    }

    /// Whether the time at which the current call gives up has passed. Timers that have expired by
    /// then run first, so that their signals arrive no later than the call returns.
    pub fn has_passed(&mut self, deadline: u64) -> bool {
        let now = clock::monotonic();
        let has_passed = deadline <= now;
        if has_passed {
            self.run_timers_until(now);
        }
        has_passed
    }

    /// The progress of the current call before it blocked.
    pub fn progress(&self) -> u64 {
        self.task().retry.map_or(0, |retry| retry.progress)
    }

    /// Blocks the current call: the call returns the result, and is repeated later with `progress`.
    /// `EINTR` if a signal is deliverable.
    pub fn block(&mut self, wait: Wait, progress: u64) -> Errno {
        match self.interrupted() {
            true => Errno::EINTR,
            false => self.block_uninterrupted(wait, progress),
        }
    }

    /// As [`block`](Self::block), but only `SIGKILL` interrupts.
    pub fn block_killable(&mut self, wait: Wait, progress: u64) -> Errno {
        match self.signals().pending() & bit(SIGKILL) {
            0 => self.block_uninterrupted(wait, progress),
            _ => Errno::EINTR,
        }
    }

    /// As [`block`](Self::block), but ignores signals.
    pub fn block_uninterrupted(&mut self, wait: Wait, progress: u64) -> Errno {
        let task = self.task_mut();
        task.retry = Some(Retry {
            deadline: wait.deadline,
            progress,
            woken: false,
            submitted: 0,
        });
        task.wait = Some(wait);
        task.registrations.clear();
        Errno::ERESTARTSYS
    }

    /// As [`block`](Self::block), in the wait queue of a file.
    pub fn block_at(&mut self, registration: Registration, deadline: u64, progress: u64) -> Errno {
        let wait = Wait {
            deadline,
            ..Wait::for_event(Event::File)
        };
        let result = self.block(wait, progress);
        if result == Errno::ERESTARTSYS {
            self.task_mut().registrations.push(registration);
        }
        result
    }

    /// Returns an empty list with the memory of the running task's places, for
    /// [`block_in`](Self::block_in).
    pub fn take_registrations(&mut self) -> Vec<Registration> {
        let mut registrations = mem::take(&mut self.task_mut().registrations);
        registrations.clear();
        registrations
    }

    /// As [`block`](Self::block), in several wait queues, and in that of standard input if `wait`
    /// says so.
    pub fn block_in(
        &mut self,
        registrations: Vec<Registration>,
        wait: Wait,
        progress: u64,
    ) -> Errno {
        let result = self.block(wait, progress);
        if result == Errno::ERESTARTSYS {
            self.task_mut().registrations = registrations;
        }
        result
    }

    /// Makes a waiting task ready, also if it is the running one.
    pub fn wake(&mut self, tid: u32) {
        let task = self.tasks.get_mut(tid);
        if !task.is_some_and(|task| self.scheduler.end_wait(task)) {
            return;
        }
        if self.scheduler.urgent {
            self.scheduler.ready.push_front(tid);
            self.scheduler.preempts = true;
        } else {
            self.scheduler.ready.push_back(tid);
        }
    }

    /// Whether [`serve_wakeups`](Self::serve_wakeups) has anything to do.
    #[inline]
    pub(crate) fn has_wakeups(&self) -> bool {
        !self.scheduler.woken.is_empty()
            || self.vfs.has_file_events()
            || !self.polls.is_empty()
            || !self.ptys.signals.is_empty()
            || self.spawned.is_due()
    }

    /// Makes the tasks ready that the wait queues have woken, completes asynchronous I/O that waited
    /// for files, and sends the signals of files and terminals. Everything that may wake a queue is followed by a call of this, before another
    /// task is chosen and before the kernel's lock is released.
    #[inline]
    pub(crate) fn serve_wakeups(&mut self) {
        if self.has_wakeups() {
            self.serve_wakeups_now();
        }
    }

    fn serve_wakeups_now(&mut self) {
        self.move_streams();
        self.look_at_polls();
        self.send_terminal_signals();
        self.send_file_signals();
        self.wake_tasks();
    }

    /// Makes the tasks ready that the wait queues have woken.
    pub(crate) fn wake_tasks(&mut self) {
        while let Some(tid) = self.scheduler.woken.pop() {
            self.wake(tid);
        }
    }

    /// Wakes the tasks of `pid` that wait for children.
    pub(crate) fn wake_parent(&mut self, pid: u32) {
        for tid in self.threads(pid) {
            let wait = self.tasks.get(tid).and_then(|task| task.wait);
            if wait.is_some_and(|wait| wait.event == Event::Child) {
                self.wake(tid);
            }
        }
    }

    /// The time of the next timer event, ns of `CLOCK_MONOTONIC`.
    pub(crate) fn first_time(&self) -> Option<u64> {
        let waits = self.scheduler.first_timer();
        let network = self.net.next_time();
        waits
            .into_iter()
            .chain(self.timers.first())
            .chain(network)
            .min()
    }

    /// Processes received packets, and wakes the waiting tasks.
    pub(crate) fn poll_network(&mut self) {
        if self.net.has_device() {
            self.net.poll_devices(clock::monotonic());
            if let Some(servers) = self.net.take_name_servers() {
                // If the file does not fit, names are not resolved, as without name servers.
                let (vfs, process) = self.file_state();
                let _ = vfs.set_name_servers(process, &servers);
            }
            self.serve_wakeups();
        }
    }

    /// Wakes tasks whose timers have expired.
    pub(crate) fn expire_timers(&mut self) {
        // One time for both: no wait ends before a timer that expires earlier.
        let now = clock::monotonic();
        self.run_timers_until(now);
        if self.scheduler.first_timer().is_none_or(|first| first > now) {
            return;
        }
        let later = self.scheduler.timers.split_off(&(now + 1, 0));
        let due = mem::replace(&mut self.scheduler.timers, later);
        let before = self.scheduler.begin_urgent();
        // In reverse order, so that the first task ends up at the front.
        for (_, tid) in due.into_iter().rev() {
            self.wake(tid);
        }
        self.scheduler.end_urgent(before);
        self.announce_time();
    }

    /// Runs other tasks until the event of the running task may have happened. Returns whether the
    /// running task is the one that continues.
    pub(crate) fn wait(&mut self) -> bool {
        let (tid, wait) = (self.task().tid, self.task().wait);
        if let Some(wait) = wait {
            if wait.event == Event::Disk {
                self.await_soon();
            }
            if wait.deadline != NEVER {
                self.scheduler.timers.insert((wait.deadline, tid));
                self.scheduler.has_earlier_event |=
                    self.scheduler.first_timer() == Some(wait.deadline);
            }
            self.scheduler.has_earlier_event |= wait.input;
            self.register(tid, wait.input);
        }
        let next = self.next_task();
        if next == tid {
            self.account_time();
            return true;
        }
        self.switch_to(next);
        if !self.is_idle() {
            self.announce_time();
        }
        false
    }

    /// Puts the running task into the wait queues where it blocks.
    fn register(&mut self, tid: u32, input: bool) {
        if input {
            let registration = Registration::new(&self.streams.input_waiters, READABLE);
            self.task_mut().registrations.push(registration);
        }
        for registration in &mut self.tasks[self.current].registrations {
            registration.enter(Waiter::Task(tid, self.scheduler.woken.clone()));
        }
    }

    /// Starts the network device and the network stack.
    ///
    /// # Errors
    /// [`StartError`](crate::drivers::StartError).
    pub fn start_network(&mut self) -> Result<(), crate::drivers::StartError> {
        /// Fraction of RAM (1/n) for the buffers of connections.
        const SHARE: u64 = 8;
        let (receive, transmit, capabilities) = crate::drivers::net::start(self.host)?;
        let boot = self.host.boot();
        let wire = Wire::new(
            Box::new(receive),
            Box::new(transmit),
            capabilities,
            &boot.net,
            [self.random.number(), self.random.number()],
            (boot.ram_length / SHARE) as usize,
        );
        let net = &mut self.net;
        net.set_wire(wire);
        net.choose_first_port(self.random.number());
        let interfaces = self.net.interfaces().len();
        self.process().files.registry.set_interfaces(interfaces);
        self.watch_devices();
        Ok(())
    }

    /// Starts the socket device.
    ///
    /// # Errors
    /// [`StartError`](crate::drivers::StartError).
    pub fn start_vsock(&mut self) -> Result<(), crate::drivers::StartError> {
        let (device, cid) = crate::drivers::vsock::start(self.host)?;
        self.net.set_vsock(Vsock::new(Box::new(device), cid));
        self.watch_devices();
        Ok(())
    }

    /// Starts to poll a new device.
    fn watch_devices(&mut self) {
        self.streams.set_alone(false);
        self.scheduler.watching = self.least_watching();
        // The timers of its connections must also run while a task computes.
        self.start_ticking();
    }

    /// Starts the preemption tick, because there is more than one task.
    pub(crate) fn start_ticking(&mut self) {
        if !mem::replace(&mut self.scheduler.ticking, true) {
            // If this fails, tasks switch only when they wait.
            let _ = self.host.call(Operation::Tick, &mut [0; 6]);
        }
    }

    /// Checks without blocking whether standard input that a task waits for has arrived.
    pub(in crate::kernel) fn poll_input(&mut self) {
        if self.wants_input() && self.streams.poll_input() {
            self.input_came();
        }
    }

    /// Wakes tasks that wait for standard input.
    pub(crate) fn input_came(&mut self) {
        self.vfs.awaits_input = false;
        self.streams.input_waiters.wake_all(READABLE);
        self.serve_wakeups();
    }

    /// Whether a task waits for standard input, or is to receive a signal for it.
    pub(crate) fn wants_input(&self) -> bool {
        self.vfs.awaits_input || self.streams.input_waiters.has_tasks()
    }

    /// Waits outside the VM, because no task can run, until a timer, input or a signal.
    pub(super) fn idle(&mut self) {
        self.poll_network();
        self.poll_disks();
        self.serve_host();
        self.wake_for_call();
        self.settle_stop(true);
        if self.scheduler.has_ready() || self.await_device() {
            return;
        }
        let first = self.first_time();
        let left = first.map_or(u64::MAX, |at| at.saturating_sub(clock::monotonic()));
        if left >= SPIN {
            if self.arm_disks() {
                return;
            }
            let set = if self.wants_input() { INPUT_READY } else { 0 };
            // Return early by about the host's wake-up latency.
            let left = if left == u64::MAX { left } else { left - SPIN };
            // An error counts as a signal: waiting tasks check their events again.
            let ready = self.streams.wait(set, left).unwrap_or(0);
            // Sample before tasks of expired timers become runnable.
            self.sample_load(clock::monotonic());
            if ready & INPUT_READY != 0 {
                self.input_came();
            }
        } else {
            core::hint::spin_loop();
        }
        self.expire_timers();
        self.absorb_signals();
    }

    /// Polls the devices, and the disks with requests, until there is something or the next timer
    /// is due. The polling time adapts to its success. Returns whether there is something.
    pub(super) fn await_device(&mut self) -> bool {
        if self.chaos.ends_wait() {
            return false;
        }
        let (net, disks, exports) = (&self.net, &self.disks, &self.exports);
        let (has_device, are_busy) = (net.has_device() || exports.are_possible(), disks.are_busy());
        let longest = match are_busy {
            true => self.scheduler.watching.max(DISK_WATCH),
            false => self.scheduler.watching.max(self.least_watching()),
        };
        if !has_device && !are_busy {
            return false;
        }
        let limit = self.first_time().unwrap_or(NEVER);
        let end = limit.min(clock::monotonic() + longest);
        while !net.is_pending() {
            if disks.is_pending() || exports.is_pending() {
                return true;
            }
            if clock::monotonic() >= end {
                let shorter = self.scheduler.watching / 2;
                self.scheduler.watching = shorter.max(self.least_watching());
                return false;
            }
            core::hint::spin_loop();
        }
        let longer = self.scheduler.watching * 2;
        self.scheduler.watching = longer.min(self.most_watching());
        true
    }

    /// Longest polling time of devices, ns.
    pub(crate) fn most_watching(&self) -> u64 {
        let boot = self.host.boot();
        let calls = if boot.exports != 0 { CALL_WATCH } else { 0 };
        (boot.net.polling_ns.max(boot.vsock.polling_ns)).max(calls)
    }

    /// Shortest polling time of devices, ns.
    pub(super) fn least_watching(&self) -> u64 {
        match self.exports.are_possible() {
            // A shorter time would stay short: who waits for a sleeping vCPU calls late.
            true => CALL_WATCH,
            false => SPIN.min(self.most_watching()),
        }
    }
}
