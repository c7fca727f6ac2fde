//! Tasks that wait for disks: how they hear that requests are done. While nothing can run the
//! rings are watched; while something runs, the devices interrupt.

use super::SPIN;
use crate::clock;
use crate::cpus;
use crate::kernel::Kernel;
use crate::task::{Event, Wait};
use hartline_linux::errno::Errno;

/// How long a disk is watched before the VM is left, ns. One that takes longer than that has
/// slow storage behind it.
pub(super) const WATCH: u64 = 300_000;
/// What the host has in memory is there sooner than this, ns, and another process in its place
/// would cost as much.
const SOON: u64 = SPIN / 2;

impl Kernel {
    /// Lets the call being served wait for a disk; it is made again later with `progress`.
    pub(crate) fn await_disk(&mut self, progress: u64) -> Errno {
        // What it has done already may be what others wait for.
        self.wake_for_disks();
        self.block_uninterrupted(Wait::for_event(Event::Disk), progress)
    }

    /// Looks at requests that are done, and wakes who waits for them.
    pub(crate) fn poll_disks(&mut self) {
        self.files.vfs.disks.poll();
        self.wake_for_disks();
    }

    /// The same while tasks run: the device interrupts when the next one is done.
    #[inline]
    pub(crate) fn attend_disks(&mut self) {
        self.poll_disks();
        while self.arm_disks() {
            self.poll_disks();
        }
    }

    /// Asks for an interrupt when the next request is done. Result: whether one is already.
    #[inline]
    pub(super) fn arm_disks(&mut self) -> bool {
        let disks = &mut self.files.vfs.disks;
        disks.are_busy() && disks.want_interrupt()
    }

    /// The call of a task has ended, or the task.
    #[inline]
    pub(crate) fn forget_disks(&mut self, tid: u32) {
        self.files.vfs.disks.forget(tid);
        self.wake_for_disks();
    }

    /// Wakes tasks for which disks did something. Like those whose time has come, they run
    /// before others.
    fn wake_for_disks(&mut self) {
        let woken = self.files.vfs.disks.take_woken();
        if woken.is_empty() {
            return;
        }
        let before = self.scheduler.begin_urgent();
        for tid in woken {
            let wait = self.task_mut(tid).and_then(|task| task.wait);
            if wait.is_some_and(|wait| wait.event == Event::Disk) {
                self.wake(tid);
            }
        }
        self.scheduler.end_urgent(before);
    }

    /// Watches disks for a short time before another task runs in place of the running one,
    /// which waits for them.
    pub(super) fn await_soon(&mut self) {
        if cpus::several() || !self.scheduler.has_ready() {
            return;
        }
        let end = clock::monotonic() + SOON;
        while !self.files.vfs.disks.is_pending() && clock::monotonic() < end {
            core::hint::spin_loop();
        }
        self.poll_disks();
    }
}
