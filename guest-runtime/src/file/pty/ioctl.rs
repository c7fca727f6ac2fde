//! Requests on pseudo-terminals (ioctl_tty(2)).

use super::Slave;
use crate::file::pty::pair::PtyId;
use crate::kernel::Kernel;
use crate::kernel::signals::{SigInfo, check_number};
use crate::mm::user;
use hartline_linux::capability::CAP_SYS_ADMIN;
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
    TCIFLUSH, TCIOFF, TCIOFLUSH, TCION, TCOFLUSH, TCOOFF, TCOON, Termios, VSTART, VSTOP, Winsize,
};

/// The side of a pseudo-terminal pair that a request is for.
#[derive(Debug, Clone, Copy)]
pub struct Side {
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
    if !side.is_master && kernel.ptys.get(id)?.is_hung_up() {
        return Err(Errno::EIO);
    }
    match request {
        TCGETS => {
            let settings = kernel.ptys.get(id)?.line.termios;
            user::write(kernel.memory_mut(), address, &settings)?;
        }
        TCSETS | TCSETSW | TCSETSF => {
            check_change(kernel, side)?;
            let settings: Termios = user::read(kernel.memory_mut(), address)?;
            kernel.ptys.change_line(id, |line| {
                if request == TCSETSF {
                    line.flush_input();
                    line.tell(TIOCPKT_FLUSHREAD);
                }
                line.set(settings);
            })?;
        }
        // Written output is already displayed, and no serial line can send a break.
        TCSBRK | TCSBRKP => check_change(kernel, side)?,
        TCXONC | TCFLSH => {
            check_change(kernel, side)?;
            return control_flow(kernel, side, request, address);
        }
        TIOCOUTQ => user::write(kernel.memory_mut(), address, &0u32)?,
        TIOCGWINSZ => {
            let window = kernel.ptys.get(id)?.window;
            user::write(kernel.memory_mut(), address, &window)?;
        }
        TIOCSWINSZ => {
            let window: Winsize = user::read(kernel.memory_mut(), address)?;
            kernel.ptys.set_window(id, window)?;
        }
        _ if side.is_master => return master_request(kernel, id, request, address),
        _ => return session_request(kernel, side, request, address),
    }
    Ok(0)
}

/// `tcflow` and `tcflush`. The master's input is the slave's output.
fn control_flow(kernel: &mut Kernel, side: Side, request: u32, action: u64) -> Result<u64, Errno> {
    kernel.ptys.change_line(side.id, |line| {
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
        TIOCGPTN => user::write(kernel.memory_mut(), address, &id.0)?,
        TIOCGPTLCK => {
            let locked = u32::from(kernel.ptys.get(id)?.locked);
            user::write(kernel.memory_mut(), address, &locked)?;
        }
        TIOCSPTLCK => {
            let locked: u32 = user::read(kernel.memory_mut(), address)?;
            kernel.ptys.get_mut(id)?.locked = locked != 0;
        }
        TIOCPKT => {
            let on: u32 = user::read(kernel.memory_mut(), address)?;
            kernel.ptys.get_mut(id)?.set_packets(on != 0);
        }
        TIOCGPKT => {
            let on = u32::from(kernel.ptys.get(id)?.has_packets());
            user::write(kernel.memory_mut(), address, &on)?;
        }
        TIOCGPTPEER => {
            let flags = address as u32;
            let (mut io, process) = kernel.io();
            let file = Slave::peer(io.ptys, process, id, flags)?;
            let fd = io.install(process, file, flags & O_CLOEXEC != 0)?;
            return Ok(u64::from(fd));
        }
        TIOCSIG => {
            let signal = check_number(address)?;
            let group = kernel.ptys.get(id)?.foreground;
            if group != 0 {
                kernel.signal_group(group, SigInfo::sent(signal, SI_KERNEL, 0, 0));
            }
        }
        TIOCGPGRP => {
            let group = kernel.ptys.get(id)?.foreground;
            user::write(kernel.memory_mut(), address, &group)?;
        }
        TIOCGSID => match kernel.ptys.get(id)?.session {
            0 => return Err(Errno::ENOTTY),
            session => user::write(kernel.memory_mut(), address, &session)?,
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
    let pair = kernel.ptys.get(side.id)?;
    let (session, foreground) = (pair.session, pair.foreground);
    if session != kernel.process().terminal_session() {
        return Err(Errno::ENOTTY);
    }
    match request {
        TIOCGPGRP => user::write(kernel.memory_mut(), address, &foreground)?,
        TIOCGSID => user::write(kernel.memory_mut(), address, &session)?,
        TIOCSPGRP => {
            let group = kernel.new_foreground(session, foreground, address)?;
            kernel.ptys.get_mut(side.id)?.foreground = group;
        }
        TIOCNOTTY if kernel.process().pid != session => kernel.leave_own_terminal(),
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
    let own = kernel.process().session;
    let has_terminal = kernel.has_terminal(own);
    let privileged = kernel.process().has(CAP_SYS_ADMIN);
    let is_leader = kernel.process().pid == own;
    let group = kernel.process().group;
    let pair = kernel.ptys.get_mut(id)?;
    match pair.session {
        session if session == own && is_leader => return Ok(0),
        _ if !is_leader || has_terminal => return Err(Errno::EPERM),
        0 => {}
        _ if force == 1 && privileged => {}
        _ => return Err(Errno::EPERM),
    }
    pair.session = own;
    pair.foreground = group;
    kernel.process_mut().has_no_terminal = false;
    kernel.process_mut().files.session = own;
    Ok(0)
}

/// Checks that the running process may change a terminal's settings: a background process is
/// stopped.
fn check_change(kernel: &mut Kernel, side: Side) -> Result<(), Errno> {
    let pair = kernel.ptys.get(side.id)?;
    let (session, foreground) = (pair.session, pair.foreground);
    match side.is_master {
        true => Ok(()),
        false => kernel.check_background_write(session, foreground),
    }
}
