//! The Linux riscv64 (asm-generic) system calls: one file per area, each with a table of its
//! handlers. [`hartline_linux::syscall`] describes each call.

mod clone;
mod epoll;
mod exec;
pub mod files;
mod files_dir;
mod files_fd;
mod files_io;
mod files_lock;
mod files_path;
mod files_proc;
mod files_stat;
mod files_xattr;
mod futex;
mod group;
mod inotify;
mod interfaces;
mod ioctl;
mod ipc;
mod memory;
mod notify;
mod poll;
mod random;
mod signal;
mod signal_io;
mod socket;
mod socket_io;
mod socket_message;
mod socket_options;
mod splice;
mod system;
mod task;
mod time;
mod timer;
mod wait;

use crate::kernel::Kernel;
use hartline_linux::errno::Errno;
use hartline_linux::syscall::{LIMIT, nr};

/// Serves one system call: `arguments` are `a0`–`a5`, the result goes to `a0`.
pub type Handler = fn(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno>;

/// A row of an area's table: the number of a system call and its handler.
pub type Entry = (u64, Handler);

/// The tables of all areas.
const AREAS: &[&[Entry]] = &[
    clone::CALLS,
    epoll::CALLS,
    exec::CALLS,
    files_dir::CALLS,
    files_fd::CALLS,
    files_io::CALLS,
    files_lock::CALLS,
    files_path::CALLS,
    files_stat::CALLS,
    files_xattr::CALLS,
    futex::CALLS,
    group::CALLS,
    inotify::CALLS,
    ipc::msg::CALLS,
    ipc::sem::CALLS,
    ipc::shm::CALLS,
    memory::CALLS,
    notify::CALLS,
    poll::CALLS,
    random::CALLS,
    signal::CALLS,
    socket::CALLS,
    socket_io::CALLS,
    socket_options::CALLS,
    splice::CALLS,
    system::CALLS,
    task::CALLS,
    time::CALLS,
    timer::CALLS,
    ioctl::CALLS,
    wait::CALLS,
];

/// The handler of each system call number, built from [`AREAS`].
static HANDLERS: [Option<Handler>; LIMIT] = {
    let mut handlers = [None; LIMIT];
    let mut area = 0;
    while area < AREAS.len() {
        let mut n = 0;
        while n < AREAS[area].len() {
            let (number, handler) = AREAS[area][n];
            assert!(
                handlers[number as usize].is_none(),
                "two handlers for one system call"
            );
            handlers[number as usize] = Some(handler);
            n += 1;
        }
        area += 1;
    }
    handlers
};

/// Returns the handler of system call `number`, if it is implemented.
fn handler(number: u64) -> Option<Handler> {
    *HANDLERS.get(usize::try_from(number).ok()?)?
}

/// Serves system call `number`. The call may ask to be restarted later ([`Errno::ERESTARTSYS`]). An
/// unknown number fails with `ENOSYS` and is counted.
///
/// # Errors
/// The errors of the call.
pub fn serve(kernel: &mut Kernel, number: u64, arguments: &[u64; 6]) -> Result<u64, Errno> {
    kernel.syscalls += u64::from(kernel.task().retry.is_none());
    match handler(number) {
        Some(handler) => handler(kernel, arguments),
        None => {
            count_missing(kernel, number);
            Err(Errno::ENOSYS)
        }
    }
}

/// Counts an unimplemented call for the report. `rseq` is not counted: C libraries try it at their
/// start and work without it.
fn count_missing(kernel: &mut Kernel, number: u64) {
    /// The maximum number of distinct numbers; the report has room for fewer.
    const MOST: usize = 64;
    if number == nr::rseq {
        return;
    }
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let missing = &mut kernel.missing;
    match missing.iter().position(|entry| entry[0] == number) {
        Some(index) => missing[index][1] = missing[index][1].saturating_add(1),
        None if missing.len() < MOST => missing.push([number, 1]),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hartline_linux::syscall::{Support, find};

    #[test]
    fn the_table_says_which_calls_have_a_handler() {
        for number in 0..LIMIT as u64 {
            let support = find(number).map_or(Support::Missing, |call| call.support);
            assert_eq!(
                handler(number).is_some(),
                support != Support::Missing,
                "system call {number}"
            );
        }
    }
}
