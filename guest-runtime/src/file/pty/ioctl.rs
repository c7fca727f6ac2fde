//! Requests on pseudo-terminals (ioctl_tty(2)).

use super::{Slave, settings};
use crate::convert::low_u32;
use crate::file::caller::{Caller, Identity};
use crate::file::pty::pair::{PtyId, Ptys};
use crate::mm::user;
use hartline_linux::capability::CAP_SYS_ADMIN;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::O_CLOEXEC;
use hartline_linux::ioctls::{
    TCFLSH, TCSBRK, TCSBRKP, TCXONC, TIOCGPGRP, TIOCGPKT, TIOCGPTLCK, TIOCGPTN, TIOCGPTPEER,
    TIOCGSID, TIOCGWINSZ, TIOCNOTTY, TIOCOUTQ, TIOCPKT, TIOCPKT_FLUSHREAD, TIOCPKT_FLUSHWRITE,
    TIOCSCTTY, TIOCSIG, TIOCSPGRP, TIOCSPTLCK, TIOCSWINSZ,
};
use hartline_linux::signal::{SIGCONT, SIGHUP};
use hartline_linux::termbits::{
    TCIFLUSH, TCIOFF, TCIOFLUSH, TCION, TCOFLUSH, TCOOFF, TCOON, VSTART, VSTOP, Winsize,
};

/// The side of a pseudo-terminal pair that a request is for.
#[derive(Debug, Clone, Copy)]
pub struct Side {
    /// The pair.
    pub id: PtyId,
    /// The side is the master.
    pub is_master: bool,
}

/// The pairs of the VM.
pub(super) fn ptys(caller: &mut dyn Caller) -> &mut Ptys {
    caller.io().0.ptys
}

/// Serves a request on a side of a pair.
///
/// # Errors
/// `ENOTTY` for an unknown request; the errors of ioctl_tty(2).
pub(super) fn ioctl(
    caller: &mut dyn Caller,
    side: Side,
    request: u32,
    address: u64,
) -> Result<u64, Errno> {
    let id = side.id;
    if !side.is_master && ptys(caller).get(id)?.is_hung_up() {
        return Err(Errno::EIO);
    }
    if let Some(done) = settings::ioctl(caller, side, request, address)? {
        return Ok(done);
    }
    match request {
        // Written output is already displayed, and no serial line can send a break.
        TCSBRK | TCSBRKP => check_change(caller, side)?,
        TCXONC | TCFLSH => {
            check_change(caller, side)?;
            return control_flow(caller, side, request, address);
        }
        TIOCOUTQ => user::write(caller.memory(), address, &0u32)?,
        TIOCGWINSZ => {
            let window = ptys(caller).get(id)?.window;
            user::write(caller.memory(), address, &window)?;
        }
        TIOCSWINSZ => {
            let window: Winsize = user::read(caller.memory(), address)?;
            ptys(caller).set_window(id, window)?;
        }
        _ if side.is_master => return master_request(caller, id, request, address),
        _ => return session_request(caller, side, request, address),
    }
    Ok(0)
}

/// `tcflow` and `tcflush`. The master's input is the slave's output.
fn control_flow(
    caller: &mut dyn Caller,
    side: Side,
    request: u32,
    action: u64,
) -> Result<u64, Errno> {
    ptys(caller).change_line(side.id, |line| {
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
                    line.set_packet_status(TIOCPKT_FLUSHREAD);
                }
                if what != TCIFLUSH {
                    line.flush_output();
                    line.set_packet_status(TIOCPKT_FLUSHWRITE);
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
    caller: &mut dyn Caller,
    id: PtyId,
    request: u32,
    address: u64,
) -> Result<u64, Errno> {
    match request {
        TIOCGPTN => user::write(caller.memory(), address, &id.0)?,
        TIOCGPTLCK => {
            let locked = u32::from(ptys(caller).get(id)?.locked);
            user::write(caller.memory(), address, &locked)?;
        }
        TIOCSPTLCK => {
            let locked: u32 = user::read(caller.memory(), address)?;
            ptys(caller).get_mut(id)?.locked = locked != 0;
        }
        TIOCPKT => {
            let on: u32 = user::read(caller.memory(), address)?;
            ptys(caller).get_mut(id)?.set_packets(on != 0);
        }
        TIOCGPKT => {
            let on = u32::from(ptys(caller).get(id)?.has_packets());
            user::write(caller.memory(), address, &on)?;
        }
        TIOCGPTPEER => {
            let flags = low_u32(address);
            let (mut io, process) = caller.io();
            let file = Slave::peer(io.ptys, process, id, flags)?;
            let fd = io.install(process, file, flags & O_CLOEXEC != 0)?;
            return Ok(u64::from(fd));
        }
        TIOCSIG => {
            let group = ptys(caller).get(id)?.foreground;
            caller.signal_group(group, address)?;
        }
        TIOCGPGRP => {
            let group = ptys(caller).get(id)?.foreground;
            user::write(caller.memory(), address, &group)?;
        }
        TIOCGSID => match ptys(caller).get(id)?.session {
            0 => return Err(Errno::ENOTTY),
            session => user::write(caller.memory(), address, &session)?,
        },
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}

/// Serves the requests about sessions and process groups, on a slave.
fn session_request(
    caller: &mut dyn Caller,
    side: Side,
    request: u32,
    address: u64,
) -> Result<u64, Errno> {
    if request == TIOCSCTTY {
        return take_control(caller, side.id, address);
    }
    let pair = ptys(caller).get(side.id)?;
    let (session, foreground) = (pair.session, pair.foreground);
    if session != caller.identity().terminal_session {
        return Err(Errno::ENOTTY);
    }
    match request {
        TIOCGPGRP => user::write(caller.memory(), address, &foreground)?,
        TIOCGSID => user::write(caller.memory(), address, &session)?,
        TIOCSPGRP => {
            let group = caller.new_foreground(session, foreground, address)?;
            ptys(caller).get_mut(side.id)?.foreground = group;
        }
        TIOCNOTTY if caller.identity().pid != session => caller.leave_own_terminal(),
        TIOCNOTTY => {
            caller.give_up_terminal(side.id, &[SIGHUP, SIGCONT]);
        }
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}

/// `TIOCSCTTY`: the leader of a session without a terminal takes this one. With `force` 1, a
/// privileged process takes the terminal from another session.
fn take_control(caller: &mut dyn Caller, id: PtyId, force: u64) -> Result<u64, Errno> {
    let Identity {
        pid,
        group,
        session: own,
        ..
    } = caller.identity();
    let (has_terminal, is_leader) = (caller.has_terminal(own), pid == own);
    let (io, process) = caller.io();
    let privileged = process.cred.has(CAP_SYS_ADMIN);
    let pair = io.ptys.get_mut(id)?;
    match pair.session {
        session if session == own && is_leader => return Ok(0),
        _ if !is_leader || has_terminal => return Err(Errno::EPERM),
        0 => {}
        _ if force == 1 && privileged => {}
        _ => return Err(Errno::EPERM),
    }
    pair.session = own;
    pair.foreground = group;
    caller.join_terminal();
    Ok(0)
}

/// Checks that the running process may change a terminal's settings: a background process is
/// stopped.
pub(super) fn check_change(caller: &mut dyn Caller, side: Side) -> Result<(), Errno> {
    let pair = ptys(caller).get(side.id)?;
    let (session, foreground) = (pair.session, pair.foreground);
    match side.is_master {
        true => Ok(()),
        false => caller.check_background_write(session, foreground),
    }
}
