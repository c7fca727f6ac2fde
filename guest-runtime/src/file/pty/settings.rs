//! Requests about the settings of a pseudo-terminal (ioctl_tty(2)).

use super::ioctl::{Side, check_change, ptys};
use super::pair::SLAVE_MAJOR;
use crate::convert::low_u32;
use crate::file::caller::Caller;
use crate::file::termios::Request;
use crate::fs::types::device_number;
use crate::mm::user;
use hartline_linux::capability::CAP_SYS_ADMIN;
use hartline_linux::errno::Errno;
use hartline_linux::ioctls::{
    TCGETS, TCSETSF, TIOCEXCL, TIOCGDEV, TIOCGETD, TIOCGEXCL, TIOCGLCKTRMIOS, TIOCGSOFTCAR,
    TIOCNXCL, TIOCPKT_FLUSHREAD, TIOCSETD, TIOCSLCKTRMIOS, TIOCSSOFTCAR,
};
use hartline_linux::termbits::{CLOCAL, N_TTY, Termios};

/// Serves a request about settings; none if it is another request.
///
/// # Errors
/// The errors of ioctl_tty(2).
pub(super) fn ioctl(
    caller: &mut dyn Caller,
    side: Side,
    request: u32,
    address: u64,
) -> Result<Option<u64>, Errno> {
    let id = side.id;
    if let Some(request) = Request::new(request) {
        return termios(caller, side, request, address);
    }
    match request {
        TIOCGLCKTRMIOS => {
            let fixed = ptys(caller).get(id)?.fixed;
            user::write(caller.memory(), address, &fixed)?;
        }
        TIOCSLCKTRMIOS => {
            let (_, process) = caller.io();
            if !process.cred.has(CAP_SYS_ADMIN) {
                return Err(Errno::EPERM);
            }
            let fixed: Termios = user::read(caller.memory(), address)?;
            ptys(caller).get_mut(id)?.fixed = fixed;
        }
        TIOCGSOFTCAR => {
            let flags = ptys(caller).get(id)?.line.termios.c_cflag;
            user::write(caller.memory(), address, &u32::from(flags & CLOCAL != 0))?;
        }
        TIOCSSOFTCAR => {
            let on: u32 = user::read(caller.memory(), address)?;
            let mut new = ptys(caller).get(id)?.line.termios;
            new.c_cflag = new.c_cflag & !CLOCAL | if on != 0 { CLOCAL } else { 0 };
            change(caller, side, new, false)?;
        }
        TIOCEXCL | TIOCNXCL => ptys(caller).get_mut(id)?.is_exclusive = request == TIOCEXCL,
        TIOCGEXCL => {
            let is_exclusive = u32::from(ptys(caller).get(id)?.is_exclusive);
            user::write(caller.memory(), address, &is_exclusive)?;
        }
        TIOCGETD => user::write(caller.memory(), address, &N_TTY)?,
        TIOCSETD => {
            let discipline: u32 = user::read(caller.memory(), address)?;
            if discipline != N_TTY {
                return Err(Errno::EINVAL);
            }
        }
        TIOCGDEV => {
            // The slave's, for both sides.
            let device = low_u32(device_number(SLAVE_MAJOR, id.0.into()));
            user::write(caller.memory(), address, &device)?;
        }
        _ => return Ok(None),
    }
    Ok(Some(0))
}

fn termios(
    caller: &mut dyn Caller,
    side: Side,
    request: Request,
    address: u64,
) -> Result<Option<u64>, Errno> {
    let current = ptys(caller).get(side.id)?.line.termios;
    if request.plain == TCGETS {
        request.write(caller.memory(), address, &current)?;
    } else {
        check_change(caller, side)?;
        let new = request.read(caller.memory(), address, &current)?;
        change(caller, side, new, request.plain == TCSETSF)?;
    }
    Ok(Some(0))
}

/// Sets the settings that are not fixed (`TIOCSLCKTRMIOS`); `flush` discards input.
fn change(caller: &mut dyn Caller, side: Side, mut new: Termios, flush: bool) -> Result<(), Errno> {
    let pair = ptys(caller).get(side.id)?;
    new.keep(&pair.line.termios, &pair.fixed);
    ptys(caller).change_line(side.id, |line| {
        if flush {
            line.flush_input();
            line.set_packet_status(TIOCPKT_FLUSHREAD);
        }
        line.set(new);
    })
}
