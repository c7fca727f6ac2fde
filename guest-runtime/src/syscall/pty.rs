//! Requests on pseudo-terminals, controlling terminals, and reads with a time limit.

use super::files::Files;
use crate::arch::clock;
use crate::fs::file::Object;
use crate::fs::process::FileId;
use crate::fs::pty::{PtyId, TerminalSignal};
use crate::kernel::Kernel;
use crate::kernel::process::{FIRST, NO_SESSION};
use crate::kernel::signals::{SigInfo, check_number};
use crate::kernel::task::{Event, Wait};
use crate::mm::user;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::O_CLOEXEC;
use hartline_linux::ioctls::{
    TCFLSH, TCGETS, TCSBRK, TCSBRKP, TCSETS, TCSETSF, TCSETSW, TCXONC, TIOCGPGRP, TIOCGPKT,
    TIOCGPTLCK, TIOCGPTN, TIOCGPTPEER, TIOCGSID, TIOCGWINSZ, TIOCNOTTY, TIOCOUTQ, TIOCPKT,
    TIOCPKT_FLUSHREAD, TIOCPKT_FLUSHWRITE, TIOCSCTTY, TIOCSIG, TIOCSPGRP, TIOCSPTLCK, TIOCSWINSZ,
};
use hartline_linux::siginfo::SI_KERNEL;
use hartline_linux::signal::{SIGCONT, SIGHUP};
use hartline_linux::termbits::{
    ICANON, TCIFLUSH, TCIOFF, TCIOFLUSH, TCION, TCOFLUSH, TCOOFF, TCOON, TOSTOP, Termios, VSTART,
    VSTOP, Winsize,
};

/// The side of a pseudo-terminal pair that a request is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    /// The pair.
    pub id: PtyId,
    /// The side is the master.
    pub is_master: bool,
}

/// Serves a request on a side of a pair.
///
/// # Errors
/// `ENOTTY` for an unknown request; the errors of ioctl_tty(2).
pub(super) fn ioctl(
    kernel: &mut Kernel,
    side: Side,
    request: u32,
    address: u64,
) -> Result<u64, Errno> {
    let id = side.id;
    if !side.is_master && kernel.files.vfs.ptys.get(id)?.is_hung_up() {
        return Err(Errno::EIO);
    }
    match request {
        TCGETS => {
            let settings = kernel.files.vfs.ptys.get(id)?.line.termios;
            user::write(&mut kernel.memory, address, &settings)?;
        }
        TCSETS | TCSETSW | TCSETSF => {
            kernel.check_change(side)?;
            let settings: Termios = user::read(&mut kernel.memory, address)?;
            kernel.files.vfs.change_line(id, |line| {
                if request == TCSETSF {
                    line.flush_input();
                    line.tell(TIOCPKT_FLUSHREAD);
                }
                line.set(settings);
            })?;
        }
        // Written output is already displayed, and no serial line can send a break.
        TCSBRK | TCSBRKP => kernel.check_change(side)?,
        TCXONC | TCFLSH => {
            kernel.check_change(side)?;
            return control_flow(kernel, side, request, address);
        }
        TIOCOUTQ => user::write(&mut kernel.memory, address, &0u32)?,
        TIOCGWINSZ => {
            let window = kernel.files.vfs.ptys.get(id)?.window;
            user::write(&mut kernel.memory, address, &window)?;
        }
        TIOCSWINSZ => {
            let window: Winsize = user::read(&mut kernel.memory, address)?;
            kernel.files.vfs.set_window(id, window)?;
        }
        _ if side.is_master => return master_request(kernel, id, request, address),
        _ => return session_request(kernel, side, request, address),
    }
    Ok(0)
}

/// `tcflow` and `tcflush`. The master's input is the slave's output.
fn control_flow(kernel: &mut Kernel, side: Side, request: u32, action: u64) -> Result<u64, Errno> {
    kernel.files.vfs.change_line(side.id, |line| {
        match (request, action) {
            (TCFLSH, TCIFLUSH) if side.is_master => line.flush_output(),
            (TCFLSH, TCOFLUSH) if side.is_master => line.flush_input(),
            (TCFLSH, TCIOFLUSH) if side.is_master => {
                line.flush_input();
                line.flush_output();
            }
            (TCFLSH, what @ TCIFLUSH..=TCIOFLUSH) => {
                if what != TCOFLUSH {
                    line.flush_input();
                    line.tell(TIOCPKT_FLUSHREAD);
                }
                if what != TCIFLUSH {
                    line.flush_output();
                    line.tell(TIOCPKT_FLUSHWRITE);
                }
            }
            (TCXONC, TCOOFF) => line.stop(true),
            (TCXONC, TCOON) => line.stop(false),
            (TCXONC, TCIOFF) => line.send(VSTOP),
            (TCXONC, TCION) => line.send(VSTART),
            _ => return Err(Errno::EINVAL),
        }
        Ok(0)
    })?
}

/// Serves the requests that only a master supports.
fn master_request(
    kernel: &mut Kernel,
    id: PtyId,
    request: u32,
    address: u64,
) -> Result<u64, Errno> {
    match request {
        TIOCGPTN => user::write(&mut kernel.memory, address, &id.0)?,
        TIOCGPTLCK => {
            let locked = u32::from(kernel.files.vfs.ptys.get(id)?.locked);
            user::write(&mut kernel.memory, address, &locked)?;
        }
        TIOCSPTLCK => {
            let locked: u32 = user::read(&mut kernel.memory, address)?;
            kernel.files.vfs.ptys.get_mut(id)?.locked = locked != 0;
        }
        TIOCPKT => {
            let on: u32 = user::read(&mut kernel.memory, address)?;
            kernel.files.vfs.ptys.get_mut(id)?.set_packets(on != 0);
        }
        TIOCGPKT => {
            let on = u32::from(kernel.files.vfs.ptys.get(id)?.has_packets());
            user::write(&mut kernel.memory, address, &on)?;
        }
        TIOCGPTPEER => {
            let flags = address as u32;
            let Files { vfs, process, .. } = &mut kernel.files;
            let file = vfs.peer(process, id, flags)?;
            let fd = vfs.install(process, file, flags & O_CLOEXEC != 0)?;
            return Ok(u64::from(fd));
        }
        TIOCSIG => {
            let signal = check_number(address)?;
            let group = kernel.files.vfs.ptys.get(id)?.foreground;
            if group != 0 {
                kernel.signal_group(group, SigInfo::sent(signal, SI_KERNEL, 0, 0));
            }
        }
        TIOCGPGRP => {
            let group = kernel.files.vfs.ptys.get(id)?.foreground;
            user::write(&mut kernel.memory, address, &group)?;
        }
        TIOCGSID => match kernel.files.vfs.ptys.get(id)?.session {
            0 => return Err(Errno::ENOTTY),
            session => user::write(&mut kernel.memory, address, &session)?,
        },
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}

/// Serves the requests about sessions and process groups, on a slave.
fn session_request(
    kernel: &mut Kernel,
    side: Side,
    request: u32,
    address: u64,
) -> Result<u64, Errno> {
    if request == TIOCSCTTY {
        return take_control(kernel, side.id, address);
    }
    let pair = kernel.files.vfs.ptys.get(side.id)?;
    let (session, foreground) = (pair.session, pair.foreground);
    if session != kernel.process.terminal_session() {
        return Err(Errno::ENOTTY);
    }
    match request {
        TIOCGPGRP => user::write(&mut kernel.memory, address, &foreground)?,
        TIOCGSID => user::write(&mut kernel.memory, address, &session)?,
        TIOCSPGRP => {
            let group = kernel.new_foreground(session, foreground, address)?;
            kernel.files.vfs.ptys.get_mut(side.id)?.foreground = group;
        }
        TIOCNOTTY if kernel.process.pid != session => kernel.leave_own_terminal(),
        TIOCNOTTY => {
            kernel.give_up_terminal(side.id, &[SIGHUP, SIGCONT]);
        }
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}

/// `TIOCSCTTY`: the leader of a session without a terminal takes this one. With `force` 1, a
/// privileged process takes the terminal from another session.
fn take_control(kernel: &mut Kernel, id: PtyId, force: u64) -> Result<u64, Errno> {
    let own = kernel.process.session;
    let has_terminal = kernel.has_terminal(own);
    let privileged = kernel.process.uid == 0;
    let is_leader = kernel.process.pid == own;
    let pair = kernel.files.vfs.ptys.get_mut(id)?;
    match pair.session {
        session if session == own && is_leader => return Ok(0),
        _ if !is_leader || has_terminal => return Err(Errno::EPERM),
        0 => {}
        _ if force == 1 && privileged => {}
        _ => return Err(Errno::EPERM),
    }
    pair.session = own;
    pair.foreground = kernel.process.group;
    kernel.process.has_no_terminal = false;
    kernel.files.process.session = own;
    Ok(0)
}

impl Kernel {
    /// Whether a session has a controlling terminal.
    fn has_terminal(&self, session: u32) -> bool {
        let of_vm = session == FIRST && self.host.boot().terminals != 0;
        of_vm || self.files.vfs.ptys.of_session(session).is_some()
    }

    /// Detaches the running process and its later children from the controlling terminal. Other
    /// processes of the session keep it.
    pub(super) fn leave_own_terminal(&mut self) {
        self.process.has_no_terminal = true;
        self.files.process.session = NO_SESSION;
    }

    /// Detaches the pair from its session; its foreground process group gets `signals`.
    fn give_up_terminal(&mut self, id: PtyId, signals: &[u8]) {
        let Ok(pair) = self.files.vfs.ptys.get_mut(id) else {
            return;
        };
        pair.session = 0;
        let foreground = core::mem::take(&mut pair.foreground);
        for &signal in signals {
            if foreground != 0 {
                self.signal_group(foreground, SigInfo::sent(signal, SI_KERNEL, 0, 0));
            }
        }
    }

    /// Releases the terminal when the running process, the leader of its session, exits. The
    /// foreground process group gets `SIGHUP`.
    pub(crate) fn leave_terminal(&mut self) {
        let pid = self.process.pid;
        if self.process.session == pid
            && let Some(id) = self.files.vfs.ptys.of_session(pid)
        {
            self.give_up_terminal(id, &[SIGHUP]);
        }
    }

    /// Sends the signals that operations on pseudo-terminals have queued.
    pub(crate) fn send_terminal_signals(&mut self) {
        for signal in core::mem::take(&mut self.files.vfs.ptys.signals) {
            match signal {
                TerminalSignal::Group(group, signal) => {
                    self.signal_group(group, SigInfo::sent(signal, SI_KERNEL, 0, 0));
                }
                TerminalSignal::Process(pid, signal) => {
                    self.signal_process(pid, SigInfo::sent(signal, SI_KERNEL, 0, 0));
                }
            }
        }
    }

    /// Checks that the running process may change a terminal's settings: a background process is
    /// stopped.
    fn check_change(&mut self, side: Side) -> Result<(), Errno> {
        let pair = self.files.vfs.ptys.get(side.id)?;
        let (session, foreground) = (pair.session, pair.foreground);
        match side.is_master {
            true => Ok(()),
            false => self.check_background_write(session, foreground),
        }
    }

    /// Checks that the running process may write to `id`: a background process is stopped if the
    /// terminal has `TOSTOP` set.
    ///
    /// # Errors
    /// As [`check_background_write`](Self::check_background_write).
    pub(super) fn check_output(&mut self, id: FileId) -> Result<(), Errno> {
        let Object::Slave(pty) = self.files.vfs.files.get(id)?.object else {
            return Ok(());
        };
        let pair = self.files.vfs.ptys.get(pty)?;
        if !pair.line.termios.has_local(TOSTOP) {
            return Ok(());
        }
        let (session, foreground) = (pair.session, pair.foreground);
        self.check_background_write(session, foreground)
    }

    /// Handles a read from `id` that found too few bytes. With the time limit of a slave's settings
    /// (`VTIME`), it waits and then returns the bytes there are. None if there is no such limit.
    ///
    /// # Errors
    /// The errors of reading and of waiting.
    pub(super) fn read_with_limit(
        &mut self,
        id: FileId,
        address: u64,
        count: u64,
    ) -> Result<Option<u64>, Errno> {
        /// The unit of `VTIME`, ns.
        const TENTH: u64 = clock::SECOND / 10;
        let file = self.files.vfs.files.get(id)?;
        let (Object::Slave(pty), ino) = (&file.object, file.ino) else {
            return Ok(None);
        };
        let pty = *pty;
        let line = &self.files.vfs.ptys.get(pty)?.line;
        let ((least, time), waiting) = (line.termios.raw_read(), line.input_length() as u64);
        if line.termios.has_local(ICANON) || time == 0 || (least > 0 && waiting == 0) {
            return Ok(None);
        }
        let now = clock::monotonic();
        let deadline = match self.task.retry {
            // The timer restarts with each byte.
            Some(retry) if retry.progress == waiting => retry.deadline,
            _ => now.saturating_add(time * TENTH),
        };
        if deadline > now {
            let wait = Wait {
                deadline,
                ..Wait::for_event(Event::File(ino))
            };
            return Err(self.block(wait, waiting));
        }
        let to = user::slice_mut(&mut self.memory, address, count)?;
        let done = self.files.vfs.read_slave(pty, to, true)?;
        Ok(Some(done as u64))
    }
}
