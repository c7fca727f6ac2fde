//! The Linux riscv64 (asm-generic) system calls: one file per area, each with a
//! table of its calls.

mod clone;
mod disks;
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
mod memory;
mod notify;
mod poll;
mod pty;
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
mod tty;
mod wait;

use crate::errno::Errno;
use crate::kernel::Kernel;

/// Serves one system call: `arguments` are `a0`–`a5`, the result goes to `a0`.
pub type Handler = fn(kernel: &mut Kernel, arguments: &[u64; 6]) -> Result<u64, Errno>;

/// One implemented system call.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its number, less than [`LIMIT`].
    pub number: u16,
    /// Its name as in the manual pages.
    pub name: &'static str,
    /// What serves it.
    pub handler: Handler,
}

impl Entry {
    /// An entry of an area's table.
    #[must_use]
    pub const fn new(number: u16, name: &'static str, handler: Handler) -> Entry {
        Entry {
            number,
            name,
            handler,
        }
    }
}

/// System call numbers are less than this.
pub const LIMIT: usize = 512;

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
    tty::CALLS,
    wait::CALLS,
];

/// The entry of each number, made from [`AREAS`].
static TABLE: [Option<Entry>; LIMIT] = {
    let mut table = [None; LIMIT];
    let mut area = 0;
    while area < AREAS.len() {
        let mut n = 0;
        while n < AREAS[area].len() {
            let entry = AREAS[area][n];
            assert!(
                table[entry.number as usize].is_none(),
                "two entries for one system call"
            );
            table[entry.number as usize] = Some(entry);
            n += 1;
        }
        area += 1;
    }
    table
};

/// The entry of system call `number`, if it is implemented.
#[must_use]
pub fn entry(number: u64) -> Option<&'static Entry> {
    TABLE.get(usize::try_from(number).ok()?)?.as_ref()
}

/// Serves system call `number`, which may ask to be made again later
/// ([`Errno::ERESTARTSYS`]); an unknown one gives `ENOSYS` and is counted.
///
/// # Errors
/// Those of the call.
pub fn serve(kernel: &mut Kernel, number: u64, arguments: &[u64; 6]) -> Result<u64, Errno> {
    kernel.syscalls += u64::from(kernel.task.retry.is_none());
    match entry(number) {
        Some(entry) => (entry.handler)(kernel, arguments),
        None => {
            count_missing(kernel, number);
            Err(Errno::ENOSYS)
        }
    }
}

/// Counts a call that is not implemented, so that it shows in the report.
fn count_missing(kernel: &mut Kernel, number: u64) {
    /// Numbers told apart; the report has room for fewer.
    const MOST: usize = 64;
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let missing = &mut kernel.missing;
    match missing.iter().position(|entry| entry[0] == number) {
        Some(index) => missing[index][1] = missing[index][1].saturating_add(1),
        None if missing.len() < MOST => missing.push([number, 1]),
        None => {}
    }
}

/// `rt_sigreturn`, which leaves no result in `a0`.
pub const RT_SIGRETURN: u64 = 139;

const EPOLL_PWAIT: u64 = 22;
const PSELECT6: u64 = 72;
const PPOLL: u64 = 73;
const NANOSLEEP: u64 = 101;
const CLOCK_NANOSLEEP: u64 = 115;
const RT_SIGSUSPEND: u64 = 133;
const RT_SIGTIMEDWAIT: u64 = 137;
const EPOLL_PWAIT2: u64 = 441;

/// Whether an interrupted call is made again after the handler, whatever that asks for.
#[must_use]
pub fn always_restarts(number: u64, arguments: &[u64; 6]) -> bool {
    const FUTEX: u64 = 98;
    number == FUTEX && futex::locks(arguments)
}

/// Whether a call goes on after the process was stopped and continued, as if nothing had
/// been. The others return `EINTR`.
#[must_use]
pub fn survives_stop(number: u64) -> bool {
    !matches!(number, EPOLL_PWAIT | EPOLL_PWAIT2 | RT_SIGTIMEDWAIT)
}

/// Whether a call that a signal interrupted is made again after a handler with
/// `SA_RESTART` (`signal(7)`). Those that wait with a timeout are not.
#[must_use]
pub fn is_repeated(number: u64) -> bool {
    !matches!(
        number,
        PPOLL
            | PSELECT6
            | EPOLL_PWAIT
            | EPOLL_PWAIT2
            | NANOSLEEP
            | CLOCK_NANOSLEEP
            | RT_SIGSUSPEND
            | RT_SIGTIMEDWAIT
    )
}
