//! The running task as open files see it.

use crate::drivers::streams::Streams;
use crate::file::Io;
use crate::file::caller::{Caller, Identity, Waited};
use crate::file::view::View;
use crate::fs;
use crate::kernel::Kernel;
use crate::mm::{AddressSpace, user};
use crate::wait::{Registration, WaitQueue};
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr;
use hartline_linux::errno::Errno;
use hartline_linux::signalfd::SignalfdSiginfo;

impl Kernel {
    /// What the checks for ready events look at.
    #[inline]
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View {
            vfs: &self.vfs,
            net: &self.net,
            ptys: &self.ptys,
            streams: &self.streams,
            caller: Calling::of(self),
        }
    }

    /// What open files see of this.
    pub(crate) fn calling(&mut self) -> &mut Calling {
        // SAFETY: the type has the same layout, and a value that is never dropped has no other invariants.
        unsafe { &mut *ptr::from_mut(self).cast() }
    }
}

/// The kernel as open files see it. It has the layout of [`Kernel`], but cannot be dropped: otherwise the tables of the
/// traits would need code that drops a kernel, 11 KiB of which none ever runs.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Calling(ManuallyDrop<Kernel>);

impl Calling {
    fn of(kernel: &Kernel) -> &Self {
        // SAFETY: as in `Kernel::calling`.
        unsafe { &*ptr::from_ref(kernel).cast() }
    }
}

impl Deref for Calling {
    type Target = Kernel;

    fn deref(&self) -> &Kernel {
        &self.0
    }
}

impl DerefMut for Calling {
    fn deref_mut(&mut self) -> &mut Kernel {
        &mut self.0
    }
}

impl Caller for Calling {
    fn io(&mut self) -> (Io<'_>, &mut fs::process::Process) {
        Kernel::io(self)
    }

    fn memory(&mut self) -> &mut AddressSpace {
        self.memory_mut()
    }

    fn io_and_memory(&mut self) -> (Io<'_>, &mut AddressSpace) {
        let kernel = &mut **self;
        let io = Io {
            vfs: &mut kernel.vfs,
            net: &mut kernel.net,
            ptys: &mut kernel.ptys,
            disks: &mut kernel.disks,
        };
        (io, &mut kernel.spaces[kernel.current].memory)
    }

    fn streams(&mut self) -> &mut Streams {
        &mut self.streams
    }

    fn identity(&self) -> Identity {
        let process = self.process();
        Identity {
            tid: self.task().tid,
            pid: process.pid,
            group: process.group,
            session: process.session,
            terminal_session: process.terminal_session(),
        }
    }

    fn waited(&self) -> Option<Waited> {
        self.task().retry.map(|retry| Waited {
            deadline: retry.deadline,
            progress: retry.progress,
        })
    }

    fn block_at(&mut self, registration: Registration, deadline: u64, progress: u64) -> Errno {
        Kernel::block_at(self, registration, deadline, progress)
    }

    fn await_disk(&mut self, progress: u64) -> Errno {
        Kernel::await_disk(self, progress)
    }

    fn run_timers(&mut self) {
        Kernel::run_timers(self);
    }

    fn take_signal(&mut self, set: u64) -> Option<SignalfdSiginfo> {
        self.settle_timer_signals(set);
        self.signals().take(set).map(|info| info.to_signalfd())
    }

    fn pending_signals(&self) -> u64 {
        self.task().signals.pending() | self.process().signals.pending()
    }

    fn signal_waiters(&self) -> &WaitQueue {
        &self.process().signal_waiters
    }

    fn has_ended(&self, pid: u32) -> bool {
        let process = self.processes().find(|process| process.pid == pid);
        process.is_none_or(|process| process.is_zombie())
    }

    fn reseed(&mut self) -> Result<(), Errno> {
        self.random.reseed()
    }

    fn mix(&mut self, address: u64, length: u64) -> Result<(), Errno> {
        let kernel = &mut **self;
        let memory = &mut kernel.spaces[kernel.current].memory;
        kernel.random.mix(user::slice(memory, address, length)?);
        Ok(())
    }
}
