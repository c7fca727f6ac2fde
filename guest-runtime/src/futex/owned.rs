//! Locks whose word is the number of their owner (`FUTEX_*_PI`), and waiting for one of them
//! by way of another word, as condition variables do. Tasks have no priorities that could be
//! inherited.

use super::{Key, Waiter, forget, key, update, wake_waiter};
use crate::kernel::Kernel;
use crate::task::{Event, Wait};
use crate::user;
use hartline_linux::errno::Errno;
use hartline_linux::futex::{
    FUTEX_BITSET_MATCH_ANY, FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS,
};

/// `FUTEX_LOCK_PI`: takes the lock at `address`, whose word is its owner's number, and waits
/// for it until `deadline`; not at all if that is none (`FUTEX_TRYLOCK_PI`).
///
/// # Errors
/// `EAGAIN` if it is taken and the call does not wait, `EDEADLK` if the task has it, `ESRCH`
/// if its owner is gone, `ETIMEDOUT`, `EINTR`, `EFAULT`, `EINVAL`.
pub fn lock_owned(kernel: &mut Kernel, address: u64, deadline: Option<u64>) -> Result<u64, Errno> {
    let tid = kernel.task.tid;
    if let Some(retry) = kernel.task.retry {
        forget(kernel, tid);
        let word: u32 = user::read(&mut kernel.memory, address)?;
        if retry.woken && word & FUTEX_TID_MASK == tid {
            return Ok(0);
        }
        if retry.deadline <= crate::clock::monotonic() {
            return Err(Errno::ETIMEDOUT);
        }
        if kernel.interrupted() {
            return Err(Errno::EINTR);
        }
    }
    let key = key(kernel, address)?;
    let Err(word) = take(kernel, (address, key), tid)? else {
        return Ok(0);
    };
    if word & FUTEX_TID_MASK == tid {
        return Err(Errno::EDEADLK);
    }
    let deadline = deadline.ok_or(Errno::EAGAIN)?;
    if kernel.task_mut(word & FUTEX_TID_MASK).is_none() {
        return Err(Errno::ESRCH);
    }
    let announced = update(kernel, address, |word| {
        (word & FUTEX_TID_MASK != 0).then_some(word | FUTEX_WAITERS)
    })?;
    if announced.is_err() {
        // Its owner, on another vCPU, has just given it up.
        return lock_owned(kernel, address, Some(deadline));
    }
    let wait = Wait {
        deadline,
        ..Wait::for_event(Event::Futex)
    };
    let error = kernel.block(wait, 0);
    if error == Errno::ERESTARTSYS {
        let queue = kernel.futexes.queues.entry(key).or_default();
        queue.push_back(Waiter::new(tid, FUTEX_BITSET_MATCH_ANY));
    }
    Err(error)
}

/// `FUTEX_UNLOCK_PI`: gives the lock at `address` to the task that waits longest, if one
/// does.
///
/// # Errors
/// `EPERM` if the task does not have it, `EFAULT`, `EINVAL`.
pub fn unlock_owned(kernel: &mut Kernel, address: u64) -> Result<u64, Errno> {
    let key = key(kernel, address)?;
    let tid = kernel.task.tid;
    let word: u32 = user::read(&mut kernel.memory, address)?;
    if word & FUTEX_TID_MASK != tid {
        return Err(Errno::EPERM);
    }
    let mut queue = kernel.futexes.queues.remove(&key).unwrap_or_default();
    let next = queue.pop_front().map_or(0, |waiter| waiter.tid);
    let waiters = if queue.is_empty() { 0 } else { FUTEX_WAITERS };
    if !queue.is_empty() {
        kernel.futexes.queues.insert(key, queue);
    }
    // Others only set the bit, and then ask the kernel, which is here.
    let _ = update(kernel, address, |_| Some(next | waiters))?;
    if next != 0 {
        wake_waiter(kernel, next);
    }
    Ok(0)
}

/// The word of a lock that is free, taken for `tid`. Result: the word as it was, as an error
/// if the lock is not free.
fn take(
    kernel: &mut Kernel,
    (address, key): (u64, Key),
    tid: u32,
) -> Result<Result<u32, u32>, Errno> {
    let waiters = match kernel.futexes.queues.contains_key(&key) {
        true => FUTEX_WAITERS,
        false => 0,
    };
    update(kernel, address, |word| {
        (word & FUTEX_TID_MASK == 0).then_some(word & FUTEX_OWNER_DIED | waiters | tid)
    })
}

/// `FUTEX_WAIT_REQUEUE_PI`: waits until `deadline` at the word at `address`, if it has this
/// value, to be given the lock at `lock` ([`requeue`]).
///
/// # Errors
/// `EAGAIN` if the word has another value, or a signal came when the task waited for the lock
/// already; `ETIMEDOUT`, `EINTR`, `EFAULT`, `EINVAL`.
pub fn wait_requeue(
    kernel: &mut Kernel,
    address: u64,
    value: u32,
    deadline: u64,
    lock: u64,
) -> Result<u64, Errno> {
    let tid = kernel.task.tid;
    let (from, to) = (key(kernel, address)?, key(kernel, lock)?);
    if from == to {
        return Err(Errno::EINVAL);
    }
    if let Some(retry) = kernel.task.retry {
        let is_at_first = kernel.futexes.is_waiting(from, tid);
        let word: u32 = user::read(&mut kernel.memory, lock)?;
        if retry.woken {
            forget(kernel, tid);
            return match word & FUTEX_TID_MASK == tid {
                true => Ok(0),
                // The owner has died.
                false => take(kernel, (lock, to), tid)?
                    .map(|_| 0)
                    .map_err(|_| Errno::EAGAIN),
            };
        }
        if retry.deadline <= crate::clock::monotonic() {
            forget(kernel, tid);
            return Err(Errno::ETIMEDOUT);
        }
        if kernel.interrupted() {
            forget(kernel, tid);
            return Err(if is_at_first {
                Errno::EINTR
            } else {
                Errno::EAGAIN
            });
        }
    } else {
        let word: u32 = user::read(&mut kernel.memory, address)?;
        if word != value {
            return Err(Errno::EAGAIN);
        }
    }
    let wait = Wait {
        deadline,
        ..Wait::for_event(Event::Futex)
    };
    let error = kernel.block(wait, 0);
    let is_queued = [from, to].map(|key| kernel.futexes.is_waiting(key, tid));
    if error == Errno::ERESTARTSYS && is_queued == [false; 2] {
        let waiter = Waiter {
            lock: Some(to),
            ..Waiter::new(tid, FUTEX_BITSET_MATCH_ANY)
        };
        let queue = kernel.futexes.queues.entry(from).or_default();
        queue.push_back(waiter);
    }
    Err(error)
}

/// `FUTEX_CMP_REQUEUE_PI`: if the word at `address` is `expected`, gives the lock at `lock` to
/// the task that waits longest there, if it is free, and lets up to `moves` more wait for it.
/// The result is how many tasks that were.
///
/// # Errors
/// `EAGAIN` if the word has another value; `EINVAL` if tasks wait there for something else;
/// `EDEADLK` if one that waits has the lock, `ESRCH` if its owner is gone; `EFAULT`.
pub fn requeue(
    kernel: &mut Kernel,
    address: u64,
    moves: u32,
    lock: u64,
    expected: u32,
) -> Result<u64, Errno> {
    let (from, to) = (key(kernel, address)?, key(kernel, lock)?);
    if from == to {
        return Err(Errno::EINVAL);
    }
    let word: u32 = user::read(&mut kernel.memory, address)?;
    if word != expected {
        return Err(Errno::EAGAIN);
    }
    let mut done = 0;
    while done <= u64::from(moves) {
        let queue = kernel.futexes.queues.get(&from);
        let Some(&waiter) = queue.and_then(|queue| queue.front()) else {
            break;
        };
        if waiter.lock != Some(to) {
            return Err(Errno::EINVAL);
        }
        let gets = done == 0 && take(kernel, (lock, to), waiter.tid)?.is_ok();
        if !gets {
            announce(kernel, (lock, to), waiter.tid)?;
        }
        forget(kernel, waiter.tid);
        match gets {
            true => wake_waiter(kernel, waiter.tid),
            false => {
                let queue = kernel.futexes.queues.entry(to).or_default();
                queue.push_back(Waiter::new(waiter.tid, FUTEX_BITSET_MATCH_ANY));
            }
        }
        done += 1;
    }
    Ok(done)
}

/// Says in the word of a lock that `tid` is about to wait for it.
fn announce(kernel: &mut Kernel, (lock, _): (u64, Key), tid: u32) -> Result<(), Errno> {
    let owner = match update(kernel, lock, |word| Some(word | FUTEX_WAITERS))? {
        Ok(word) | Err(word) => word & FUTEX_TID_MASK,
    };
    if owner == tid {
        return Err(Errno::EDEADLK);
    }
    match owner != 0 && owner != kernel.task.tid && kernel.task_mut(owner).is_none() {
        true => Err(Errno::ESRCH),
        false => Ok(()),
    }
}
