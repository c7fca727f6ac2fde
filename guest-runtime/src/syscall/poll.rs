//! Waiting for descriptors: `ppoll`, `pselect6`.

use super::Entry;
use crate::arch::clock;
use crate::convert::{low_u16, low_u32, to_usize};
use crate::fs::process::FileId;
use crate::kernel::Kernel;
use crate::kernel::task::{Event, Wait};
use crate::mm::{AddressSpace, user};
use crate::wait::poll::PollTable;
use crate::wait::{READABLE, Registration, WRITABLE};
use alloc::vec;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::poll::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, Pollfd};
use hartline_linux::syscall::nr;
use hartline_linux::time::Timespec;
use zerocopy::IntoBytes;

/// The calls of this file.
pub const CALLS: &[Entry] = &[(nr::pselect6, pselect6), (nr::ppoll, ppoll)];

/// Events that are reported without being requested.
pub(super) const ALWAYS: u32 = POLLERR | POLLHUP | POLLNVAL;

/// A descriptor to poll.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch {
    /// The description; none if the descriptor is not open.
    pub file: Option<FileId>,
    /// The events to wait for.
    pub events: u32,
    /// The events that are ready.
    pub ready: u32,
}

/// Fills [`Watch::ready`]. Returns the number of ready descriptors and whether standard input
/// is waited for.
fn look(kernel: &Kernel, watches: &mut [Watch], input_ready: bool) -> (usize, bool) {
    let view = kernel.view();
    let mut wants_input = false;
    let mut count = 0;
    for watch in watches {
        let mut table = PollTable::default();
        let file = watch.file.map(|id| kernel.vfs.files.get(id));
        let mut ready = match file {
            Some(Ok(file)) => file.object.poll(&view, file, &mut table),
            _ => POLLNVAL,
        };
        let input = table.input && watch.events & READABLE != 0;
        if input && input_ready {
            ready |= READABLE;
        }
        wants_input |= input && !input_ready;
        watch.ready = ready & (watch.events | ALWAYS);
        count += usize::from(watch.ready != 0);
    }
    (count, wants_input)
}

/// Fills [`Watch::ready`] without waiting. Returns the number of ready descriptors and whether
/// standard input would be a new event.
pub(super) fn watch_now(kernel: &mut Kernel, watches: &mut [Watch]) -> (usize, bool) {
    let (count, wants_input) = look(kernel, watches, false);
    if !wants_input || !kernel.streams.poll_input() {
        return (count, wants_input);
    }
    (look(kernel, watches, true).0, false)
}

/// Waits until a descriptor is ready or `timeout_ns` have passed (`u64::MAX`: no limit).
/// Returns the number of ready descriptors.
fn watch(kernel: &mut Kernel, watches: &mut [Watch], timeout_ns: u64) -> Result<usize, Errno> {
    let deadline = kernel.deadline(timeout_ns);
    let over = kernel.has_passed(deadline);
    let (count, wants_input) = look(kernel, watches, kernel.streams.is_input_ready());
    match (count, over, wants_input) {
        // The wait detects new input.
        (0, false, _) => {
            let wait = Wait {
                input: wants_input,
                deadline,
                ..Wait::for_event(Event::File)
            };
            let registrations = kernel.take_registrations();
            let registrations = registrations_of(kernel, watches, registrations);
            Err(kernel.block_in(registrations, wait, 0))
        }
        (_, _, true) => Ok(watch_now(kernel, watches).0),
        (count, _, false) => Ok(count),
    }
}

/// Adds places in the wait queues of the watched descriptions, each for its events.
fn registrations_of(
    kernel: &Kernel,
    watches: &[Watch],
    mut registrations: Vec<Registration>,
) -> Vec<Registration> {
    for watch in watches {
        let file = watch.file.map(|id| kernel.vfs.files.get(id));
        if let Some(Ok(file)) = file {
            let mut table = PollTable::collecting(watch.events | ALWAYS, registrations);
            file.object.poll(&kernel.view(), file, &mut table);
            registrations = table.into_registrations();
        }
    }
    registrations
}

/// Whether a read would not block.
pub(super) fn is_readable(kernel: &mut Kernel, id: FileId) -> bool {
    let mut watch = [Watch {
        file: Some(id),
        events: POLLIN,
        ready: 0,
    }];
    watch_now(kernel, &mut watch).0 > 0
}

/// Runs `call` with the signal mask at `address`, if the address is not null.
pub(super) fn with_mask(
    kernel: &mut Kernel,
    address: u64,
    size: u64,
    call: impl FnOnce(&mut Kernel) -> Result<u64, Errno>,
) -> Result<u64, Errno> {
    if address == 0 {
        return call(kernel);
    }
    if size != 8 {
        return Err(Errno::EINVAL);
    }
    let mask = user::read(kernel.memory_mut(), address)?;
    if kernel.task().retry.is_none() {
        kernel.task_mut().signals.set_temporary(mask);
    }
    let result = call(kernel);
    if result != Err(Errno::ERESTARTSYS) {
        kernel.signals().end_temporary();
    }
    result
}

/// Reads the time at `address` in nanoseconds; `u64::MAX` if the address is null.
pub(super) fn read_timeout(memory: &mut AddressSpace, address: u64) -> Result<u64, Errno> {
    if address == 0 {
        return Ok(u64::MAX);
    }
    let time: Timespec = user::read(memory, address)?;
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno::EINVAL)?;
    match u64::try_from(time.tv_nsec) {
        Ok(ns @ 0..clock::SECOND) => Ok(seconds
            .saturating_mul(clock::SECOND)
            .saturating_add(ns)
            .min(u64::MAX - 1)),
        _ => Err(Errno::EINVAL),
    }
}

/// Waits, and stores the rest of the time limit at `address`.
fn watch_until(
    kernel: &mut Kernel,
    watches: &mut [Watch],
    address: u64,
    timeout_ns: u64,
) -> Result<usize, Errno> {
    let end = kernel.deadline(timeout_ns);
    let result = watch(kernel, watches, timeout_ns);
    if address != 0 && result != Err(Errno::ERESTARTSYS) {
        let left = end.saturating_sub(clock::monotonic());
        let left = Timespec {
            tv_sec: (left / clock::SECOND).cast_signed(),
            tv_nsec: (left % clock::SECOND).cast_signed(),
        };
        user::write(kernel.memory_mut(), address, &left)?;
    }
    result
}

fn ppoll(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let timeout = read_timeout(kernel.memory_mut(), a[2])?;
    let count = u64::from(low_u32(a[1]));
    if count > u64::from(kernel.process().files.fds.limit) {
        return Err(Errno::EINVAL);
    }
    let mut polled: Vec<Pollfd> = user::read_array(kernel.memory_mut(), a[0], count)?;
    let fds = &kernel.process().files.fds;
    let mut watches: Vec<Watch> = polled
        .iter()
        .filter(|poll| poll.fd >= 0)
        .map(|poll| Watch {
            file: fds.get(poll.fd.cast_unsigned()).ok().map(|fd| fd.file),
            events: u32::from(poll.events.cast_unsigned()),
            ready: 0,
        })
        .collect();
    let count = with_mask(kernel, a[3], a[4], |kernel| {
        Ok(watch_until(kernel, &mut watches, a[2], timeout)? as u64)
    })?;
    let mut ready = watches.iter();
    for poll in &mut polled {
        poll.revents = match poll.fd {
            0.. => ready
                .next()
                .map_or(0, |watch| low_u16(watch.ready.into()).cast_signed()),
            _ => 0,
        };
    }
    user::write_bytes(kernel.memory_mut(), a[0], polled.as_bytes())?;
    Ok(count)
}

/// The event that each set of `select` requests, and the events that set its bits.
const SETS: [(u32, u32); 3] = [
    (POLLIN, READABLE | POLLHUP | POLLERR),
    (POLLOUT, WRITABLE | POLLERR),
    (0, 0),
];

/// Reads the three sets; a null set is empty.
fn read_sets(kernel: &mut Kernel, a: &[u64; 6], words: u64) -> Result<[Vec<u64>; 3], Errno> {
    let mut sets = [Vec::new(), Vec::new(), Vec::new()];
    for (set, &address) in sets.iter_mut().zip(&a[1..4]) {
        *set = match address {
            0 => vec![0; to_usize(words)],
            address => user::read_array(kernel.memory_mut(), address, words)?,
        };
    }
    Ok(sets)
}

fn pselect6(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let count = i32::try_from(a[0].cast_signed()).map_err(|_| Errno::EINVAL)?;
    let count = u32::try_from(count).map_err(|_| Errno::EINVAL)?;
    let count = count.min(kernel.process().files.fds.capacity());
    let timeout = read_timeout(kernel.memory_mut(), a[4])?;
    let [mask, size] = match a[5] {
        0 => [0, 0],
        address => user::read::<[u64; 2]>(kernel.memory_mut(), address)?,
    };
    let mut sets = read_sets(kernel, a, u64::from(count.div_ceil(64)))?;
    let (numbers, mut watches) = watch_sets(kernel, count, &sets)?;
    with_mask(kernel, mask, size, |kernel| {
        Ok(watch_until(kernel, &mut watches, a[4], timeout)? as u64)
    })?;
    let mut total = 0;
    for (set, (_, meaning)) in sets.iter_mut().zip(SETS) {
        let asked = core::mem::take(set);
        *set = vec![0; asked.len()];
        for (&fd, watch) in numbers.iter().zip(&watches) {
            let (word, bit) = (fd as usize / 64, 1 << (fd % 64));
            if asked[word] & bit != 0 && watch.ready & meaning != 0 {
                set[word] |= bit;
                total += 1;
            }
        }
    }
    for (set, &address) in sets.iter().zip(&a[1..4]) {
        if address != 0 {
            user::write_bytes(kernel.memory_mut(), address, set.as_bytes())?;
        }
    }
    Ok(total)
}

/// Returns the descriptors in the sets, and the events to wait for.
fn watch_sets(
    kernel: &Kernel,
    count: u32,
    sets: &[Vec<u64>; 3],
) -> Result<(Vec<u32>, Vec<Watch>), Errno> {
    let mut numbers = Vec::new();
    let mut watches = Vec::new();
    for fd in 0..count {
        let mut events = 0;
        let mut asked = false;
        for (set, (wanted, _)) in sets.iter().zip(SETS) {
            if set[fd as usize / 64] & (1 << (fd % 64)) != 0 {
                asked = true;
                events |= wanted;
            }
        }
        if asked {
            let file = kernel.process().files.fds.get(fd)?.file;
            numbers.push(fd);
            watches.push(Watch {
                file: Some(file),
                events,
                ready: 0,
            });
        }
    }
    Ok((numbers, watches))
}
