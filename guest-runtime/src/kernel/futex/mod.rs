//! Futexes: the tasks that wait for words of memory.

pub mod owned;

use crate::kernel::Kernel;
use crate::kernel::space::Space;
use crate::kernel::table::Handle;
use crate::kernel::task::{Event, Wait};
use crate::mm::{Vma, user};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use hartline_abi::layout::USER_END;
use hartline_linux::errno::Errno;
use hartline_linux::futex::{
    FUTEX_BITSET_MATCH_ANY, FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS, ROBUST_LIST_LIMIT,
    RobustListHead,
};

/// Key of a futex: a word of an address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Address space and address.
    Private(Handle<Space>, u64),
    /// Offset into RAM, for a word in memory that several processes may map.
    Shared(u64),
}

/// A waiting task.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    tid: u32,
    /// Bit set of `FUTEX_WAKE_BITSET`: a waker must share one of these bits.
    bits: u32,
    /// The lock that the task is to be given (`FUTEX_WAIT_REQUEUE_PI`), until it waits for the lock
    /// itself.
    lock: Option<Key>,
    /// Index of the word among those that the task waits for at once (`futex_waitv`).
    index: Option<u64>,
}

impl Waiter {
    fn new(tid: u32, bits: u32) -> Waiter {
        Waiter {
            tid,
            bits,
            lock: None,
            index: None,
        }
    }
}

/// All waiting tasks, in the order of their arrival at each word.
#[derive(Debug, Default)]
pub struct Futexes {
    queues: BTreeMap<Key, VecDeque<Waiter>>,
}

impl Futexes {
    /// Whether a task waits for a word.
    fn is_waiting(&self, key: Key, tid: u32) -> bool {
        let mut waiters = self.queues.get(&key).into_iter().flatten();
        waiters.any(|waiter| waiter.tid == tid)
    }
}

/// The word at `address`.
fn key(kernel: &mut Kernel, address: u64) -> Result<Key, Errno> {
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    let shared = match kernel.memory().vmas().find(address) {
        None if address >= USER_END => return Err(Errno::EFAULT),
        // A task can wait nowhere but in mapped memory.
        None => false,
        Some((_, vma)) => vma.shared,
    };
    if shared {
        user::slice(kernel.memory_mut(), address, 4)?;
        if let Some(offset) = kernel.memory().ram_offset(address) {
            return Ok(Key::Shared(offset));
        }
    }
    Ok(Key::Private(kernel.process().space, address))
}

/// Checks a word for an operation without `FUTEX_PRIVATE_FLAG` that only wakes: other processes
/// must be able to see the word.
///
/// # Errors
/// `EINVAL`, `EFAULT`.
pub fn check_shared(kernel: &Kernel, address: u64) -> Result<(), Errno> {
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    // Read-only memory that is private never changes.
    let suits = |vma: &Vma| match vma.shared {
        true => vma.protection.readable(),
        false => vma.protection.writable(),
    };
    match kernel.memory().vmas().find(address) {
        Some((_, vma)) if suits(vma) => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// `FUTEX_WAIT`: waits until `deadline` for a wake of the word at `address`, if the word is still
/// `value`.
///
/// # Errors
/// `EAGAIN` if the word has another value, `ETIMEDOUT`, `EINTR`, `EFAULT`, `EINVAL`.
pub fn wait(
    kernel: &mut Kernel,
    address: u64,
    value: u32,
    bits: u32,
    deadline: u64,
) -> Result<u64, Errno> {
    if let Some(retry) = kernel.task().retry {
        if retry.woken {
            return Ok(0);
        }
        forget(kernel, kernel.task().tid);
        if kernel.has_passed(retry.deadline) {
            return Err(Errno::ETIMEDOUT);
        }
        if kernel.interrupted() {
            return Err(Errno::EINTR);
        }
    }
    let key = key(kernel, address)?;
    if bits == 0 {
        return Err(Errno::EINVAL);
    }
    let word: u32 = user::read(kernel.memory_mut(), address)?;
    if word != value {
        return Err(Errno::EAGAIN);
    }
    let error = kernel.block(
        Wait {
            deadline,
            ..Wait::for_event(Event::Futex)
        },
        0,
    );
    if error == Errno::ERESTARTSYS {
        let tid = kernel.task().tid;
        let queue = kernel.futexes.queues.entry(key).or_default();
        queue.push_back(Waiter::new(tid, bits));
    }
    Err(error)
}

/// `futex_waitv`: waits until `deadline` for a wake of one of several words, given with their
/// addresses, if all of them have the given values. Returns the index of the word.
///
/// # Errors
/// As [`wait`].
pub fn wait_any(kernel: &mut Kernel, words: &[(u64, u32)], deadline: u64) -> Result<u64, Errno> {
    let tid = kernel.task().tid;
    if let Some(retry) = kernel.task().retry {
        if retry.woken {
            return Ok(retry.progress);
        }
        forget(kernel, tid);
        if kernel.has_passed(retry.deadline) {
            return Err(Errno::ETIMEDOUT);
        }
        if kernel.interrupted() {
            return Err(Errno::EINTR);
        }
    }
    let mut keys = Vec::new();
    for &(address, value) in words {
        keys.push(key(kernel, address)?);
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
    if error == Errno::ERESTARTSYS {
        for (index, key) in (0..).zip(keys) {
            kernel
                .futexes
                .queues
                .entry(key)
                .or_default()
                .push_back(Waiter {
                    index: Some(index),
                    ..Waiter::new(tid, FUTEX_BITSET_MATCH_ANY)
                });
        }
    }
    Err(error)
}

/// Wakes up to `count` tasks that wait for the word at `address`; returns their number.
///
/// # Errors
/// `EFAULT`, `EINVAL`.
pub fn wake(kernel: &mut Kernel, address: u64, count: u32, bits: u32) -> Result<u64, Errno> {
    let key = key(kernel, address)?;
    if bits == 0 {
        return Err(Errno::EINVAL);
    }
    let Some(queue) = kernel.futexes.queues.get_mut(&key) else {
        return Ok(0);
    };
    // Tasks that wait for a lock can only be requeued to it.
    if queue.iter().any(|waiter| waiter.lock.is_some()) {
        return Err(Errno::EINVAL);
    }
    let mut left = count;
    let mut queue = core::mem::take(queue);
    // Tasks that wait for several words.
    let mut several = Vec::new();
    queue.retain(|waiter| {
        let is_awake = waiter.index.is_some() && several.contains(&waiter.tid);
        let wakes = left > 0 && waiter.bits & bits != 0 && !is_awake;
        if wakes {
            left -= 1;
            wake_waiter(kernel, waiter.tid);
            if let Some(index) = waiter.index {
                set_progress(kernel, waiter.tid, index);
                several.push(waiter.tid);
            }
        }
        !wakes
    });
    match queue.is_empty() {
        true => drop(kernel.futexes.queues.remove(&key)),
        false => drop(kernel.futexes.queues.insert(key, queue)),
    }
    for tid in several {
        forget(kernel, tid);
    }
    Ok(u64::from(count - left))
}

fn wake_waiter(kernel: &mut Kernel, tid: u32) {
    let retry = kernel
        .tasks
        .get_mut(tid)
        .and_then(|task| task.retry.as_mut());
    if let Some(retry) = retry {
        retry.woken = true;
    }
    kernel.wake(tid);
}

/// Sets the result of a task that waits for one of several words.
fn set_progress(kernel: &mut Kernel, tid: u32, index: u64) {
    let task = kernel.tasks.get_mut(tid);
    if let Some(retry) = task.and_then(|task| task.retry.as_mut()) {
        retry.progress = index;
    }
}

/// Wakes up to `count` tasks, if the address is valid.
pub(crate) fn wake_address(kernel: &mut Kernel, address: u64, count: u32) {
    // Nobody waits at an address that is none.
    let _ = wake(kernel, address, count, FUTEX_BITSET_MATCH_ANY);
}

/// `FUTEX_REQUEUE`: wakes up to `wakes` tasks, and moves up to `moves` others to the word at `to`;
/// returns the number of both.
///
/// # Errors
/// `EFAULT`, `EINVAL`.
pub fn requeue(
    kernel: &mut Kernel,
    address: u64,
    wakes: u32,
    moves: u32,
    to: u64,
) -> Result<u64, Errno> {
    if wakes.cast_signed() < 0 || moves.cast_signed() < 0 {
        return Err(Errno::EINVAL);
    }
    let (from, to) = (key(kernel, address)?, key(kernel, to)?);
    let woken = wake(kernel, address, wakes, FUTEX_BITSET_MATCH_ANY)?;
    if from == to {
        return Ok(woken);
    }
    let Some(mut queue) = kernel.futexes.queues.remove(&from) else {
        return Ok(woken);
    };
    let rest = queue.split_off(queue.len().min(moves as usize));
    let moved = queue.len() as u64;
    kernel.futexes.queues.entry(to).or_default().extend(queue);
    if !rest.is_empty() {
        kernel.futexes.queues.insert(from, rest);
    }
    Ok(woken + moved)
}

/// Removes a task from its queue, for whatever reason it stops waiting.
pub(crate) fn forget(kernel: &mut Kernel, tid: u32) {
    kernel.futexes.queues.retain(|_, queue| {
        queue.retain(|waiter| waiter.tid != tid);
        !queue.is_empty()
    });
}

/// Marks the locks in the robust list of the running task, which ends, and wakes one waiter of
/// each.
pub(crate) fn leave_robust_list(kernel: &mut Kernel) {
    let [head, _] = core::mem::take(&mut kernel.task_mut().robust_list);
    if head == 0 {
        return;
    }
    // The first entry, the offset of the lock in each, and an entry that is being changed.
    let Ok(RobustListHead {
        list: mut entry,
        futex_offset: offset,
        list_op_pending: pending,
    }) = user::read(kernel.memory_mut(), head)
    else {
        return;
    };
    for _ in 0..ROBUST_LIST_LIMIT {
        if entry & !1 == head {
            break;
        }
        let next = user::read::<u64>(kernel.memory_mut(), entry & !1);
        if entry != pending {
            leave_lock(kernel, (entry & !1).wrapping_add_signed(offset));
        }
        match next {
            Ok(next) => entry = next,
            Err(_) => return,
        }
    }
    if pending != 0 {
        leave_lock(kernel, (pending & !1).wrapping_add_signed(offset));
    }
}

fn leave_lock(kernel: &mut Kernel, address: u64) {
    if !address.is_multiple_of(4) {
        return;
    }
    let tid = kernel.task().tid;
    let leave = |word: u32| {
        (word & FUTEX_TID_MASK == tid).then_some(word & FUTEX_WAITERS | FUTEX_OWNER_DIED)
    };
    // An address that is none has no lock.
    if let Ok(Ok(word)) = update(kernel, address, leave)
        && word & FUTEX_WAITERS != 0
    {
        wake_address(kernel, address, 1);
    }
}

/// Changes the word at the aligned address `address` to the result of `change`, if there is one.
/// Returns the old word; as an error if it was not changed.
fn update(
    kernel: &mut Kernel,
    address: u64,
    change: impl FnMut(u32) -> Option<u32>,
) -> Result<Result<u32, u32>, Errno> {
    let word = user::slice_mut(kernel.memory_mut(), address, 4)?.as_mut_ptr();
    // SAFETY: four writable bytes at an aligned address; the program's threads on other vCPUs also
    // access them atomically.
    let word = unsafe { AtomicU32::from_ptr(word.cast()) };
    Ok(word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change))
}
