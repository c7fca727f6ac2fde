//! CPU affinity of threads (sched_setaffinity(2)).

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Numbers of processors are below this (`CPU_SETSIZE`).
pub const MAX_CPUS: u32 = 1024;

const _: () = assert!(MAX_CPUS as usize == CpuSet::MAX_CPU);

/// Processors that the calling thread may run on.
///
/// # Errors
/// Any I/O error of the host.
pub fn of_this_thread() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    let available = |&number: &u32| set.is_set(number as usize);
    Ok((0..MAX_CPUS).filter(available).collect())
}

/// Pins the calling thread, and the threads that it starts from now on, to these processors.
///
/// # Errors
/// None of the processors is available, or a number is not below 1024.
pub fn run_on(processors: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &number in processors {
        if number >= MAX_CPUS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(number as usize);
    }
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_is_told() {
        let there = of_this_thread().unwrap();
        let thread = std::thread::spawn(move || {
            run_on(&there[..1]).unwrap();
            assert_eq!(of_this_thread().unwrap(), there[..1]);
            assert!(run_on(&[1 << 20]).is_err() && run_on(&[]).is_err());
        });
        thread.join().unwrap();
    }
}
