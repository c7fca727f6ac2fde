//! Signal-driven I/O (`O_ASYNC`): the signals for the owners of files.

use crate::file::asynchronous::{FileEvent, FileOwner, Whom};
use crate::kernel::Kernel;
use crate::kernel::process::Process;
use crate::kernel::signals::SigInfo;
use alloc::vec::Vec;
use hartline_linux::poll::{POLLIN, POLLMSG, POLLOUT, POLLRDNORM, POLLWRBAND, POLLWRNORM};
use hartline_linux::siginfo::{POLL_IN, POLL_MSG, POLL_OUT, SI_KERNEL};
use hartline_linux::signal::SIGIO;

/// The signals for an event: plain `SIGIO`, or the chosen signal, once for readable, once for
/// writable and once for a lease or a directory.
fn signals(event: &FileEvent) -> Vec<SigInfo> {
    /// Signal codes, with the events that poll(2) would report.
    const CODES: [(i32, u32); 3] = [
        (POLL_IN, POLLIN | POLLRDNORM),
        (POLL_OUT, POLLOUT | POLLWRNORM | POLLWRBAND),
        (POLL_MSG, POLLIN | POLLRDNORM | POLLMSG),
    ];
    match event.signal {
        0 => Vec::from([SigInfo::sent(SIGIO, SI_KERNEL, 0, 0)]),
        signal => (CODES.into_iter().zip(event.kinds))
            .filter(|&(_, happened)| happened)
            .map(|((code, band), _)| SigInfo::of_file(signal, code, band.into(), event.fd))
            .collect(),
    }
}

impl Kernel {
    /// Sends the owners of files the signals for pending events.
    pub(crate) fn send_file_signals(&mut self) {
        for event in self.vfs.take_file_events() {
            for info in signals(&event) {
                self.tell_owner(event.owner, info);
            }
        }
    }

    /// Sends a signal to those owner processes that the user who set the owner may signal.
    fn tell_owner(&mut self, owner: FileOwner, info: SigInfo) {
        let may = |process: &Process| owner.may_signal(process.credentials());
        match owner.whom {
            Whom::Thread(tid) => {
                let pid = self.tasks.get_mut(tid).map(|task| task.pid);
                let mut processes = self.processes();
                if processes.any(|process| Some(process.pid) == pid && may(process)) {
                    drop(processes);
                    self.signal_thread(tid, info);
                }
            }
            Whom::Process(_) | Whom::Group(_) => {
                let chosen: Vec<u32> = (self.processes())
                    .filter(|process| match owner.whom {
                        Whom::Group(id) => process.group == id,
                        Whom::Process(id) | Whom::Thread(id) => process.pid == id,
                    })
                    .filter(|process| may(process))
                    .map(|process| process.pid)
                    .collect();
                for pid in chosen {
                    self.signal_process(pid, info);
                }
            }
        }
    }
}
