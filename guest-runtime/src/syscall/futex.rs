//! `futex` and robust lists.

use super::Entry;
use super::task::find_task;
use super::time::read_timespec;
use crate::arch::clock;
use crate::convert::{low_i32, low_u32};
use crate::kernel::Kernel;
use crate::kernel::futex::{self, owned};
use crate::mm::user;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::futex::{
    FUTEX_BITSET_MATCH_ANY, FUTEX_CLOCK_REALTIME, FUTEX_CMD_MASK, FUTEX_CMP_REQUEUE,
    FUTEX_CMP_REQUEUE_PI, FUTEX_LOCK_PI, FUTEX_LOCK_PI2, FUTEX_OP_ADD, FUTEX_OP_ANDN,
    FUTEX_OP_CMP_EQ, FUTEX_OP_CMP_GE, FUTEX_OP_CMP_GT, FUTEX_OP_CMP_LE, FUTEX_OP_CMP_LT,
    FUTEX_OP_CMP_NE, FUTEX_OP_OPARG_SHIFT, FUTEX_OP_OR, FUTEX_OP_SET, FUTEX_OP_XOR,
    FUTEX_PRIVATE_FLAG, FUTEX_REQUEUE, FUTEX_TRYLOCK_PI, FUTEX_UNLOCK_PI, FUTEX_WAIT,
    FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, FUTEX_WAITV_MAX, FUTEX_WAKE, FUTEX_WAKE_BITSET,
    FUTEX_WAKE_OP, FUTEX2_SIZE_MASK, FUTEX2_SIZE_U32, FutexWaitv, RobustListHead,
};
use hartline_linux::syscall::nr;
use hartline_linux::time::{CLOCK_MONOTONIC, CLOCK_REALTIME};

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::futex, futex),
    (nr::set_robust_list, set_robust_list),
    (nr::get_robust_list, get_robust_list),
    (nr::futex_waitv, futex_waitv),
];

fn futex(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [address, operation, value, fourth, second, third] = *arguments;
    let (count, bits) = (low_u32(value), low_u32(third));
    let operation = low_u32(operation);
    if operation & FUTEX_PRIVATE_FLAG == 0 && matches!(operation, FUTEX_WAKE | FUTEX_WAKE_BITSET) {
        futex::check_shared(kernel, address)?;
    }
    match operation & FUTEX_CMD_MASK {
        FUTEX_WAIT => {
            let deadline = deadline(kernel, fourth, Timeout::Relative)?;
            futex::wait(
                kernel,
                address,
                low_u32(value),
                FUTEX_BITSET_MATCH_ANY,
                deadline,
            )
        }
        FUTEX_WAIT_BITSET => {
            let kind = match operation & FUTEX_CLOCK_REALTIME {
                0 => Timeout::Monotonic,
                _ => Timeout::Realtime,
            };
            let deadline = deadline(kernel, fourth, kind)?;
            futex::wait(kernel, address, low_u32(value), bits, deadline)
        }
        FUTEX_WAKE => futex::wake(kernel, address, count, FUTEX_BITSET_MATCH_ANY),
        FUTEX_WAKE_BITSET => futex::wake(kernel, address, count, bits),
        FUTEX_REQUEUE => futex::requeue(kernel, address, count, low_u32(fourth), second),
        FUTEX_CMP_REQUEUE if (count | low_u32(fourth)).cast_signed() < 0 => Err(Errno::EINVAL),
        FUTEX_CMP_REQUEUE => {
            let word: u32 = user::read(kernel.memory_mut(), address)?;
            match word == low_u32(third) {
                true => futex::requeue(kernel, address, count, low_u32(fourth), second),
                false => Err(Errno::EAGAIN),
            }
        }
        FUTEX_WAKE_OP => wake_op(kernel, arguments),
        FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => {
            let kind = match operation & FUTEX_CMD_MASK == FUTEX_LOCK_PI
                || operation & FUTEX_CLOCK_REALTIME != 0
            {
                true => Timeout::Realtime,
                false => Timeout::Monotonic,
            };
            let deadline = deadline(kernel, fourth, kind)?;
            owned::lock_owned(kernel, address, Some(deadline))
        }
        FUTEX_TRYLOCK_PI => owned::lock_owned(kernel, address, None),
        FUTEX_WAIT_REQUEUE_PI => {
            let kind = match operation & FUTEX_CLOCK_REALTIME {
                0 => Timeout::Monotonic,
                _ => Timeout::Realtime,
            };
            let deadline = deadline(kernel, fourth, kind)?;
            owned::wait_requeue(kernel, address, low_u32(value), deadline, second)
        }
        // `FUTEX_CMP_REQUEUE_PI` wakes exactly one task.
        FUTEX_CMP_REQUEUE_PI if count != 1 || low_i32(fourth) < 0 => Err(Errno::EINVAL),
        FUTEX_CMP_REQUEUE_PI => {
            owned::requeue(kernel, address, low_u32(fourth), second, low_u32(third))
        }
        FUTEX_UNLOCK_PI => owned::unlock_owned(kernel, address),
        _ => Err(Errno::ENOSYS),
    }
}

fn futex_waitv(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [waiters, count, flags, timeout, clock, _] = *arguments;
    let (count, flags) = (low_u32(count), low_u32(flags));
    if flags != 0 || !(1..=FUTEX_WAITV_MAX).contains(&count) || waiters == 0 {
        return Err(Errno::EINVAL);
    }
    let kind = match u64::from(low_u32(clock)) {
        _ if timeout == 0 => Timeout::Monotonic,
        CLOCK_MONOTONIC => Timeout::Monotonic,
        CLOCK_REALTIME => Timeout::Realtime,
        _ => return Err(Errno::EINVAL),
    };
    let deadline = deadline(kernel, timeout, kind)?;
    let waiters: Vec<FutexWaitv> = user::read_array(kernel.memory_mut(), waiters, count.into())?;
    let mut words = Vec::new();
    for FutexWaitv {
        val,
        uaddr,
        flags,
        __reserved: reserved,
    } in waiters
    {
        let is_known = flags & !(FUTEX2_SIZE_MASK | FUTEX_PRIVATE_FLAG) == 0;
        if !is_known || flags & FUTEX2_SIZE_MASK != FUTEX2_SIZE_U32 || reserved != 0 {
            return Err(Errno::EINVAL);
        }
        words.push((uaddr, u32::try_from(val).map_err(|_| Errno::EINVAL)?));
    }
    futex::wait_any(kernel, &words, deadline)
}

/// The clock of a time limit.
enum Timeout {
    Relative,
    Monotonic,
    Realtime,
}

/// Returns the deadline of a call; a repeated call keeps the deadline of its first try.
fn deadline(kernel: &mut Kernel, timeout: u64, kind: Timeout) -> Result<u64, Errno> {
    if let Some(retry) = kernel.task().retry {
        return Ok(retry.deadline);
    }
    if timeout == 0 {
        return Ok(crate::wait::time::NEVER);
    }
    let time = read_timespec(kernel, timeout)?;
    let now = clock::monotonic();
    let until = match kind {
        Timeout::Relative => now.saturating_add(time),
        Timeout::Monotonic => time,
        Timeout::Realtime => now.saturating_add(time.saturating_sub(clock::realtime())),
    };
    match until <= now {
        // The value is compared even if the time is over.
        true => Ok(now),
        false => Ok(until.min(crate::wait::time::NEVER - 1)),
    }
}

/// `FUTEX_WAKE_OP`: changes the second word, wakes waiters of the first, and waiters of the second
/// if its old value passes the comparison.
fn wake_op(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let [address, _, count, second_count, second, encoded] = *arguments;
    let encoded = low_u32(encoded);
    let signed = |field: u32| (field << 20).cast_signed() >> 20;
    let (operation, compare) = (encoded >> 28, encoded >> 24 & 15);
    let mut operand = signed(encoded >> 12 & 0xfff);
    let compared = signed(encoded & 0xfff);
    if operation & FUTEX_OP_OPARG_SHIFT != 0 {
        operand = 1 << (operand & 31);
    }
    if !second.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    let old: i32 = user::read(kernel.memory_mut(), second)?;
    let new = match operation & 7 {
        FUTEX_OP_SET => operand,
        FUTEX_OP_ADD => old.wrapping_add(operand),
        FUTEX_OP_OR => old | operand,
        FUTEX_OP_ANDN => old & !operand,
        FUTEX_OP_XOR => old ^ operand,
        _ => return Err(Errno::ENOSYS),
    };
    let holds = match compare {
        FUTEX_OP_CMP_EQ => old == compared,
        FUTEX_OP_CMP_NE => old != compared,
        FUTEX_OP_CMP_LT => old < compared,
        FUTEX_OP_CMP_LE => old <= compared,
        FUTEX_OP_CMP_GT => old > compared,
        FUTEX_OP_CMP_GE => old >= compared,
        _ => return Err(Errno::ENOSYS),
    };
    user::write(kernel.memory_mut(), second, &new)?;
    let woken = futex::wake(kernel, address, low_u32(count), FUTEX_BITSET_MATCH_ANY)?;
    match holds {
        true => Ok(woken
            + futex::wake(
                kernel,
                second,
                low_u32(second_count),
                FUTEX_BITSET_MATCH_ANY,
            )?),
        false => Ok(woken),
    }
}

fn set_robust_list(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    if arguments[1] != size_of::<RobustListHead>() as u64 {
        return Err(Errno::EINVAL);
    }
    kernel.task_mut().robust_list = [arguments[0], arguments[1]];
    Ok(0)
}

fn get_robust_list(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno> {
    let tid = find_task(kernel, arguments[0])?;
    let list = kernel.tasks.get_mut(tid).map(|task| task.robust_list);
    let [head, length] = list.ok_or(Errno::ESRCH)?;
    user::write(kernel.memory_mut(), arguments[1], &head)?;
    user::write(kernel.memory_mut(), arguments[2], &length)?;
    Ok(0)
}
