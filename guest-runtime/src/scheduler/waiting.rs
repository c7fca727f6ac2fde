//! Tasks that wait, what wakes them, and what a vCPU does when all of them wait.

use super::SPIN;
use super::disks::WATCH as DISK_WATCH;
use crate::clock;
use crate::console::INPUT_READY;
use crate::kernel::Kernel;
use crate::net::vsock::Vsock;
use crate::net::wire::Wire;
use crate::syscall::files::Files;
use crate::task::{Event, NEVER, Retry, Wait};
use crate::vfs::types::Ino;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use hartline_abi::call::Operation;
use hartline_linux::errno::Errno;

impl Kernel {
    /// The time at which the call being served gives up that may take `timeout_ns`
    /// (`u64::MAX`: for ever), also when it is made again.
    pub fn deadline(&self, timeout_ns: u64) -> u64 {
        match (&self.task.retry, timeout_ns) {
            (Some(retry), _) => retry.deadline,
            (None, u64::MAX) => NEVER,
            (None, _) => clock::monotonic().saturating_add(timeout_ns).min(NEVER - 1),
        }
    }

    /// What the call being served did before it had to wait.
    pub fn progress(&self) -> u64 {
        self.task.retry.map_or(0, |retry| retry.progress)
    }

    /// Lets the call being served wait: it returns the result, and is made again later
    /// with `progress`. `EINTR` if a signal is to be delivered.
    pub fn block(&mut self, wait: Wait, progress: u64) -> Errno {
        match self.interrupted() {
            true => Errno::EINTR,
            false => self.block_uninterrupted(wait, progress),
        }
    }

    /// As [`block`](Self::block), whatever signals there are.
    pub fn block_uninterrupted(&mut self, wait: Wait, progress: u64) -> Errno {
        self.task.retry = Some(Retry {
            deadline: wait.deadline,
            progress,
            woken: false,
        });
        self.task.wait = Some(wait);
        self.task.watched = Vec::new();
        Errno::ERESTARTSYS
    }

    /// As [`block`](Self::block), for something to happen to one of `files`.
    pub fn block_for(&mut self, files: Vec<Ino>, input: bool, deadline: u64) -> Errno {
        let wait = Wait {
            event: Event::AnyFile,
            input,
            deadline,
        };
        let result = self.block(wait, 0);
        self.task.watched = files;
        result
    }

    /// Lets a waiting task run, the running one included.
    pub fn wake(&mut self, tid: u32) {
        let Some(task) = self.task_mut(tid) else {
            return;
        };
        let Some(wait) = task.wait.take() else {
            return;
        };
        if wait.deadline != NEVER {
            self.scheduler.timers.remove(&(wait.deadline, tid));
        }
        self.scheduler.waiting.retain(|&other| other != tid);
        if self.scheduler.urgent {
            self.scheduler.ready.push_front(tid);
            self.scheduler.preempts = true;
        } else {
            self.scheduler.ready.push_back(tid);
        }
    }

    /// Wakes tasks that wait for something `of` this kind.
    pub(super) fn wake_waiting(&mut self, of: impl Fn(&Wait) -> bool) {
        for tid in self.scheduler.waiting.clone() {
            let wait = self.task_mut(tid).and_then(|task| task.wait);
            if wait.is_some_and(|wait| of(&wait)) {
                self.wake(tid);
            }
        }
    }

    /// Wakes tasks that wait for what has happened to files since the last time.
    pub(crate) fn wake_for_files(&mut self) {
        if !self.files.vfs.has_changes() {
            return;
        }
        self.send_terminal_signals();
        self.send_file_signals();
        let changed: Vec<Ino> = self.files.vfs.take_changes();
        for tid in self.scheduler.waiting.clone() {
            let Some(task) = self.task_mut(tid) else {
                continue;
            };
            let is_due = match task.wait.map(|wait| wait.event) {
                Some(Event::File(ino)) => changed.contains(&ino),
                Some(Event::AnyFile) => {
                    let watched = &task.watched;
                    watched.is_empty() || watched.iter().any(|ino| changed.contains(ino))
                }
                _ => false,
            };
            if is_due {
                self.wake(tid);
            }
        }
    }

    /// Wakes the tasks of `pid` that wait for children.
    pub(crate) fn wake_parent(&mut self, pid: u32) {
        for tid in self.threads(pid) {
            let wait = self.task_mut(tid).and_then(|task| task.wait);
            if wait.is_some_and(|wait| wait.event == Event::Child) {
                self.wake(tid);
            }
        }
    }

    /// The next time at which something happens by itself, ns of `CLOCK_MONOTONIC`.
    pub(crate) fn first_time(&self) -> Option<u64> {
        let waits = self.scheduler.first_timer();
        let network = self.files.vfs.net.next_time();
        waits
            .into_iter()
            .chain(self.timers.first())
            .chain(network)
            .min()
    }

    /// Looks at packets that have come, and wakes who waits for them.
    pub(crate) fn poll_network(&mut self) {
        if self.files.vfs.net.has_device() {
            self.files.vfs.net.poll_devices(clock::monotonic());
            if let Some(servers) = self.files.vfs.net.take_name_servers() {
                // Without room for it names are not found, as without name servers.
                let Files { vfs, process, .. } = &mut self.files;
                let _ = vfs.set_name_servers(process, &servers);
            }
            self.wake_for_files();
        }
    }

    /// Wakes tasks whose time has come.
    pub(crate) fn expire_timers(&mut self) {
        self.run_timers();
        let Some(&(first, _)) = self.scheduler.timers.first() else {
            return;
        };
        let now = clock::monotonic();
        if first > now {
            return;
        }
        let later = self.scheduler.timers.split_off(&(now + 1, 0));
        let due = mem::replace(&mut self.scheduler.timers, later);
        let before = self.scheduler.begin_urgent();
        // The first one comes to the front last.
        for (_, tid) in due.into_iter().rev() {
            self.wake(tid);
        }
        self.scheduler.end_urgent(before);
        self.announce_time();
    }

    /// Lets others run until what the running task waits for may have happened. Whether
    /// it is the one that goes on.
    pub(crate) fn wait(&mut self) -> bool {
        let (tid, wait) = (self.task.tid, self.task.wait);
        if let Some(wait) = wait {
            if wait.event == Event::Disk {
                self.await_soon();
            }
            if wait.deadline != NEVER {
                self.scheduler.timers.insert((wait.deadline, tid));
                self.scheduler.has_news |= self.scheduler.first_timer() == Some(wait.deadline);
            }
            self.scheduler.has_news |= wait.input;
            let is_found = matches!(
                wait.event,
                Event::Nothing | Event::Futex | Event::Vfork | Event::Disk
            );
            if wait.input || !is_found {
                self.scheduler.waiting.push(tid);
            }
        }
        let next = self.next_task();
        if next == tid {
            self.scheduler.started = clock::monotonic();
            return true;
        }
        self.switch_to(next, true);
        if !self.is_idle() {
            self.announce_time();
        }
        false
    }

    /// Starts the network device and the stack over it.
    ///
    /// # Errors
    /// [`StartError`](crate::drivers::StartError).
    pub fn start_network(&mut self) -> Result<(), crate::drivers::StartError> {
        /// Buffers of connections may take this part of RAM.
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
        let net = &mut self.files.vfs.net;
        net.set_wire(wire);
        net.choose_first_port(self.random.number());
        self.watch_devices();
        Ok(())
    }

    /// Starts the socket device.
    ///
    /// # Errors
    /// [`StartError`](crate::drivers::StartError).
    pub fn start_vsock(&mut self) -> Result<(), crate::drivers::StartError> {
        let (device, cid) = crate::drivers::vsock::start(self.host)?;
        self.files
            .vfs
            .net
            .set_vsock(Vsock::new(Box::new(device), cid));
        self.watch_devices();
        Ok(())
    }

    /// There is a device from which something may come from now on.
    fn watch_devices(&mut self) {
        self.files.streams.set_alone(false);
        self.scheduler.watching = self.least_watching();
        // Its connections have their times also while a task computes.
        self.start_ticking();
    }

    /// There is more than one task from now on: none may run for ever.
    pub(crate) fn start_ticking(&mut self) {
        if !mem::replace(&mut self.scheduler.ticking, true) {
            // Without ticks tasks change places only when they wait.
            let _ = self.host.call(Operation::Tick, &mut [0; 6]);
        }
    }

    /// Sees without waiting whether standard input has come for somebody.
    pub(super) fn poll_input(&mut self) {
        if self.wants_input() && self.files.streams.poll_input() {
            self.input_came();
        }
    }

    /// Wakes tasks that wait for standard input.
    pub(crate) fn input_came(&mut self) {
        self.wake_waiting(|wait| wait.input);
        if self.files.vfs.input_came() {
            self.send_file_signals();
        }
    }

    pub(crate) fn wants_input(&mut self) -> bool {
        if self.files.vfs.awaits_input {
            return true;
        }
        let waiting = self.scheduler.waiting.clone();
        waiting.into_iter().any(|tid| {
            let task = self.task_mut(tid);
            task.is_some_and(|task| task.wait.is_some_and(|wait| wait.input))
        })
    }

    /// Nobody can run: leaves the VM until time, input or a signal changes that.
    pub(super) fn idle(&mut self) {
        self.poll_network();
        self.poll_disks();
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
            // Back a little early: the host is late by about that much.
            let left = if left == u64::MAX { left } else { left - SPIN };
            // An error is as good as a signal: whoever waits looks again.
            let ready = self.files.streams.wait(set, left).unwrap_or(0);
            // Before those whose time has come can run.
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

    /// Watches the devices for a time that follows how often it was worth it, and disks that have
    /// requests, but not beyond the next time limit. Result: whether there is something.
    pub(super) fn await_device(&mut self) -> bool {
        if self.chaos.ends_wait() {
            return false;
        }
        let (net, disks) = (&self.files.vfs.net, &self.files.vfs.disks);
        let (has_device, are_busy) = (net.has_device(), disks.are_busy());
        let longest = match are_busy {
            true => self.scheduler.watching.max(DISK_WATCH),
            false => self.scheduler.watching,
        };
        if !has_device && !are_busy {
            return false;
        }
        let limit = self.first_time().unwrap_or(NEVER);
        let end = limit.min(clock::monotonic() + longest);
        while !net.is_pending() {
            if disks.is_pending() {
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

    /// Longest time for which devices are watched, ns.
    pub(crate) fn most_watching(&self) -> u64 {
        let boot = self.host.boot();
        boot.net.polling_ns.max(boot.vsock.polling_ns)
    }

    /// Shortest time, ns.
    pub(super) fn least_watching(&self) -> u64 {
        SPIN.min(self.most_watching())
    }
}
