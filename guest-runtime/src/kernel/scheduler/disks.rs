//! Tasks that wait for disks, and how completions reach them. While nothing can run, the rings are
//! polled; while a task runs, the devices interrupt.

use super::SPIN;
use crate::arch::clock;
use crate::arch::cpus;
use crate::kernel::Kernel;
use crate::kernel::task::{Event, Wait};
use hartline_linux::errno::Errno;

/// How long a disk is polled before the vCPU leaves the VM, ns. A disk that takes longer has slow
/// storage.
pub(super) const WATCH: u64 = 300_000;
/// Data in the host's page cache arrives within this time, ns; a switch to another process would
/// cost as much.
const SOON: u64 = SPIN / 2;

impl Kernel {
    /// Makes the current call wait for a disk; it is repeated later with `progress`.
    pub(crate) fn await_disk(&mut self, progress: u64) -> Errno {
        // Requests that the call has completed may be what other tasks wait for.
        self.wake_for_disks();
        self.block_uninterrupted(Wait::for_event(Event::Disk), progress)
    }

    /// Processes completions, and wakes the waiting tasks.
    pub(crate) fn poll_disks(&mut self) {
        self.disks.poll();
        self.wake_for_disks();
    }

    /// As `poll_disks`, while tasks run: the device interrupts at the next completion.
    #[inline]
    pub(crate) fn serve_disks(&mut self) {
        self.poll_disks();
        while self.arm_disks() {
            self.poll_disks();
        }
    }

    /// Asks for an interrupt at the next completion. Returns whether there is one already.
    #[inline]
    pub(super) fn arm_disks(&mut self) -> bool {
        let disks = &mut self.disks;
        disks.are_busy() && disks.want_interrupt()
    }

    /// Drops the requests of a task, because its call or the task has ended.
    #[inline]
    pub(crate) fn forget_disks(&mut self, tid: u32) {
        self.disks.forget(tid);
        if self.disks.has_woken() {
            self.wake_for_disks();
        }
    }

    /// Wakes tasks whose requests have made progress. They run before other tasks, like those of
    /// expired timers.
    fn wake_for_disks(&mut self) {
        let woken = self.disks.take_woken();
        let before = self.scheduler.begin_urgent();
        for tid in woken {
            let wait = self.tasks.get(tid).and_then(|task| task.wait);
            if wait.is_some_and(|wait| wait.event == Event::Disk) {
                self.wake(tid);
            }
        }
        self.scheduler.end_urgent(before);
    }

    /// Polls disks for a short time before another task replaces the running one, which waits for
    /// them.
    pub(super) fn await_soon(&mut self) {
        if cpus::several() || !self.scheduler.has_ready() {
            return;
        }
        let end = clock::monotonic() + SOON;
        while !self.disks.is_pending() && clock::monotonic() < end {
            core::hint::spin_loop();
        }
        self.poll_disks();
    }
}
