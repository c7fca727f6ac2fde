//! Job control: which process groups may use a terminal, and controlling terminals of sessions.

use crate::file::caller::JobControl;
use crate::file::pty::pair::{PtyId, TerminalSignal};
use crate::kernel::Kernel;
use crate::kernel::caller::Calling;
use crate::kernel::process::{FIRST, NO_SESSION};
use crate::kernel::signals::{SigInfo, check_number};
use crate::mm::user;
use hartline_linux::errno::Errno;
use hartline_linux::siginfo::SI_KERNEL;
use hartline_linux::signal::{SIGCONT, SIGHUP, SIGTTIN, SIGTTOU};

impl JobControl for Calling {
    fn console_foreground(&mut self) -> &mut u32 {
        &mut self.foreground
    }

    fn check_background_read(&mut self, session: u32, foreground: u32) -> Result<(), Errno> {
        let (group, own) = (self.process().group, self.process().terminal_session());
        if own != session || group == foreground {
            return Ok(());
        }
        if self.signals().is_held(SIGTTIN) || self.is_orphaned(group, own) {
            return Err(Errno::EIO);
        }
        self.stop_background(SIGTTIN)
    }

    fn check_background_write(&mut self, session: u32, foreground: u32) -> Result<(), Errno> {
        let (own, group) = (self.process().terminal_session(), self.process().group);
        if own != session || group == foreground || self.signals().is_held(SIGTTOU) {
            return Ok(());
        }
        match self.is_orphaned(group, session) {
            true => Err(Errno::EIO),
            false => self.stop_background(SIGTTOU),
        }
    }

    fn new_foreground(
        &mut self,
        session: u32,
        foreground: u32,
        address: u64,
    ) -> Result<u32, Errno> {
        self.check_background_write(session, foreground)?;
        let group: u32 = user::read(self.memory_mut(), address)?;
        let mut processes = self.processes();
        let member = processes.find(|process| process.group == group);
        match member {
            None => Err(Errno::ESRCH),
            Some(member) if member.session != session => Err(Errno::EPERM),
            Some(_) => Ok(group),
        }
    }

    fn signal_group(&mut self, group: u32, signal: u64) -> Result<(), Errno> {
        let signal = check_number(signal)?;
        if group != 0 {
            Kernel::signal_group(self, group, SigInfo::sent(signal, SI_KERNEL, 0, 0));
        }
        Ok(())
    }

    fn has_terminal(&self, session: u32) -> bool {
        let of_vm = session == FIRST && self.host.boot().terminals != 0;
        of_vm || self.ptys.of_session(session).is_some()
    }

    fn join_terminal(&mut self) {
        let process = self.process_mut();
        process.has_no_terminal = false;
        process.files.session = process.session;
    }

    fn leave_own_terminal(&mut self) {
        self.process_mut().has_no_terminal = true;
        self.process_mut().files.session = NO_SESSION;
    }

    fn give_up_terminal(&mut self, id: PtyId, signals: &[u8]) {
        let Ok(pair) = self.ptys.get_mut(id) else {
            return;
        };
        pair.session = 0;
        let foreground = core::mem::take(&mut pair.foreground);
        for &signal in signals {
            if foreground != 0 {
                Kernel::signal_group(self, foreground, SigInfo::sent(signal, SI_KERNEL, 0, 0));
            }
        }
    }
}

impl Kernel {
    /// Sends a job-control signal to the running process's group, unless the process blocks or
    /// ignores it.
    fn stop_background(&mut self, signal: u8) -> Result<(), Errno> {
        if self.signals().is_held(signal) {
            return Ok(());
        }
        let info = SigInfo::sent(signal, SI_KERNEL, 0, 0);
        self.signal_group(self.process().group, info);
        Err(Errno::EINTR)
    }

    /// Releases the terminal when the running process, the leader of its session, exits. The
    /// foreground process group gets `SIGHUP`, and `SIGCONT` too if the terminal hung up before.
    pub(crate) fn leave_terminal(&mut self) {
        let pid = self.process().pid;
        if self.process().session == pid
            && let Some(id) = self.ptys.of_session(pid)
        {
            self.calling().give_up_terminal(id, &[SIGHUP]);
        }
        let foreground = core::mem::take(&mut self.process_mut().old_foreground);
        if foreground != 0 {
            for signal in [SIGHUP, SIGCONT] {
                self.signal_group(foreground, SigInfo::sent(signal, SI_KERNEL, 0, 0));
            }
        }
    }

    /// Sends the signals that operations on pseudo-terminals have queued.
    pub(crate) fn send_terminal_signals(&mut self) {
        for signal in core::mem::take(&mut self.ptys.signals) {
            match signal {
                TerminalSignal::Group(group, signal) => {
                    self.signal_group(group, SigInfo::sent(signal, SI_KERNEL, 0, 0));
                }
                TerminalSignal::HangUp { leader, foreground } => {
                    if let Some(process) = self.processes.get_mut(leader) {
                        process.old_foreground = foreground;
                    }
                    for signal in [SIGHUP, SIGCONT] {
                        self.signal_process(leader, SigInfo::sent(signal, SI_KERNEL, 0, 0));
                    }
                }
            }
        }
    }
}
