//! Asynchronous I/O: `io_setup`, `io_submit` and their relatives.

use super::Entry;
use super::files_io::{pread64, preadv, pwrite64, pwritev, read, readv, write, writev};
use super::files_sync::sync_file;
use super::memory::munmap;
use super::poll::{ALWAYS, read_timeout, with_mask};
use crate::arch::clock;
use crate::convert::low_u32;
use crate::file::eventfd::EventFd;
use crate::file::operations::{File, Mode};
use crate::kernel::Kernel;
use crate::kernel::aio::{Context, PollRequest};
use crate::mm::{Backing, Label, MapLocation, MapRequest, Protection, VmFlags, user};
use crate::wait::poll::PollTable;
use crate::wait::{READABLE, Registration};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::mem::offset_of;
use hartline_abi::layout::PAGE_SIZE;
use hartline_linux::aio_abi::{
    AioSigset, IOCB_CMD_FDSYNC, IOCB_CMD_FSYNC, IOCB_CMD_POLL, IOCB_CMD_PREAD, IOCB_CMD_PREADV,
    IOCB_CMD_PWRITE, IOCB_CMD_PWRITEV, IOCB_FLAG_RESFD, IoEvent, Iocb,
};
use hartline_linux::errno::Errno;
use hartline_linux::mman::{PROT_READ, PROT_WRITE};
use hartline_linux::poll::POLLNVAL;
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::io_setup, io_setup),
    (nr::io_destroy, io_destroy),
    (nr::io_submit, io_submit),
    (nr::io_cancel, io_cancel),
    (nr::io_getevents, io_getevents),
    (nr::io_pgetevents, io_pgetevents),
];

/// Most events of a context.
const MAX_EVENTS: u32 = (1 << 28) / low_u32(size_of::<IoEvent>() as u64);
/// Offset of the field that the kernel sets in a `struct iocb`.
const KEY: u64 = offset_of!(Iocb, aio_key) as u64;

fn context(kernel: &mut Kernel, id: u64) -> Result<&mut Context, Errno> {
    kernel.space_mut().aio.get_mut(id)
}

fn io_setup(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (events, address) = (low_u32(a[0]), a[1]);
    let old: u64 = user::read(kernel.memory_mut(), address)?;
    if old != 0 || !(1..=MAX_EVENTS).contains(&events) {
        return Err(Errno::EINVAL);
    }
    kernel.space_mut().aio.check(events)?;
    // libaio reads the memory at the address that is the context's name. Without a number that the
    // library knows, it makes the system call.
    let id = kernel.memory_mut().map(MapRequest {
        location: MapLocation::Hint(0),
        length: PAGE_SIZE,
        protection: Protection::from_bits(PROT_READ | PROT_WRITE)?,
        shared: false,
        no_reserve: false,
        backing: Backing::Zero,
        label: Label::None,
        flags: VmFlags::NONE,
    })?;
    if let Err(error) = user::write(kernel.memory_mut(), address, &id) {
        unmap(kernel, id)?;
        return Err(error);
    }
    kernel.space_mut().aio.insert(id, events);
    Ok(0)
}

fn unmap(kernel: &mut Kernel, id: u64) -> Result<u64, Errno> {
    munmap(kernel, &[id, PAGE_SIZE, 0, 0, 0, 0])
}

fn io_destroy(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let polls = kernel.space_mut().aio.remove(a[0])?;
    kernel.drop_polls(polls);
    unmap(kernel, a[0])
}

fn io_submit(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let [id, count, list, ..] = *a;
    if count.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    context(kernel, id)?;
    let mut done = kernel.task().retry.map_or(0, |retry| retry.submitted);
    while done < count {
        let result = submit(kernel, id, list.wrapping_add(done.wrapping_mul(8)));
        match result {
            Ok(()) => done += 1,
            Err(Errno::ERESTARTSYS) => {
                if let Some(retry) = &mut kernel.task_mut().retry {
                    retry.submitted = done;
                }
                return Err(Errno::ERESTARTSYS);
            }
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
        // The progress of this operation does not count for the next one.
        kernel.task_mut().retry = None;
    }
    Ok(done)
}

/// Executes the operation whose address is at `location`, and adds its event to a context. An error is
/// one of the request; errors of the operation are in the event.
fn submit(kernel: &mut Kernel, id: u64, location: u64) -> Result<(), Errno> {
    let address: u64 = user::read(kernel.memory_mut(), location)?;
    let request: Iocb = user::read(kernel.memory_mut(), address)?;
    if request.aio_reserved2 != 0 || request.aio_nbytes.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    if !context(kernel, id)?.has_room() {
        return Err(Errno::EAGAIN);
    }
    check(kernel, &request)?;
    let notified = match request.aio_flags & IOCB_FLAG_RESFD {
        0 => None,
        _ => Some(event_file(kernel, request.aio_resfd)?),
    };
    user::write(kernel.memory_mut(), address.wrapping_add(KEY), &0u32)?;
    if request.aio_lio_opcode == IOCB_CMD_POLL {
        return poll(kernel, id, (address, &request), notified);
    }
    let res = match execute(kernel, &request) {
        Ok(count) => count.cast_signed(),
        Err(Errno::ERESTARTSYS) => return Err(Errno::ERESTARTSYS),
        Err(Errno::EINVAL)
            if matches!(request.aio_lio_opcode, IOCB_CMD_FSYNC | IOCB_CMD_FDSYNC) =>
        {
            return Err(Errno::EINVAL);
        }
        Err(error) => -(error.number() as i64),
    };
    complete(kernel, id, (address, &request), res, notified)
}

/// Adds the event of a request at `address`, and tells an eventfd.
fn complete(
    kernel: &mut Kernel,
    id: u64,
    (address, request): (u64, &Iocb),
    res: i64,
    notified: Option<Rc<dyn File>>,
) -> Result<(), Errno> {
    context(kernel, id)?.complete(IoEvent {
        data: request.aio_data,
        obj: address,
        res,
        res2: 0,
    });
    if let Some(file) = notified
        .as_deref()
        .and_then(<dyn File>::downcast::<EventFd>)
    {
        file.signal();
    }
    Ok(())
}

/// Waits for events of a file, without blocking the caller.
fn poll(
    kernel: &mut Kernel,
    id: u64,
    (address, request): (u64, &Iocb),
    notified: Option<Rc<dyn File>>,
) -> Result<(), Errno> {
    let events = low_u32(request.aio_buf) | ALWAYS & !POLLNVAL;
    let file_id = kernel.file_id(request.aio_fildes.into())?;
    let file = kernel.vfs.files.get(file_id)?;
    let mut table = PollTable::collecting(events, Vec::new());
    let mut ready = file.object.poll(&kernel.view(), file, &mut table);
    let input = table.input && events & READABLE != 0;
    if input {
        table.wait(&kernel.streams.input_waiters);
        if kernel.streams.poll_input() {
            ready |= READABLE;
        }
    }
    let registrations = table.into_registrations();
    match ready & events {
        // As on Linux, a file that is always ready cannot be waited for.
        0 if registrations.is_empty() => Err(Errno::EINVAL),
        0 => {
            kernel.add_poll(
                PollRequest {
                    context: (kernel.current.space, id),
                    request: address,
                    data: request.aio_data,
                    file: file_id,
                    events,
                    notified,
                },
                registrations,
            )?;
            if input {
                // Standard input is polled in the ticks.
                kernel.vfs.awaits_input = true;
                kernel.start_ticking();
            }
            Ok(())
        }
        ready => complete(kernel, id, (address, request), ready.into(), notified),
    }
}

/// The eventfd `fd`.
fn event_file(kernel: &Kernel, fd: u32) -> Result<Rc<dyn File>, Errno> {
    let object = Rc::clone(&kernel.file(fd.into())?.object);
    match object.is::<EventFd>() {
        true => Ok(object),
        false => Err(Errno::EINVAL),
    }
}

/// Checks the operation, the descriptor and the position of a request.
fn check(kernel: &Kernel, request: &Iocb) -> Result<(), Errno> {
    let file = kernel.file(request.aio_fildes.into())?;
    match request.aio_lio_opcode {
        IOCB_CMD_PREAD | IOCB_CMD_PREADV => file.check_readable()?,
        IOCB_CMD_PWRITE | IOCB_CMD_PWRITEV => file.check_writable()?,
        IOCB_CMD_FSYNC | IOCB_CMD_FDSYNC => {}
        IOCB_CMD_POLL => {
            let is_bad = request.aio_offset != 0
                || request.aio_nbytes != 0
                || request.aio_rw_flags != 0
                || request.aio_buf > u64::from(u16::MAX);
            return if is_bad { Err(Errno::EINVAL) } else { Ok(()) };
        }
        _ => return Err(Errno::EINVAL),
    }
    match request.aio_rw_flags {
        _ if request.aio_offset < 0 => Err(Errno::EINVAL),
        0 => Ok(()),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

fn execute(kernel: &mut Kernel, request: &Iocb) -> Result<u64, Errno> {
    let fd = u64::from(request.aio_fildes);
    let has_position = kernel.file(fd)?.mode.has(Mode::PREAD);
    let offset = request.aio_offset.cast_unsigned();
    let a = &[fd, request.aio_buf, request.aio_nbytes, offset, 0, 0];
    match (request.aio_lio_opcode, has_position) {
        (IOCB_CMD_PREAD, true) => pread64(kernel, a),
        (IOCB_CMD_PREAD, false) => read(kernel, a),
        (IOCB_CMD_PREADV, true) => preadv(kernel, a),
        (IOCB_CMD_PREADV, false) => readv(kernel, a),
        (IOCB_CMD_PWRITE, true) => pwrite64(kernel, a),
        (IOCB_CMD_PWRITE, false) => write(kernel, a),
        (IOCB_CMD_PWRITEV, true) => pwritev(kernel, a),
        (IOCB_CMD_PWRITEV, false) => writev(kernel, a),
        (operation, _) => sync_file(kernel, fd, operation == IOCB_CMD_FDSYNC),
    }
}

/// Only operations that wait for a file are not complete when they are submitted.
fn io_cancel(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let key: u32 = user::read(kernel.memory_mut(), a[1].wrapping_add(KEY))?;
    if key != 0 {
        return Err(Errno::EINVAL);
    }
    let poll = context(kernel, a[0])?.poll(a[1]).ok_or(Errno::EINVAL)?;
    // As on Linux, the event of the operation reports the end.
    kernel.complete_poll(&poll, 0);
    Err(Errno::EINPROGRESS)
}

fn io_getevents(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let [id, least, most, events, timeout, _] = *a;
    let timeout = read_timeout(kernel.memory_mut(), timeout)?;
    let deadline = kernel.deadline(timeout);
    let least = usize::try_from(least.cast_signed()).map_err(|_| Errno::EINVAL)?;
    let most = usize::try_from(most.cast_signed()).map_err(|_| Errno::EINVAL)?;
    if least > most {
        return Err(Errno::EINVAL);
    }
    let context = context(kernel, id)?;
    let available = context.events.len();
    if available < least && deadline > clock::monotonic() {
        let registration = Registration::new(&context.waiters, READABLE);
        match kernel.block_at(registration, deadline, 0) {
            Errno::EINTR if available > 0 => {}
            error => return Err(error),
        }
    }
    let context = self::context(kernel, id)?;
    let taken: Vec<IoEvent> = context.events.iter().take(most).copied().collect();
    for (n, event) in taken.iter().enumerate() {
        let at = events.wrapping_add((n * size_of::<IoEvent>()) as u64);
        user::write(kernel.memory_mut(), at, event)?;
    }
    self::context(kernel, id)?.events.drain(..taken.len());
    Ok(taken.len() as u64)
}

fn io_pgetevents(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let set = match a[5] {
        0 => AioSigset {
            sigmask: 0,
            sigsetsize: 0,
        },
        address => user::read(kernel.memory_mut(), address)?,
    };
    let arguments = *a;
    with_mask(kernel, set.sigmask, set.sigsetsize, |kernel| {
        io_getevents(kernel, &arguments)
    })
}
