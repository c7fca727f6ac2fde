//! `msgget`, `msgsnd`, `msgrcv` and `msgctl`.

use super::super::Entry;
use super::{current_cred, now, wake_all};
use crate::convert::{low_i32, sign_extended, to_usize};
use crate::ipc::{Message, Object, Queue, Selection};
use crate::kernel::Kernel;
use crate::kernel::task::{Event, Wait};
use crate::mm::user;
use alloc::vec::Vec;
use hartline_linux::capability::CAP_SYS_RESOURCE;
use hartline_linux::errno::Errno;
use hartline_linux::ipc::{IPC_INFO, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT};
use hartline_linux::msg::{
    MSG_COPY, MSG_EXCEPT, MSG_INFO, MSG_NOERROR, MSG_STAT, MSG_STAT_ANY, MSGMAX, MSGMNB, MSGMNI,
    Msginfo, Msqid64Ds,
};
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::msgget, msgget),
    (nr::msgctl, msgctl),
    (nr::msgrcv, msgrcv),
    (nr::msgsnd, msgsnd),
];

/// Length of a message's type in front of its text, bytes.
const TYPE: u64 = 8;

fn msgget(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [key, flags, ..] = *arguments;
    let cred = current_cred(kernel);
    let ids = &mut kernel.ipc.queues.ids;
    let create = |permission| Ok(Queue::new(permission, now()));
    let id = ids.get(low_i32(key), flags, &cred, |_| Ok(()), create)?;
    Ok(sign_extended(id))
}

/// The queue `id`; `EIDRM` if it was removed while the caller waited for it.
fn find(kernel: &mut Kernel, id: i32) -> Result<&mut Queue, Errno> {
    let waited = kernel.task().retry.is_some();
    let found = kernel.ipc.queues.ids.find_mut(id);
    found.map_err(|error| if waited { Errno::EIDRM } else { error })
}

/// Waits for a change of the queue `id`.
fn wait(kernel: &mut Kernel, id: i32) -> Errno {
    let tid = kernel.task().tid;
    if let Ok(queue) = kernel.ipc.queues.ids.find_mut(id) {
        queue.wait(tid);
    }
    kernel.block(Wait::for_event(Event::Ipc), 0)
}

/// Wakes the tasks that wait for a change of the queue `id`.
fn changed(kernel: &mut Kernel, id: i32) {
    let queue = kernel.ipc.queues.ids.find_mut(id);
    let woken = queue.map(Queue::take_waiting).unwrap_or_default();
    wake_all(kernel, &woken);
}

fn msgsnd(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [id, buffer, length, flags, ..] = *arguments;
    let id = low_i32(id);
    if length > MSGMAX {
        return Err(Errno::EINVAL);
    }
    let kind: i64 = user::read(kernel.memory_mut(), buffer)?;
    if kind < 1 {
        return Err(Errno::EINVAL);
    }
    let address = buffer.checked_add(TYPE).ok_or(Errno::EFAULT)?;
    let mut text = Vec::new();
    text.try_reserve_exact(to_usize(length))
        .map_err(|_| Errno::ENOMEM)?;
    user::slice(kernel.memory_mut(), address, length)?.append_to(&mut text);
    let cred = current_cred(kernel);
    let caller = (kernel.process().pid, now());
    let queue = find(kernel, id)?;
    queue.permission().check(&cred, 0o222)?;
    match (kernel.ipc.queues).send(id, Message { kind, text }, caller) {
        Ok(()) => {
            changed(kernel, id);
            Ok(0)
        }
        Err(Errno::EAGAIN) if flags & IPC_NOWAIT == 0 => Err(wait(kernel, id)),
        Err(error) => Err(error),
    }
}

fn msgrcv(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [id, buffer, room, kind, flags, ..] = *arguments;
    let id = low_i32(id);
    let room = isize::try_from(room.cast_signed()).map_err(|_| Errno::EINVAL)?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let which = if flags & MSG_COPY != 0 {
        if flags & MSG_EXCEPT != 0 || flags & IPC_NOWAIT == 0 {
            return Err(Errno::EINVAL);
        }
        Selection::Index(usize::try_from(kind).map_err(|_| Errno::ENOMSG)?)
    } else {
        Selection::new(kind.cast_signed(), flags & MSG_EXCEPT != 0)
    };
    let cred = current_cred(kernel);
    let caller = (kernel.process().pid, now());
    let queue = find(kernel, id)?;
    queue.permission().check(&cred, 0o444)?;
    let room = (room, flags & MSG_NOERROR != 0);
    let message = match kernel.ipc.queues.receive(id, which, room, caller) {
        Ok(message) => message,
        Err(Errno::ENOMSG) if flags & IPC_NOWAIT == 0 => return Err(wait(kernel, id)),
        Err(error) => return Err(error),
    };
    if !matches!(which, Selection::Index(_)) {
        changed(kernel, id);
    }
    // As on Linux, a message is lost if the buffer is not writable.
    user::write(kernel.memory_mut(), buffer, &message.kind)?;
    let address = buffer.checked_add(TYPE).ok_or(Errno::EFAULT)?;
    user::write_bytes(kernel.memory_mut(), address, &message.text)?;
    Ok(message.text.len() as u64)
}

fn msgctl(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [id, command, buffer, ..] = *arguments;
    let (id, command) = (low_i32(id), command & 0xffff_ffff);
    let cred = current_cred(kernel);
    let ids = &mut kernel.ipc.queues.ids;
    match command {
        IPC_INFO | MSG_INFO => {
            let sums = ids.iter().map(|(_, queue)| queue.length());
            let used = sums.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            let info = limits((command == MSG_INFO).then_some((ids.count(), used)));
            let highest = ids.highest();
            user::write(kernel.memory_mut(), buffer, &info)?;
            Ok(highest as u64)
        }
        IPC_STAT | MSG_STAT | MSG_STAT_ANY => {
            let (id, queue) = match command {
                IPC_STAT => (id, ids.find(id)?),
                _ => ids.at(id)?,
            };
            if command != MSG_STAT_ANY {
                queue.permission().check(&cred, 0o444)?;
            }
            let status = queue.to_uapi(id);
            user::write(kernel.memory_mut(), buffer, &status)?;
            Ok(if command == IPC_STAT {
                0
            } else {
                sign_extended(id)
            })
        }
        IPC_SET => {
            let new: Msqid64Ds = user::read(kernel.memory_mut(), buffer)?;
            let queue = kernel.ipc.queues.ids.find_mut(id)?;
            queue.permission().check_owner(&cred)?;
            if new.msg_qbytes > MSGMNB && !cred.has(CAP_SYS_RESOURCE) {
                return Err(Errno::EPERM);
            }
            queue.permission_mut().set(&new.msg_perm);
            queue.most = new.msg_qbytes;
            queue.times[2] = now();
            changed(kernel, id);
            Ok(0)
        }
        IPC_RMID => {
            ids.find(id)?.permission().check_owner(&cred)?;
            let mut queue = kernel.ipc.queues.remove(id)?;
            let woken = queue.take_waiting();
            wake_all(kernel, &woken);
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// The limits (`IPC_INFO`), with the numbers of queues, messages and bytes in use (`MSG_INFO`).
fn limits(used: Option<(usize, (u64, u64))>) -> Msginfo {
    let (queues, messages, bytes) = match used {
        Some((queues, (messages, bytes))) => {
            (low_i32(queues as u64), low_i32(messages), low_i32(bytes))
        }
        None => {
            let all = MSGMNI.cast_signed() * (low_i32(MSGMNB) / 1024);
            (all, low_i32(MSGMNB), low_i32(MSGMNB))
        }
    };
    Msginfo {
        msgpool: queues,
        msgmap: messages,
        msgmax: low_i32(MSGMAX),
        msgmnb: low_i32(MSGMNB),
        msgmni: MSGMNI.cast_signed(),
        msgssz: 16,
        msgtql: bytes,
        msgseg: u16::MAX,
        __pad: 0,
    }
}
