//! `syslog`: the kernel's log.

use super::Entry;
use super::system::{RELEASE, VERSION};
use crate::convert::{low_i32, low_u8, to_usize};
use crate::kernel::Kernel;
use crate::kernel::log::KernelLog;
use crate::kernel::task::{Event, Wait};
use crate::mm::user;
use alloc::vec::Vec;
use hartline_linux::capability::CAP_SYSLOG;
use hartline_linux::errno::Errno;
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[(nr::syslog, syslog)];

/// Actions (`include/linux/syslog.h`).
const SYSLOG_ACTION_CLOSE: i32 = 0;
const SYSLOG_ACTION_OPEN: i32 = 1;
const SYSLOG_ACTION_READ: i32 = 2;
const SYSLOG_ACTION_READ_ALL: i32 = 3;
const SYSLOG_ACTION_READ_CLEAR: i32 = 4;
const SYSLOG_ACTION_CLEAR: i32 = 5;
const SYSLOG_ACTION_CONSOLE_OFF: i32 = 6;
const SYSLOG_ACTION_CONSOLE_ON: i32 = 7;
const SYSLOG_ACTION_CONSOLE_LEVEL: i32 = 8;
const SYSLOG_ACTION_SIZE_UNREAD: i32 = 9;
const SYSLOG_ACTION_SIZE_BUFFER: i32 = 10;

/// As with the setting `dmesg_restrict`, all actions need `CAP_SYSLOG`.
fn syslog(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    const TEXT: [&str; 2] = [RELEASE, VERSION];
    let (action, buffer, length) = (low_i32(a[0]), a[1], low_i32(a[2]));
    if !kernel.process().has(CAP_SYSLOG) {
        return Err(Errno::EPERM);
    }
    match action {
        SYSLOG_ACTION_READ | SYSLOG_ACTION_READ_ALL | SYSLOG_ACTION_READ_CLEAR => {
            let length = u64::try_from(length).map_err(|_| Errno::EINVAL)?;
            match (buffer, length) {
                (0, _) => return Err(Errno::EINVAL),
                (_, 0) => return Ok(0),
                _ => {}
            }
            if action == SYSLOG_ACTION_READ {
                let mut text = kernel.log.unread(TEXT);
                if text.is_empty() {
                    return Err(kernel.block(Wait::for_event(Event::Nothing), 0));
                }
                text.truncate(to_usize(length));
                let count = write(kernel, buffer, &text)?;
                kernel.log.advance(text.len());
                return Ok(count);
            }
            let text: Vec<u8> = kernel.log.all(TEXT, to_usize(length));
            let count = write(kernel, buffer, &text)?;
            if action == SYSLOG_ACTION_READ_CLEAR {
                kernel.log.clear();
            }
            return Ok(count);
        }
        SYSLOG_ACTION_CLOSE | SYSLOG_ACTION_OPEN => {}
        SYSLOG_ACTION_CLEAR => kernel.log.clear(),
        SYSLOG_ACTION_CONSOLE_OFF => kernel.log.set_console(false),
        SYSLOG_ACTION_CONSOLE_ON => kernel.log.set_console(true),
        SYSLOG_ACTION_CONSOLE_LEVEL => match length {
            1..=8 => kernel.log.set_level(low_u8(a[2] & 0xff)),
            _ => return Err(Errno::EINVAL),
        },
        SYSLOG_ACTION_SIZE_UNREAD => return Ok(kernel.log.unread(TEXT).len() as u64),
        SYSLOG_ACTION_SIZE_BUFFER => return Ok(KernelLog::SIZE),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// Writes text to the program; returns its length.
fn write(kernel: &mut Kernel, address: u64, text: &[u8]) -> Result<u64, Errno> {
    user::write_bytes(kernel.memory_mut(), address, text)?;
    Ok(text.len() as u64)
}
