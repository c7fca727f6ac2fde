//! Tests of wait queues: which tasks are woken, how often, and when a registration ends.

use super::*;
use std::vec::Vec;

#[derive(Debug, Default)]
struct Log {
    events: RefCell<Vec<u32>>,
    /// Notifications wake a task.
    wakes: Cell<bool>,
}

impl Observer for Log {
    fn notify(&self, events: u32) -> bool {
        self.events.borrow_mut().push(events);
        self.wakes.get()
    }
}

fn task(queue: &WaitQueue, woken: &Woken, tid: u32, events: u32) -> Registration {
    let mut registration = Registration::new(queue, events);
    registration.enter(Waiter::Task(tid, woken.clone()));
    registration
}

fn exclusive(queue: &WaitQueue, woken: &Woken, tid: u32) -> Registration {
    let mut registration = Registration::new(queue, READABLE).exclusive();
    registration.enter(Waiter::Task(tid, woken.clone()));
    registration
}

fn all(woken: &Woken) -> Vec<u32> {
    core::iter::from_fn(|| woken.pop()).collect()
}

#[test]
fn a_wake_up_reaches_the_tasks_that_wait_for_its_events_once() {
    let (queue, woken) = (WaitQueue::default(), Woken::default());
    let reader = task(&queue, &woken, 1, READABLE);
    let writer = task(&queue, &woken, 2, WRITABLE);
    let both = task(&queue, &woken, 3, READABLE | WRITABLE);
    assert!(queue.wake(READABLE) && queue.has_tasks());
    assert_eq!(all(&woken), [1, 3]);
    assert!(reader.was_woken() && both.was_woken() && !writer.was_woken());
    assert!(!queue.wake(READABLE));
    drop(writer);
    assert!(!queue.wake(ALL) && !queue.has_tasks() && woken.is_empty());
}

#[test]
fn one_of_several_exclusive_tasks_is_woken_at_a_time() {
    let (queue, woken) = (WaitQueue::default(), Woken::default());
    let registrations = [1, 2, 3, 4].map(|tid| exclusive(&queue, &woken, tid));
    let plain = task(&queue, &woken, 5, READABLE);
    queue.wake(READABLE);
    assert_eq!(all(&woken), [1, 5]);
    queue.wake(READABLE);
    assert_eq!(all(&woken), [2]);
    // The second task took nothing.
    registrations[1].pass_on();
    assert_eq!(all(&woken), [3]);
    queue.wake_all(READABLE);
    assert_eq!(all(&woken), [4]);
    registrations[3].pass_on();
    assert!(woken.is_empty());
    drop(plain);
}

#[test]
fn an_exclusive_observer_ends_a_wake_up_only_if_it_wakes_a_task() {
    let (queue, woken) = (WaitQueue::default(), Woken::default());
    let logs = [false, true, true].map(|wakes| {
        Rc::new(Log {
            wakes: Cell::new(wakes),
            ..Log::default()
        })
    });
    let registrations = logs.each_ref().map(|log| {
        let mut registration = Registration::new(&queue, ALL).exclusive();
        registration.enter(Waiter::Observer(log.clone()));
        registration
    });
    assert!(queue.wake(READABLE));
    assert_eq!(
        logs.each_ref().map(|log| log.events.borrow().len()),
        [1, 1, 0]
    );
    assert!(queue.wake_all(WRITABLE));
    assert_eq!(
        logs.each_ref().map(|log| log.events.borrow().len()),
        [2, 2, 1]
    );
    // A task did not use its wake-up.
    let plain = task(&queue, &woken, 1, READABLE);
    queue.pass_on(READABLE);
    assert_eq!(
        logs.each_ref().map(|log| log.events.borrow().len()),
        [3, 3, 1]
    );
    assert!(!plain.was_woken());
    drop(plain);
    drop(registrations);
    assert!(!queue.wake(ALL) && woken.is_empty());
}

#[test]
fn a_place_ends_when_it_is_dropped_or_entered_again() {
    let (queue, woken) = (WaitQueue::default(), Woken::default());
    let mut registration = Registration::new(&queue, READABLE);
    assert!(!registration.was_woken(), "it is in no queue yet");
    registration.enter(Waiter::Task(1, woken.clone()));
    registration.enter(Waiter::Task(2, woken.clone()));
    let other = task(&queue, &woken, 3, READABLE);
    queue.wake(READABLE);
    assert_eq!(all(&woken), [2, 3]);
    assert!(registration.was_woken());
    registration.enter(Waiter::Task(4, woken.clone()));
    drop((registration, other));
    assert!(!queue.wake(READABLE));
}
