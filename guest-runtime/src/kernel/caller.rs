//! The running task as open files see it.

use crate::drivers::streams::Streams;
use crate::file::Io;
use crate::file::caller::{Caller, Identity, Waited};
use crate::file::view::View;
use crate::fs;
use crate::kernel::Kernel;
use crate::mm::{AddressSpace, user};
use crate::wait::{Registration, WaitQueue};
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
            caller: self,
        }
    }
}

impl Caller for Kernel {
    fn io(&mut self) -> (Io<'_>, &mut fs::process::Process) {
        self.io()
    }

    fn memory(&mut self) -> &mut AddressSpace {
        self.memory_mut()
    }

    fn io_and_memory(&mut self) -> (Io<'_>, &mut AddressSpace) {
        let io = Io {
            vfs: &mut self.vfs,
            net: &mut self.net,
            ptys: &mut self.ptys,
            disks: &mut self.disks,
        };
        (io, &mut self.spaces[self.current].memory)
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
        self.block_at(registration, deadline, progress)
    }

    fn await_disk(&mut self, progress: u64) -> Errno {
        self.await_disk(progress)
    }

    fn run_timers(&mut self) {
        self.run_timers();
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
        let memory = &mut self.spaces[self.current].memory;
        self.random.mix(user::slice(memory, address, length)?);
        Ok(())
    }
}
