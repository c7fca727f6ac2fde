//! Locks whose word is the owner's TID (`FUTEX_*_PI`), and waiting for such a lock through another
//! futex, as condition variables do. Tasks have no priorities to inherit.

use super::{Key, Waiter, forget, key, update, wake_waiter};
use crate::kernel::Kernel;
use crate::kernel::task::{Event, Wait};
use crate::mm::user;
use hartline_linux::errno::Errno;
use hartline_linux::futex::{
    FUTEX_BITSET_MATCH_ANY, FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS,
};

/// `FUTEX_LOCK_PI`: takes the lock at `address`, and waits for it until `deadline`; without a
/// deadline the call does not wait (`FUTEX_TRYLOCK_PI`).
///
/// # Errors
/// `EAGAIN` if the lock is taken and the call does not wait, `EDEADLK` if the task owns the lock,
/// `ESRCH` if its owner has ended, `ETIMEDOUT`, `EINTR`, `EFAULT`, `EINVAL`.
pub fn lock_owned(kernel: &mut Kernel, address: u64, deadline: Option<u64>) -> Result<u64, Errno> {
    let tid = kernel.task().tid;
    if let Some(retry) = kernel.task().retry {
        forget(kernel, tid);
        let word: u32 = user::read(kernel.memory_mut(), address)?;
        if retry.woken && word & FUTEX_TID_MASK == tid {
            return Ok(0);
        }
        if kernel.has_passed(retry.deadline) {
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
    if kernel.program_task(word & FUTEX_TID_MASK).is_none() {
        return Err(Errno::ESRCH);
    }
    let announced = update(kernel, address, |word| {
        (word & FUTEX_TID_MASK != 0).then_some(word | FUTEX_WAITERS)
    })?;
    if announced.is_err() {
        // The owner, on another vCPU, has just released the lock.
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

/// `FUTEX_UNLOCK_PI`: releases the lock at `address` to the task that has waited longest, if any.
///
/// # Errors
/// `EPERM` if the task does not own the lock, `EFAULT`, `EINVAL`.
pub fn unlock_owned(kernel: &mut Kernel, address: u64) -> Result<u64, Errno> {
    let key = key(kernel, address)?;
    let tid = kernel.task().tid;
    let word: u32 = user::read(kernel.memory_mut(), address)?;
    if word & FUTEX_TID_MASK != tid {
        return Err(Errno::EPERM);
    }
    let mut queue = kernel.futexes.queues.remove(&key).unwrap_or_default();
    let next = queue.pop_front().map_or(0, |waiter| waiter.tid);
    let waiters = if queue.is_empty() { 0 } else { FUTEX_WAITERS };
    if !queue.is_empty() {
        kernel.futexes.queues.insert(key, queue);
    }
    // Other tasks only set the waiters bit, and then call the kernel, whose lock this task holds.
    let _ = update(kernel, address, |_| Some(next | waiters))?;
    if next != 0 {
        wake_waiter(kernel, next);
    }
    Ok(0)
}

/// Takes a free lock for `tid`. Returns the old word; as an error if the lock is not free.
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

/// `FUTEX_WAIT_REQUEUE_PI`: if the word at `address` is `value`, waits there until `deadline` for
/// the lock at `lock`, which [`requeue`] hands over.
///
/// # Errors
/// `EAGAIN` if the word has another value, or a signal arrived when the task already waited for the
/// lock; `ETIMEDOUT`, `EINTR`, `EFAULT`, `EINVAL`.
pub fn wait_requeue(
    kernel: &mut Kernel,
    address: u64,
    value: u32,
    deadline: u64,
    lock: u64,
) -> Result<u64, Errno> {
    let tid = kernel.task().tid;
    let (from, to) = (key(kernel, address)?, key(kernel, lock)?);
    if from == to {
        return Err(Errno::EINVAL);
    }
    if let Some(retry) = kernel.task().retry {
        let is_at_first = kernel.futexes.is_waiting(from, tid);
        let word: u32 = user::read(kernel.memory_mut(), lock)?;
        if retry.woken {
            forget(kernel, tid);
            return match word & FUTEX_TID_MASK == tid {
                true => Ok(0),
                // The owner has ended.
                false => take(kernel, (lock, to), tid)?
                    .map(|_| 0)
                    .map_err(|_| Errno::EAGAIN),
            };
        }
        if kernel.has_passed(retry.deadline) {
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
        let word: u32 = user::read(kernel.memory_mut(), address)?;
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

/// `FUTEX_CMP_REQUEUE_PI`: if the word at `address` is `expected`, gives a free lock at `lock` to
/// the task that has waited longest at `address`, and moves up to `moves` more tasks to the lock.
/// Returns the number of these tasks.
///
/// # Errors
/// `EAGAIN` if the word has another value; `EINVAL` if tasks wait there for something else;
/// `EDEADLK` if one of the waiting tasks owns the lock, `ESRCH` if its owner has ended; `EFAULT`.
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
    let word: u32 = user::read(kernel.memory_mut(), address)?;
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

/// Sets the waiters bit of a lock that `tid` is about to wait for.
fn announce(kernel: &mut Kernel, (lock, _): (u64, Key), tid: u32) -> Result<(), Errno> {
    let owner = match update(kernel, lock, |word| Some(word | FUTEX_WAITERS))? {
        Ok(word) | Err(word) => word & FUTEX_TID_MASK,
    };
    if owner == tid {
        return Err(Errno::EDEADLK);
    }
    match owner != 0 && owner != kernel.task().tid && kernel.program_task(owner).is_none() {
        true => Err(Errno::ESRCH),
        false => Ok(()),
    }
}
