//! A simulated host that answers on demand.

use super::*;
use crate::convert::to_usize;
use crate::mm::{UserSlice, UserSliceMut};
use alloc::vec;
use core::cell::{Cell, RefCell};

/// A request.
type Asked = (Operation, [u64; 6]);

/// The requests in two slots, and the answers.
#[derive(Debug, Default)]
struct Host {
    requests: RefCell<[Option<Asked>; 2]>,
    answers: RefCell<[Option<i64>; 2]>,
    wants_interrupt: Cell<bool>,
}

impl Host {
    /// The slot of the request about a node.
    fn slot(&self, node: u64) -> usize {
        let requests = self.requests.borrow();
        let is_it = |request: &Option<Asked>| request.is_some_and(|(_, args)| args[0] == node);
        requests.iter().position(is_it).expect("a request")
    }

    fn answer(&self, node: u64, result: i64) {
        self.answers.borrow_mut()[self.slot(node)] = Some(result);
    }
}

impl Transport for Host {
    fn call(
        &self,
        _: Operation,
        _: [u64; 6],
        _: &[UserSlice<'_>],
        _: UserSliceMut<'_>,
    ) -> Result<Answer, Errno> {
        Err(Errno::ENOSYS)
    }

    fn slots(&self) -> usize {
        2
    }

    fn start(&self, slot: usize, operation: Operation, args: [u64; 6]) {
        let before = self.requests.borrow_mut()[slot].replace((operation, args));
        assert_eq!(before, None, "a slot that is not free");
    }

    fn has_answer(&self, slot: usize) -> bool {
        self.answers.borrow()[slot].is_some()
    }

    fn take(&self, slot: usize, mut into: UserSliceMut<'_>) -> Result<Answer, Errno> {
        self.requests.borrow_mut()[slot] = None;
        let result = self.answers.borrow_mut()[slot].take().expect("an answer");
        let count = to_usize(Errno::check(result)?);
        into.part(0, count).fill(7);
        Ok(Answer {
            result,
            ..Answer::default()
        })
    }

    fn begin(&self) {}

    fn want_interrupt(&self) {
        self.wants_interrupt.set(true);
    }
}

fn waiting() -> (Rc<Host>, Waiting) {
    let host = Rc::new(Host::default());
    let waiting = Waiting::new(Rc::clone(&host) as Rc<dyn Transport>);
    (host, waiting)
}

fn woken(waiting: &mut Waiting) -> Vec<u32> {
    waiting.poll();
    let mut woken = Vec::new();
    waiting.take_woken(&mut woken);
    woken
}

const WAITS: Result<(), Errno> = Err(Errno::EAGAIN);

#[test]
fn requests_are_answered_in_any_order() {
    let (host, mut waiting) = waiting();
    let mut to = vec![0; 10];
    assert_eq!(waiting.read(1, 5, 100, &mut to), Err(Errno::EAGAIN));
    assert_eq!(waiting.sync(2, 6, true), WAITS);
    // Repeated calls do not submit new requests.
    assert_eq!(waiting.read(1, 5, 100, &mut to), Err(Errno::EAGAIN));
    assert_eq!(waiting.sync(2, 6, true), WAITS);
    assert!(waiting.is_busy() && !waiting.want_interrupt());
    assert!(host.wants_interrupt.get());
    host.answer(6, 0);
    assert!(waiting.is_pending() && waiting.want_interrupt());
    assert_eq!(woken(&mut waiting), [2]);
    assert_eq!(woken(&mut waiting), [], "no task is notified twice");
    assert!(!waiting.is_pending());
    assert_eq!(waiting.sync(2, 6, true), Ok(()));
    host.answer(5, 4);
    assert_eq!(woken(&mut waiting), [1]);
    assert!(!waiting.is_busy());
    assert_eq!(waiting.read(1, 5, 100, &mut to), Ok(4));
    assert_eq!(to, [7, 7, 7, 7, 0, 0, 0, 0, 0, 0]);
    assert_eq!(waiting.sync(3, 6, true), WAITS);
    host.answer(6, -5);
    assert_eq!(waiting.sync(3, 6, true), Err(Errno::EIO));
}

#[test]
fn a_task_without_a_place_waits_for_one() {
    let (host, mut waiting) = waiting();
    for task in 1..4 {
        assert_eq!(waiting.sync(task, task.into(), false), WAITS);
    }
    host.answer(1, 0);
    assert_eq!(woken(&mut waiting), [1]);
    assert_eq!(waiting.sync(1, 1, false), Ok(()));
    assert_eq!(woken(&mut waiting), [3]);
    assert_eq!(waiting.sync(3, 3, false), WAITS);
    host.answer(3, 0);
    assert_eq!(waiting.sync(3, 3, false), Ok(()));
}

#[test]
fn answers_that_nobody_comes_for_make_room() {
    let (host, mut waiting) = waiting();
    for task in 1..4 {
        assert_eq!(waiting.sync(task, task.into(), false), WAITS);
    }
    host.answer(1, 0);
    assert_eq!(woken(&mut waiting), [1]);
    assert_eq!(waiting.sync(3, 3, false), WAITS, "the host is busy");
    host.answer(2, 0);
    assert_eq!(woken(&mut waiting), [2, 3]);
    assert_eq!(waiting.sync(3, 3, false), WAITS);
    host.answer(3, 0);
    assert_eq!(waiting.sync(3, 3, false), Ok(()));
    // The dropped answer may be the one of this task.
    for task in 1..3 {
        let result = waiting.sync(task, task.into(), false);
        if result == WAITS {
            host.answer(task.into(), 0);
            assert_eq!(waiting.sync(task, task.into(), false), Ok(()));
        }
    }
    assert!(!waiting.is_busy());
}

#[test]
fn requests_of_tasks_that_have_gone_are_ended() {
    let (host, mut waiting) = waiting();
    for task in 1..4 {
        assert_eq!(waiting.sync(task, task.into(), false), WAITS);
    }
    host.answer(1, 0);
    waiting.forget(1);
    waiting.forget(2);
    assert_eq!(woken(&mut waiting), [3], "of the slot of the first");
    assert_eq!(waiting.sync(3, 3, false), WAITS);
    // The host has not completed this request.
    assert_eq!(waiting.sync(2, 2, false), WAITS);
    host.answer(2, 0);
    assert_eq!(woken(&mut waiting), [2], "its slot came free");
    assert_eq!(waiting.sync(2, 2, false), WAITS, "it is another request");
}
