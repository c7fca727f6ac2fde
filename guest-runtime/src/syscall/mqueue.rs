//! POSIX message queues: `mq_open` and its relatives.

use super::Entry;
use super::socket::socket_id;
use super::time::read_timespec;
use crate::arch::clock;
use crate::convert::{low_u32, sign_extended, to_usize};
use crate::file::mqueue::{Limits, MessageQueue, NewQueue, Notice, OpenQueue, Registered};
use crate::file::operations::File;
use crate::kernel::Kernel;
use crate::kernel::signals::{SigInfo, check_number};
use crate::mm::user;
use crate::net::address::Family;
use crate::wait::time::NEVER;
use crate::wait::{READABLE, Registration, WRITABLE};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{
    O_ACCMODE, O_CLOEXEC, O_CREAT, O_EXCL, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY,
};
use hartline_linux::limits::NAME_MAX;
use hartline_linux::mqueue::{
    MQ_PRIO_MAX, MqAttr, NOTIFY_COOKIE_LEN, NOTIFY_REMOVED, NOTIFY_WOKENUP,
};
use hartline_linux::resource::RLIMIT_MSGQUEUE;
use hartline_linux::siginfo::{SIGEV_NONE, SIGEV_SIGNAL, SIGEV_THREAD, Sigevent};
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::mq_open, mq_open),
    (nr::mq_unlink, mq_unlink),
    (nr::mq_timedsend, mq_timedsend),
    (nr::mq_timedreceive, mq_timedreceive),
    (nr::mq_notify, mq_notify),
    (nr::mq_getsetattr, mq_getsetattr),
];

/// Reads the name of a queue, which the C library passes without its slash.
fn read_name(kernel: &mut Kernel, address: u64) -> Result<Vec<u8>, Errno> {
    let name = user::path(kernel.memory_mut(), address)?;
    match name.as_slice() {
        b"" => Err(Errno::ENOENT),
        b"." | b".." => Err(Errno::EACCES),
        name if name.contains(&b'/') => Err(Errno::EACCES),
        name if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
        _ => Ok(name),
    }
}

fn mq_open(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let [name, flags, mode, attributes, ..] = *a;
    let flags = low_u32(flags);
    let limits = match attributes {
        0 => Limits::DEFAULT,
        address => {
            let wanted: MqAttr = user::read(kernel.memory_mut(), address)?;
            Limits {
                messages: u64::try_from(wanted.mq_maxmsg).unwrap_or(0),
                size: u64::try_from(wanted.mq_msgsize).unwrap_or(0),
            }
        }
    };
    let name = read_name(kernel, name)?;
    let wanted = match flags & O_ACCMODE {
        O_RDONLY => 4,
        O_WRONLY => 2,
        O_RDWR => 6,
        _ => return Err(Errno::EINVAL),
    };
    let process = kernel.process();
    let new = (flags & O_CREAT != 0).then(|| NewQueue {
        mode: low_u32(mode) & 0o777 & !process.files.umask,
        limits,
        most: process.limits[RLIMIT_MSGQUEUE].rlim_cur,
    });
    process.files.fds.free_from(0)?;
    let cred = Rc::clone(&process.files.cred);
    let queues = &mut kernel.message_queues;
    let queue = queues.open(name, (wanted, flags & O_EXCL != 0), new, &cred)?;
    let file = Rc::new(OpenQueue {
        queue,
        registrant: Cell::new(None),
    });
    let (mut io, process) = kernel.io();
    let flags = flags & (O_ACCMODE | O_NONBLOCK) | O_CLOEXEC;
    Ok(u64::from(io.open_anonymous(process, file, flags)?))
}

fn mq_unlink(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let name = read_name(kernel, a[0])?;
    let cred = Rc::clone(&kernel.process().files.cred);
    kernel.message_queues.unlink(&name, &cred)?;
    Ok(0)
}

/// Returns the operations of the open file `fd`, which is a queue.
fn object(kernel: &Kernel, fd: u64) -> Result<Rc<dyn File>, Errno> {
    let file = kernel.file(fd)?;
    match file.object.is::<OpenQueue>() {
        true => Ok(Rc::clone(&file.object)),
        false => Err(Errno::EBADF),
    }
}

fn queue(kernel: &Kernel, fd: u64) -> Result<Rc<MessageQueue>, Errno> {
    let object = object(kernel, fd)?;
    let open: &OpenQueue = object.downcast().ok_or(Errno::EBADF)?;
    Ok(Rc::clone(&open.queue))
}

/// Returns the time limit of a call, given in time of `CLOCK_REALTIME`. A repeated call keeps it.
fn deadline(kernel: &mut Kernel, address: u64) -> Result<u64, Errno> {
    if let Some(retry) = kernel.task().retry {
        return Ok(retry.deadline);
    }
    if address == 0 {
        return Ok(NEVER);
    }
    let left = read_timespec(kernel, address)?.saturating_sub(clock::realtime());
    Ok(clock::monotonic().saturating_add(left).min(NEVER - 1))
}

/// Waits for a message (`READABLE`) or for room (`WRITABLE`).
fn wait(kernel: &mut Kernel, fd: u64, queue: &MessageQueue, events: u32, deadline: u64) -> Errno {
    match kernel.file(fd).map(|file| file.is_nonblocking()) {
        Ok(false) if kernel.has_passed(deadline) => Errno::ETIMEDOUT,
        Ok(false) => {
            let waiters = match events {
                READABLE => &queue.receivers,
                _ => &queue.senders,
            };
            let registration = Registration::new(waiters, events).exclusive();
            kernel.block_at(registration, deadline, 0)
        }
        Ok(true) => Errno::EAGAIN,
        Err(error) => error,
    }
}

fn mq_timedsend(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let [fd, address, length, priority, timeout, _] = *a;
    let deadline = deadline(kernel, timeout)?;
    let priority = low_u32(priority);
    if priority >= MQ_PRIO_MAX {
        return Err(Errno::EINVAL);
    }
    let queue = queue(kernel, fd)?;
    kernel.file(fd)?.check_writable()?;
    if length > queue.limits.size {
        return Err(Errno::EMSGSIZE);
    }
    let mut text = Vec::new();
    text.try_reserve_exact(to_usize(length))
        .map_err(|_| Errno::ENOMEM)?;
    user::slice(kernel.memory_mut(), address, length)?.append_to(&mut text);
    match queue.send(priority, text) {
        Ok(None) => {}
        Ok(Some(registered)) => notify(kernel, registered),
        Err(_) => return Err(wait(kernel, fd, &queue, WRITABLE, deadline)),
    }
    Ok(0)
}

/// Tells a process of a message that the running one has sent.
fn notify(kernel: &mut Kernel, registered: Registered) {
    match registered.notice {
        Notice::None => {}
        Notice::Signal(signal, value) => {
            let (pid, uid) = (kernel.process().pid, kernel.process().uid());
            let info = SigInfo::of_message(signal, (pid, uid), value);
            kernel.signal_process(registered.pid, info);
        }
        Notice::Thread(socket, mut cookie) => {
            cookie[NOTIFY_COOKIE_LEN - 1] = NOTIFY_WOKENUP;
            kernel.net.push_netlink(socket, cookie.to_vec(), 0);
        }
    }
}

fn mq_timedreceive(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let [fd, address, length, priority_at, timeout, _] = *a;
    let deadline = deadline(kernel, timeout)?;
    let queue = queue(kernel, fd)?;
    kernel.file(fd)?.check_readable()?;
    if length < queue.limits.size {
        return Err(Errno::EMSGSIZE);
    }
    let Ok((priority, text)) = queue.receive() else {
        return Err(wait(kernel, fd, &queue, READABLE, deadline));
    };
    if queue.count() > 0 {
        // One receiver is woken at a time.
        queue.receivers.wake(READABLE);
    }
    // As on Linux, a message is lost if the buffer is not writable.
    user::write_bytes(kernel.memory_mut(), address, &text)?;
    if priority_at != 0 {
        user::write(kernel.memory_mut(), priority_at, &priority)?;
    }
    Ok(text.len() as u64)
}

/// Reads how a process wants to be notified of a message.
fn read_notice(kernel: &mut Kernel, address: u64) -> Result<Notice, Errno> {
    let event: Sigevent = user::read(kernel.memory_mut(), address)?;
    match event.sigev_notify {
        SIGEV_NONE => Ok(Notice::None),
        SIGEV_SIGNAL => {
            let signal = check_number(sign_extended(event.sigev_signo))?;
            Ok(Notice::Signal(signal, event.sigev_value))
        }
        SIGEV_THREAD => {
            let cookie = user::read(kernel.memory_mut(), event.sigev_value)?;
            let socket = socket_id(kernel, sign_extended(event.sigev_signo))?;
            match kernel.net.get(socket)?.family {
                Family::Netlink => Ok(Notice::Thread(socket, cookie)),
                _ => Err(Errno::EINVAL),
            }
        }
        _ => Err(Errno::EINVAL),
    }
}

fn mq_notify(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let [fd, event, ..] = *a;
    let notice = match event {
        0 => None,
        address => Some(read_notice(kernel, address)?),
    };
    let object = object(kernel, fd)?;
    let open: &OpenQueue = object.downcast().ok_or(Errno::EBADF)?;
    let pid = kernel.process().pid;
    let Some(notice) = notice else {
        if let Some(Registered {
            notice: Notice::Thread(socket, mut cookie),
            ..
        }) = open.queue.unregister(pid)
        {
            cookie[NOTIFY_COOKIE_LEN - 1] = NOTIFY_REMOVED;
            kernel.net.push_netlink(socket, cookie.to_vec(), 0);
        }
        return Ok(0);
    };
    let lives = |pid| {
        let mut processes = kernel.processes();
        processes.any(|process| process.pid == pid && !process.is_zombie())
    };
    if (open.queue.registered.get()).is_some_and(|registered| lives(registered.pid)) {
        return Err(Errno::EBUSY);
    }
    open.queue.registered.set(Some(Registered { pid, notice }));
    open.registrant.set(Some(pid));
    Ok(0)
}

fn mq_getsetattr(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let [fd, new, old, ..] = *a;
    let new = match new {
        0 => None,
        address => Some(user::read::<MqAttr>(kernel.memory_mut(), address)?.mq_flags),
    };
    if new.is_some_and(|flags| flags & !i64::from(O_NONBLOCK) != 0) {
        return Err(Errno::EINVAL);
    }
    let queue = queue(kernel, fd)?;
    let file = kernel.file(fd)?;
    let attributes = MqAttr {
        mq_flags: i64::from(file.flags & O_NONBLOCK),
        mq_maxmsg: queue.limits.messages.cast_signed(),
        mq_msgsize: queue.limits.size.cast_signed(),
        mq_curmsgs: queue.count().cast_signed(),
        ..MqAttr::default()
    };
    if let Some(flags) = new {
        let (vfs, process) = kernel.file_state();
        let file = vfs.file_mut(process, low_u32(fd))?;
        file.flags &= !O_NONBLOCK;
        if flags != 0 {
            file.flags |= O_NONBLOCK;
        }
    }
    if old != 0 {
        user::write(kernel.memory_mut(), old, &attributes)?;
    }
    Ok(0)
}
