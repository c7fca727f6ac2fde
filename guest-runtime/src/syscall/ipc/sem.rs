//! `semget`, `semop`, `semtimedop` and `semctl`.

use super::super::Entry;
use super::super::time::read_timespec;
use super::{current_cred, now, wake_all};
use crate::arch::clock;
use crate::convert::{low_i32, low_u16, low_u32, sign_extended, to_usize};
use crate::ipc::{Object, Outcome, SemaphoreSet};
use crate::kernel::Kernel;
use crate::kernel::task::{Event, Wait};
use crate::mm::user;
use crate::wait::time::NEVER;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::ipc::{IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT};
use hartline_linux::sem::{
    GETALL, GETNCNT, GETPID, GETVAL, GETZCNT, SEM_INFO, SEM_STAT, SEM_STAT_ANY, SEMAEM, SEMMNI,
    SEMMNS, SEMMSL, SEMOPM, SEMVMX, SETALL, SETVAL, Sembuf, Semid64Ds, Seminfo,
};
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::semget, semget),
    (nr::semctl, semctl),
    (nr::semtimedop, semtimedop),
    (nr::semop, |kernel, a| {
        semtimedop(kernel, &[a[0], a[1], a[2], 0, 0, 0])
    }),
];

fn semget(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [key, count, flags, ..] = *arguments;
    let count = u64::try_from(low_i32(count)).map_err(|_| Errno::EINVAL)?;
    if count > SEMMSL {
        return Err(Errno::EINVAL);
    }
    let cred = current_cred(kernel);
    let fits = |set: &SemaphoreSet| match count > set.count() as u64 {
        true => Err(Errno::EINVAL),
        false => Ok(()),
    };
    let ids = &mut kernel.ipc.semaphores.ids;
    let id = ids.get(low_i32(key), flags, &cred, fits, |permission| match count {
        0 => Err(Errno::EINVAL),
        _ => Ok(SemaphoreSet::new(permission, to_usize(count), now())),
    })?;
    Ok(sign_extended(id))
}

fn semtimedop(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [id, operations, count, timeout, ..] = *arguments;
    let id = low_i32(id);
    let tid = kernel.task().tid;
    if let Some(result) = kernel.ipc.semaphores.take_result(tid) {
        return result.map(|()| 0);
    }
    if let Some(retry) = kernel.task().retry {
        // A signal or the time limit has ended the wait.
        return match kernel.has_passed(retry.deadline) {
            true => {
                kernel.ipc.semaphores.cancel(id, tid);
                Err(Errno::EAGAIN)
            }
            false => Err(wait(kernel, id, retry.deadline)),
        };
    }
    let count = u64::from(low_u32(count));
    if count == 0 {
        return Err(Errno::EINVAL);
    }
    if count > SEMOPM {
        return Err(Errno::E2BIG);
    }
    let operations: Vec<Sembuf> = user::read_array(kernel.memory_mut(), operations, count)?;
    let deadline = match timeout {
        0 => NEVER,
        address => {
            let time = read_timespec(kernel, address)?;
            clock::monotonic().saturating_add(time).min(NEVER - 1)
        }
    };
    let cred = current_cred(kernel);
    let caller = (kernel.process().pid, tid);
    let semaphores = &mut kernel.ipc.semaphores;
    let changes = operations.iter().any(|operation| operation.sem_op != 0);
    let set = semaphores.ids.find(id)?;
    let most = operations.iter().map(|operation| operation.sem_num).max();
    if most.is_some_and(|most| usize::from(most) >= set.count()) {
        return Err(Errno::EFBIG);
    }
    let wanted = if changes { 0o222 } else { 0o444 };
    set.permission().check(&cred, wanted)?;
    let mut woken = Vec::new();
    let outcome = semaphores.operate(id, operations, caller, now(), &mut woken)?;
    wake_all(kernel, &woken);
    match outcome {
        Outcome::Done => Ok(0),
        Outcome::Waits => Err(wait(kernel, id, deadline)),
    }
}

/// Waits for the pending operation of the caller.
fn wait(kernel: &mut Kernel, id: i32, deadline: u64) -> Errno {
    let wait = Wait {
        event: Event::Ipc,
        input: false,
        deadline,
    };
    let error = kernel.block(wait, 0);
    if error == Errno::EINTR {
        let tid = kernel.task().tid;
        kernel.ipc.semaphores.cancel(id, tid);
    }
    error
}

fn semctl(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [id, number, command, argument, ..] = *arguments;
    let (id, command) = (low_i32(id), command & 0xffff_ffff);
    let cred = current_cred(kernel);
    let ids = &mut kernel.ipc.semaphores.ids;
    match command {
        IPC_INFO | SEM_INFO => {
            let used = ids.iter().map(|(_, set)| set.count()).sum();
            let info = limits((command == SEM_INFO).then(|| (ids.count(), used)));
            let highest = ids.highest();
            user::write(kernel.memory_mut(), argument, &info)?;
            Ok(highest as u64)
        }
        IPC_STAT | SEM_STAT | SEM_STAT_ANY => {
            let (id, set) = match command {
                IPC_STAT => (id, ids.find(id)?),
                _ => ids.at(id)?,
            };
            if command != SEM_STAT_ANY {
                set.permission().check(&cred, 0o444)?;
            }
            let status = Semid64Ds {
                sem_perm: set.permission().to_uapi(id),
                sem_otime: set.otime,
                sem_ctime: set.ctime,
                sem_nsems: set.count() as u64,
                ..Semid64Ds::default()
            };
            user::write(kernel.memory_mut(), argument, &status)?;
            Ok(if command == IPC_STAT {
                0
            } else {
                sign_extended(id)
            })
        }
        IPC_SET => {
            let new: Semid64Ds = user::read(kernel.memory_mut(), argument)?;
            let set = kernel.ipc.semaphores.ids.find_mut(id)?;
            set.permission().check_owner(&cred)?;
            set.permission_mut().set(&new.sem_perm);
            set.ctime = now();
            Ok(0)
        }
        IPC_RMID => {
            ids.find(id)?.permission().check_owner(&cred)?;
            let mut woken = Vec::new();
            kernel.ipc.semaphores.remove(id, &mut woken)?;
            wake_all(kernel, &woken);
            Ok(0)
        }
        GETVAL | GETPID | GETNCNT | GETZCNT => {
            let set = ids.find(id)?;
            set.permission().check(&cred, 0o444)?;
            let number = usize::try_from(low_i32(number)).map_err(|_| Errno::EINVAL)?;
            let (value, pid) = set.value(number)?;
            Ok(match command {
                GETVAL => sign_extended(value),
                GETPID => u64::from(pid),
                _ => set.waiting(number, command == GETZCNT) as u64,
            })
        }
        GETALL => {
            let set = ids.find(id)?;
            set.permission().check(&cred, 0o444)?;
            let mut values = Vec::with_capacity(set.count() * 2);
            for number in 0..set.count() {
                let (value, _) = set.value(number)?;
                // A value is at most `SEMVMX`.
                values.extend_from_slice(&low_u16(sign_extended(value)).to_le_bytes());
            }
            user::write_bytes(kernel.memory_mut(), argument, &values)?;
            Ok(0)
        }
        SETVAL | SETALL => set_values(kernel, id, (command, number, argument)),
        _ => Err(Errno::EINVAL),
    }
}

/// `SETVAL` and `SETALL`.
fn set_values(
    kernel: &mut Kernel,
    id: i32,
    (command, number, argument): (u64, u64, u64),
) -> Result<u64, Errno> {
    let cred = current_cred(kernel);
    let caller = (kernel.process().pid, now());
    let set = kernel.ipc.semaphores.ids.find(id)?;
    set.permission().check(&cred, 0o222)?;
    let count = set.count() as u64;
    let (first, values) = match command {
        SETVAL => {
            let value = low_i32(argument);
            if !(0..=SEMVMX).contains(&value) {
                return Err(Errno::ERANGE);
            }
            let number = usize::try_from(low_i32(number)).map_err(|_| Errno::EINVAL)?;
            (number, alloc::vec![value])
        }
        _ => {
            let values: Vec<u16> = user::read_array(kernel.memory_mut(), argument, count)?;
            (0, values.into_iter().map(i32::from).collect())
        }
    };
    let mut woken = Vec::new();
    (kernel.ipc.semaphores).set_values(id, first, &values, caller, &mut woken)?;
    wake_all(kernel, &woken);
    Ok(0)
}

/// The limits (`IPC_INFO`), with the numbers of sets and semaphores in use (`SEM_INFO`).
fn limits(used: Option<(usize, usize)>) -> Seminfo {
    let most = low_i32(SEMMNS);
    Seminfo {
        semmap: most,
        semmni: SEMMNI.cast_signed(),
        semmns: most,
        semmnu: most,
        semmsl: low_i32(SEMMSL),
        semopm: low_i32(SEMOPM),
        semume: low_i32(SEMOPM),
        semusz: used.map_or(20, |(sets, _)| low_i32(sets as u64)),
        semvmx: SEMVMX,
        semaem: used.map_or(SEMAEM, |(_, semaphores)| low_i32(semaphores as u64)),
    }
}
