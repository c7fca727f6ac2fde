//! Works in parts: each part is executed once, by its own thread, and what it wrote is there after the work.

use hartline_sdk::{Errno, MAX_PARTS, hart_id, multiprocess};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

pub fn main(count: usize) {
    for wrong in [0, MAX_PARTS + 1] {
        assert_eq!(multiprocess(wrong, |_| ()), Err(Errno::EINVAL));
    }
    rounds(count);
    nested();
    panics();
    assert_eq!(multiprocess(MAX_PARTS, |_| ()), Ok(()));
    // SAFETY: the child uses no lock that another thread may hold: those are of the pool's channels.
    let child = unsafe { libc::fork() };
    in_child(child, count);
    let child = AtomicI32::new(-1);
    let ended = AtomicUsize::new(0);
    let result = multiprocess(4, |part| {
        if part == 0 {
            // SAFETY: as above.
            child.store(unsafe { libc::fork() }, Ordering::Relaxed);
        }
        ended.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(result, Ok(()));
    let child = child.into_inner();
    assert!(child == 0 || ended.into_inner() == 4);
    in_child(child, count);
    println!("done");
}

/// A child begins without threads: it executes works too, and ends with a code of its own.
fn in_child(child: libc::pid_t, count: usize) {
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    rounds(count / 10);
    if child == 0 {
        process::exit(5);
    }
    let mut status = 0;
    // SAFETY: the status is written to a variable of its type.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 5);
}

fn rounds(count: usize) {
    let runs: Vec<AtomicUsize> = (0..9).map(|_| AtomicUsize::new(0)).collect();
    let mut expected = [0; 9];
    for round in 0..count {
        let parts = 1 + round * 7 % 9;
        let threads: Vec<Mutex<Option<ThreadId>>> = (0..parts).map(|_| Mutex::new(None)).collect();
        let result = multiprocess(parts, |part| {
            assert_eq!(hart_id(), part);
            runs[part].fetch_add(1, Ordering::Relaxed);
            *threads[part].lock().expect("no panic") = Some(thread::current().id());
        });
        assert_eq!(result, Ok(()));
        assert_eq!(hart_id(), 0);
        for (part, expected) in expected.iter_mut().enumerate() {
            *expected += usize::from(part < parts);
            assert_eq!(runs[part].load(Ordering::Relaxed), *expected);
        }
        let threads = threads
            .into_iter()
            .map(|thread| thread.into_inner().expect("no panic"));
        let threads: Vec<_> = threads.collect();
        assert_eq!(threads[0], Some(thread::current().id()));
        assert!(threads.windows(2).all(|pair| pair[0] != pair[1]));
    }
}

/// A part cannot start a work.
fn nested() {
    let refused = AtomicUsize::new(0);
    let result = multiprocess(3, |part| {
        if multiprocess(2, |_| ()) == Err(Errno::EBUSY) {
            refused.fetch_add(part + 1, Ordering::Relaxed);
        }
    });
    assert_eq!((result, refused.into_inner()), (Ok(()), 1 + 2 + 3));
}

/// A panic of a part continues in the caller, after the other parts have ended.
fn panics() {
    for panicking in 0..4 {
        let ended = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            multiprocess(4, |part| {
                if part == panicking {
                    resume_unwind(Box::new(part));
                }
                ended.fetch_add(1, Ordering::Relaxed);
            })
        }));
        let payload = result.expect_err("a panic").downcast::<usize>();
        assert_eq!(*payload.expect("a number"), panicking);
        assert_eq!(ended.into_inner(), 3);
    }
}
