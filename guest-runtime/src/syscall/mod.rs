//! The Linux riscv64 (asm-generic) system calls: one file per area, each with a table of its
//! handlers. [`hartline_linux::syscall`] describes each call.

mod aio;
mod clock_setting;
mod clone;
mod credentials;
mod epoll;
mod exec;
pub mod files;
mod files_copy;
mod files_dir;
mod files_fd;
mod files_io;
mod files_lock;
mod files_path;
mod files_proc;
mod files_stat;
mod files_sync;
mod files_xattr;
mod futex;
mod group;
mod inotify;
mod interfaces;
mod ioctl;
mod ipc;
mod leases;
mod log;
mod memory;
mod memory_file;
mod mempolicy;
mod mount;
mod mqueue;
mod notify;
mod other_process;
mod poll;
mod process_strings;
mod ptrace;
mod random;
mod scheduling;
mod seccomp;
mod signal;
mod signal_io;
mod socket;
mod socket_errors;
mod socket_interfaces;
mod socket_io;
mod socket_message;
mod socket_options;
mod splice;
mod system;
mod task;
mod time;
mod timer;
mod userfaultfd;
mod wait;

use crate::convert::to_usize;
use crate::kernel::call::{Handler, Handlers};
use crate::kernel::spawn::Starter;
use hartline_linux::syscall::LIMIT;

/// A row of an area's table: the number of a system call and its handler.
pub type Entry = (u64, Handler);

/// The tables of all areas.
const AREAS: &[&[Entry]] = &[
    aio::CALLS,
    clock_setting::CALLS,
    clone::CALLS,
    credentials::CALLS,
    epoll::CALLS,
    exec::CALLS,
    files_copy::CALLS,
    files_dir::CALLS,
    files_fd::CALLS,
    files_io::CALLS,
    files_lock::CALLS,
    files_path::CALLS,
    files_stat::CALLS,
    files_sync::CALLS,
    files_xattr::CALLS,
    futex::CALLS,
    group::CALLS,
    inotify::CALLS,
    ipc::msg::CALLS,
    ipc::sem::CALLS,
    ipc::shm::CALLS,
    log::CALLS,
    memory::CALLS,
    mempolicy::CALLS,
    mount::CALLS,
    mqueue::CALLS,
    notify::CALLS,
    other_process::CALLS,
    poll::CALLS,
    ptrace::CALLS,
    random::CALLS,
    scheduling::CALLS,
    seccomp::CALLS,
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
    userfaultfd::CALLS,
    wait::CALLS,
];

/// The handler of each system call number, built from `AREAS`.
pub static HANDLERS: Handlers = {
    let mut handlers = [None; LIMIT];
    let mut area = 0;
    while area < AREAS.len() {
        let mut n = 0;
        while n < AREAS[area].len() {
            let (number, handler) = AREAS[area][n];
            assert!(
                handlers[to_usize(number)].is_none(),
                "two handlers for one system call"
            );
            handlers[to_usize(number)] = Some(handler);
            n += 1;
        }
        area += 1;
    }
    handlers
};

/// Executes the first program of a process that the host starts.
pub const START: Starter = exec::start;

#[cfg(test)]
mod tests {
    use super::*;
    use hartline_linux::syscall::{Support, find};

    #[test]
    fn the_table_says_which_calls_have_a_handler() {
        for number in 0..LIMIT as u64 {
            let support = find(number).map_or(Support::Missing, |call| call.support);
            assert_eq!(
                HANDLERS[to_usize(number)].is_some(),
                support != Support::Missing,
                "system call {number}"
            );
        }
    }
}
