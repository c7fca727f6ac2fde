//! CPU affinity of threads (sched_setaffinity(2)).

use std::io;

/// Processors that the calling thread may run on.
///
/// # Errors
/// Any I/O error of the host.
pub fn of_this_thread() -> io::Result<Vec<u32>> {
    // SAFETY: all zeros are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a set of the length that is passed.
    let got = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    match got {
        // SAFETY: numbers within the set.
        0 => Ok((0..libc::CPU_SETSIZE)
            .filter(|&number| unsafe { libc::CPU_ISSET(number as usize, &set) })
            .map(|number| number as u32)
            .collect()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Pins the calling thread, and the threads that it starts from now on, to these processors.
///
/// # Errors
/// None of the processors is available, or a number is not below 1024.
pub fn run_on(processors: &[u32]) -> io::Result<()> {
    // SAFETY: all zeros are an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &number in processors {
        if number >= libc::CPU_SETSIZE as u32 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: a number within the set.
        unsafe { libc::CPU_SET(number as usize, &mut set) };
    }
    // SAFETY: a set of the length that is passed.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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
