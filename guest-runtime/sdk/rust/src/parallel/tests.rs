use super::{MAX_PARTS, hart_id, multiprocess};
use crate::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The number of runs of each part.
fn runs(parts: usize) -> Vec<usize> {
    let runs: Vec<AtomicUsize> = (0..MAX_PARTS).map(|_| AtomicUsize::new(0)).collect();
    multiprocess(parts, |part| {
        assert_eq!(hart_id(), part);
        runs[part].fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!(hart_id(), 0);
    runs.into_iter().map(AtomicUsize::into_inner).collect()
}

#[test]
fn each_part_is_executed_once() {
    for round in 0..300 {
        let parts = 1 + round * 7 % 9;
        let mut expected = vec![0; MAX_PARTS];
        expected[..parts].fill(1);
        assert_eq!(runs(parts), expected);
    }
    assert_eq!(runs(MAX_PARTS), [1; MAX_PARTS]);
}

#[test]
fn parts_write_what_they_borrow() {
    let mut numbers = vec![0u32; 40];
    let chunks: Vec<_> = numbers.chunks_mut(10).map(Mutex::new).collect();
    multiprocess(chunks.len(), |part| {
        for (number, value) in chunks[part].lock().unwrap().iter_mut().zip(0..) {
            *number = value;
        }
    })
    .unwrap();
    let expected: Vec<u32> = (0..4).flat_map(|_| 0..10).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn parts_have_threads_that_stay() {
    let threads = || {
        let threads = [const { Mutex::new(None) }; 3];
        multiprocess(3, |part| {
            *threads[part].lock().unwrap() = Some(thread::current().id())
        })
        .unwrap();
        threads.map(|thread| thread.into_inner().unwrap().unwrap())
    };
    let [first, second, third] = threads();
    assert_eq!(first, thread::current().id());
    assert!(first != second && second != third && third != first);
    assert_eq!(threads(), [first, second, third]);
}

#[test]
fn numbers_of_parts_are_checked() {
    for parts in [0, MAX_PARTS + 1, usize::MAX] {
        let result = multiprocess(parts, |_| panic!("executed"));
        assert_eq!(result, Err(Errno::EINVAL));
    }
}

#[test]
fn a_part_cannot_start_a_work() {
    let busy = AtomicUsize::new(0);
    multiprocess(3, |_| {
        let result = multiprocess(1, |_| panic!("executed"));
        busy.fetch_add(usize::from(result == Err(Errno::EBUSY)), Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!(busy.into_inner(), 3);
}

/// Raises a panic without a message on the standard error.
fn raise(value: String) {
    std::panic::resume_unwind(Box::new(value));
}

#[test]
fn a_panic_continues_in_the_caller_after_all_parts() {
    for panicking in 0..4 {
        let ended = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            multiprocess(4, |part| {
                if part == panicking {
                    raise(format!("part {part}"));
                }
                thread::yield_now();
                ended.fetch_add(1, Ordering::Relaxed);
            })
        }));
        let value = result.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(*value, format!("part {panicking}"));
        assert_eq!(ended.into_inner(), 3);
    }
    let all = catch_unwind(|| multiprocess(4, |part| raise(part.to_string())));
    assert!(all.unwrap_err().is::<String>());
    assert_eq!(runs(4)[..5], [1, 1, 1, 1, 0]);
}

#[test]
fn works_of_several_threads_follow_one_another() {
    let running = AtomicUsize::new(0);
    let work = |_| {
        for _ in 0..50 {
            let wrong = AtomicUsize::new(0);
            multiprocess(3, |part| {
                let before = running.fetch_add(1, Ordering::SeqCst);
                wrong.fetch_add(usize::from(before > 2 || part > 2), Ordering::SeqCst);
                thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
            })
            .unwrap();
            assert_eq!(wrong.into_inner(), 0);
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
