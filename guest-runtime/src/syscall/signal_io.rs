//! Signal-driven I/O: the owners of files, and their signals ([`crate::kernel::file_signals`]).

use crate::convert::low_u32;
use crate::file::asynchronous::{FileOwner, Whom};
use crate::kernel::Kernel;
use crate::mm::user;
use crate::wait::ALL;
use crate::wait::poll::PollTable;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{F_OWNER_PGRP, F_OWNER_PID, F_OWNER_TID, FOwnerEx};
use hartline_linux::signal::_NSIG;

/// Sets the owner of a file (`F_SETOWN`): the process `who`, or the group `-who`; no owner if it is
/// 0.
///
/// # Errors
/// `ESRCH`, `EINVAL`, `EBADF`.
pub(super) fn set_owner(kernel: &mut Kernel, fd: u64, who: i32) -> Result<u64, Errno> {
    let whom = match who {
        0 => None,
        1.. => Some(Whom::Process(who.cast_unsigned())),
        i32::MIN => return Err(Errno::EINVAL),
        _ => Some(Whom::Group(who.unsigned_abs())),
    };
    store_owner(kernel, fd, whom)
}

/// Returns the owner of a file (`F_GETOWN`); 0 if there is none or it has ended.
///
/// # Errors
/// `EBADF`.
pub(super) fn owner(kernel: &mut Kernel, fd: u64) -> Result<i32, Errno> {
    let owner = owner_of(kernel, fd)?;
    Ok(match owner.r#type {
        F_OWNER_PGRP => -owner.pid,
        _ => owner.pid,
    })
}

/// Sets the owner from the `struct f_owner_ex` at `address` (`F_SETOWN_EX`).
///
/// # Errors
/// The errors of [`set_owner`]; `EFAULT`.
pub(super) fn set_owner_ex(kernel: &mut Kernel, fd: u64, address: u64) -> Result<u64, Errno> {
    let owner: FOwnerEx = user::read(kernel.memory_mut(), address)?;
    let id = owner.pid.cast_unsigned();
    let whom = match owner.r#type {
        F_OWNER_TID => Whom::Thread(id),
        F_OWNER_PID => Whom::Process(id),
        F_OWNER_PGRP => Whom::Group(id),
        _ => return Err(Errno::EINVAL),
    };
    store_owner(kernel, fd, Some(whom).filter(|_| id != 0))
}

/// Stores the owner in the `struct f_owner_ex` at `address` (`F_GETOWN_EX`).
///
/// # Errors
/// The errors of [`owner`]; `EFAULT`.
pub(super) fn owner_ex(kernel: &mut Kernel, fd: u64, address: u64) -> Result<u64, Errno> {
    let owner = owner_of(kernel, fd)?;
    user::write(kernel.memory_mut(), address, &owner)?;
    Ok(0)
}

/// Sets the signal that notifies the owner (`F_SETSIG`); 0 for `SIGIO`.
///
/// # Errors
/// `EINVAL`, `EBADF`.
pub(super) fn set_signal(kernel: &mut Kernel, fd: u64, signal: u64) -> Result<u64, Errno> {
    let signal = u8::try_from(signal).map_err(|_| Errno::EINVAL)?;
    if signal > _NSIG {
        return Err(Errno::EINVAL);
    }
    let (vfs, process) = kernel.file_state();
    vfs.file_mut(process, low_u32(fd))?.notice.signal = signal;
    Ok(0)
}

/// Notes the descriptor of a file whose owner is to receive signals; without an owner, the running
/// process becomes it.
///
/// # Errors
/// `EBADF`.
pub(super) fn own(kernel: &mut Kernel, fd: u64) -> Result<(), Errno> {
    let (vfs, process) = kernel.file_state();
    let notice = &mut vfs.file_mut(process, low_u32(fd))?.notice;
    notice.fd = low_u32(fd);
    let own = FileOwner::new(Whom::Process(process.pid), &process.cred);
    notice.owner = notice.owner.or(Some(own));
    Ok(())
}

fn owner_of(kernel: &mut Kernel, fd: u64) -> Result<FOwnerEx, Errno> {
    let owner = kernel.file(fd)?.notice.owner;
    let (kind, id) = match owner.map(|owner| owner.whom) {
        None => (F_OWNER_TID, 0),
        Some(Whom::Thread(id)) => (F_OWNER_TID, id),
        Some(Whom::Process(id)) => (F_OWNER_PID, id),
        Some(Whom::Group(id)) => (F_OWNER_PGRP, id),
    };
    let lives = owner.is_some_and(|owner| exists(kernel, owner.whom));
    let pid = if lives { id.cast_signed() } else { 0 };
    Ok(FOwnerEx { r#type: kind, pid })
}

fn exists(kernel: &mut Kernel, whom: Whom) -> bool {
    match whom {
        Whom::Thread(id) => kernel.program_task(id).is_some(),
        Whom::Process(id) => kernel.processes().any(|process| process.pid == id),
        Whom::Group(id) => kernel.processes().any(|process| process.group == id),
    }
}

fn store_owner(kernel: &mut Kernel, fd: u64, whom: Option<Whom>) -> Result<u64, Errno> {
    if whom.is_some_and(|whom| !exists(kernel, whom)) {
        return Err(Errno::ESRCH);
    }
    let (vfs, process) = kernel.file_state();
    let file = vfs.file_mut(process, low_u32(fd))?;
    file.notice.owner = whom.map(|whom| FileOwner::new(whom, &process.cred));
    Ok(0)
}

/// Enables or disables signals to the owner of the file behind a descriptor (`O_ASYNC`).
///
/// # Errors
/// The errors of [`Vfs::set_asynchronous`](crate::file::Vfs::set_asynchronous).
pub(super) fn set_asynchronous(kernel: &mut Kernel, fd: u64, on: bool) -> Result<(), Errno> {
    let file = kernel.file(fd)?;
    let mut table = PollTable::collecting(ALL, Vec::new());
    file.object.poll(&kernel.view(), file, &mut table);
    if table.input {
        table.wait(&kernel.streams.input_waiters);
    }
    let (mut io, process) = kernel.io();
    io.set_asynchronous(process, low_u32(fd), on, table.into_registrations())?;
    if io.vfs.awaits_input {
        // Standard input is polled in the ticks.
        kernel.start_ticking();
    }
    Ok(())
}
