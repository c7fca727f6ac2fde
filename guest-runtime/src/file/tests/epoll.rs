//! Interest lists: which interests a look at one meets, and when they end.

use super::Machine;
use crate::file::epoll::{Epoll, Found, Key, Wanted};
use crate::file::eventfd::EventFd;
use crate::fs::process::FileId;
use crate::wait::{ALL, READABLE, Registration, WaitQueue, Waiter, Woken};
use hartline_linux::errno::Errno;
use hartline_linux::eventpoll::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT};
use hartline_linux::fcntl::O_RDWR;
use hartline_linux::poll::{POLLIN, POLLOUT};
use std::rc::Rc;

struct List {
    m: Machine,
    epoll: FileId,
    woken: Woken,
}

/// A file that is watched: its key, and the queue that the tests wake for it.
struct Watched {
    key: Key,
    queue: WaitQueue,
}

impl List {
    fn new() -> List {
        let mut m = Machine::empty();
        let list = Rc::new(Epoll::default());
        let fd = m.open_anonymous(list, O_RDWR);
        let epoll = m.process.fds.get(fd).unwrap().file;
        List {
            m,
            epoll,
            woken: Woken::default(),
        }
    }

    fn list(&self) -> &Epoll {
        self.m.vfs.epoll(self.epoll).unwrap()
    }

    fn file(&mut self) -> Watched {
        let event = Rc::new(EventFd::new(0, false));
        let m = &mut self.m;
        let fd = m.open_anonymous(event, O_RDWR);
        Watched {
            key: (fd, m.process.fds.get(fd).unwrap().file),
            queue: WaitQueue::default(),
        }
    }

    fn watch(&mut self, file: &Watched, events: u32, ready: u32) -> Result<(), Errno> {
        let found = Found {
            ready,
            polled: false,
            registrations: Vec::from([Registration::new(&file.queue, ALL)]),
        };
        let wanted = Wanted { events, data: 0 };
        self.m.vfs.add_interest(self.epoll, file.key, wanted, found)
    }

    /// The descriptors that a look meets, which all have `ready`, and those that it reports.
    fn look(&mut self, ready: u32) -> [Vec<u32>; 2] {
        let list = self.list();
        let last = list.begin_look();
        let (mut met, mut reported) = (Vec::new(), Vec::new());
        while let Some(interest) = list.next_candidate(last) {
            met.push(interest.key().0);
            if interest.look(ready & interest.events()) {
                reported.push(interest.key().0);
            }
        }
        list.end_look();
        [met, reported]
    }

    /// Makes task `tid` wait for the list.
    fn wait(&self, tid: u32) -> Registration {
        let mut registration = Registration::new(self.list().waiters(), READABLE).exclusive();
        registration.enter(Waiter::Task(tid, self.woken.clone()));
        registration
    }
}

const NONE: [Vec<u32>; 2] = [Vec::new(), Vec::new()];

#[test]
fn a_look_meets_what_woke_since_the_last_one() {
    let mut list = List::new();
    let files = [list.file(), list.file(), list.file()];
    list.watch(&files[0], POLLIN, POLLIN).unwrap();
    list.watch(&files[1], POLLIN, POLLOUT).unwrap();
    list.watch(&files[2], POLLIN, 0).unwrap();
    assert_eq!(list.watch(&files[0], POLLIN, 0), Err(Errno::EEXIST));
    let all = files.each_ref().map(|file| file.key.0);
    assert_eq!(list.look(0), [vec![all[0]], vec![]], "it was ready");
    assert_eq!(list.look(0), NONE);
    files[2].queue.wake(READABLE);
    files[0].queue.wake(READABLE);
    files[2].queue.wake(READABLE);
    files[1].queue.wake(POLLOUT);
    let order = vec![all[2], all[0]];
    assert_eq!(list.look(POLLIN), [order.clone(), order.clone()]);
    assert_eq!(list.look(0), [order, vec![]], "they may still be ready");
    assert_eq!(list.look(POLLIN), NONE);
}

#[test]
fn edges_and_one_shots_are_reported_once() {
    for flags in [EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT] {
        let mut list = List::new();
        let file = list.file();
        let both = [vec![file.key.0], vec![file.key.0]];
        list.watch(&file, POLLIN | flags, POLLIN).unwrap();
        assert_eq!(list.look(POLLIN), both);
        assert_eq!(list.look(POLLIN), NONE);
        file.queue.wake(READABLE);
        match flags & EPOLLONESHOT {
            0 => assert_eq!(list.look(POLLIN), both),
            _ => assert_eq!(list.look(POLLIN), NONE),
        }
        let wanted = Wanted {
            events: POLLIN,
            data: 1,
        };
        let vfs = &mut list.m.vfs;
        vfs.modify_interest(list.epoll, file.key, wanted, POLLIN)
            .unwrap();
        assert_eq!(list.look(POLLIN), both);
    }
}

#[test]
fn an_event_that_is_not_ready_any_more_is_no_edge() {
    let mut list = List::new();
    let file = list.file();
    let met = vec![file.key.0];
    list.watch(&file, POLLIN | POLLOUT | EPOLLET, POLLOUT)
        .unwrap();
    assert_eq!(list.look(POLLOUT), [met.clone(), met.clone()]);
    // Something came, and was taken before the look.
    file.queue.wake(READABLE);
    assert_eq!(list.look(POLLOUT), [met.clone(), vec![]]);
    file.queue.wake(READABLE);
    assert_eq!(list.look(POLLIN | POLLOUT), [met.clone(), met]);
}

#[test]
fn files_that_the_host_announces_are_met_each_time() {
    let mut list = List::new();
    let file = list.file();
    let found = Found {
        polled: true,
        ..Found::default()
    };
    let wanted = Wanted {
        events: POLLIN,
        data: 0,
    };
    let vfs = &mut list.m.vfs;
    vfs.add_interest(list.epoll, file.key, wanted, found)
        .unwrap();
    for _ in 0..3 {
        assert_eq!(list.look(0), [vec![file.key.0], vec![]]);
        assert!(
            list.list()
                .any_candidate(|interest| interest.key() == file.key)
        );
    }
    list.m.vfs.remove_interest(list.epoll, file.key).unwrap();
    assert_eq!(list.look(0), NONE);
    assert!(!list.list().any_candidate(|_| true));
    let again = list.m.vfs.remove_interest(list.epoll, file.key);
    assert_eq!(again, Err(Errno::ENOENT));
}

#[test]
fn one_task_of_those_that_wait_for_a_list_is_woken() {
    let mut list = List::new();
    let file = list.file();
    list.watch(&file, POLLIN, 0).unwrap();
    let registrations = [1, 2].map(|tid| list.wait(tid));
    assert!(file.queue.wake(READABLE));
    assert_eq!((list.woken.pop(), list.woken.pop()), (Some(1), None));
    // A file that stays ready is for the next one too.
    assert_eq!(list.look(POLLIN), [vec![file.key.0], vec![file.key.0]]);
    assert_eq!((list.woken.pop(), list.woken.pop()), (Some(2), None));
    drop(registrations);
    assert_eq!(list.look(0), [vec![file.key.0], vec![]]);
    let registration = list.wait(3);
    list.m.vfs.remove_interest(list.epoll, file.key).unwrap();
    assert!(!file.queue.wake(READABLE) && list.woken.is_empty());
    // An interest that is ready when it is added wakes, too.
    list.watch(&file, POLLIN, POLLIN).unwrap();
    assert_eq!(list.woken.pop(), Some(3));
    drop(registration);
}

#[test]
fn of_exclusive_interests_the_first_with_a_waiting_task_is_woken() {
    let mut list = List::new();
    let (first, second) = (list.file(), list.file());
    let second = Watched {
        queue: first.queue.clone(),
        ..second
    };
    for file in [&first, &second] {
        list.watch(file, POLLIN | EPOLLEXCLUSIVE, 0).unwrap();
    }
    // No task waits: each list is to know.
    assert!(!first.queue.wake(READABLE));
    assert_eq!(list.look(0)[0], [first.key.0, second.key.0]);
    let registration = list.wait(1);
    assert!(first.queue.wake(READABLE));
    assert_eq!(list.look(0)[0], [first.key.0]);
    drop(registration);
}

#[test]
fn interests_end_with_their_files_and_with_their_list() {
    let mut list = List::new();
    let (closed, kept) = (list.file(), list.file());
    list.watch(&closed, POLLIN, POLLIN).unwrap();
    list.watch(&kept, POLLIN, POLLIN).unwrap();
    list.m.close(closed.key.0).unwrap();
    assert_eq!(list.look(POLLIN)[0], [kept.key.0]);
    assert_eq!(list.list().interests().len(), 1);
    assert_eq!((closed.queue.depth(), kept.queue.depth()), (1, 2));
    list.m.io().release(list.epoll);
    assert_eq!(kept.queue.depth(), 1, "nothing watches it");
    list.m.close(kept.key.0).unwrap();
}

#[test]
fn removed_candidates_leave_nothing_behind() {
    let mut list = List::new();
    let file = list.file();
    let others: Vec<Watched> = (0..100).map(|_| list.file()).collect();
    list.watch(&file, POLLIN, POLLIN).unwrap();
    for _ in 0..20 {
        for other in &others {
            list.watch(other, POLLIN, POLLIN).unwrap();
        }
        for other in &others {
            list.m.vfs.remove_interest(list.epoll, other.key).unwrap();
        }
        assert!(list.list().entries() < 2 * 100);
    }
    assert_eq!(list.look(0), [vec![file.key.0], vec![]]);
    assert_eq!(list.list().entries(), 0);
}
