//! Interest lists: which interests a look at one meets, and when they end.

use super::Machine;
use crate::file::eventfd::EventFd;
use crate::fs::epoll::{Announcement, Epoll, Interest, Key};
use crate::fs::process::FileId;
use hartline_linux::errno::Errno;
use hartline_linux::eventpoll::{EPOLLET, EPOLLONESHOT};
use hartline_linux::fcntl::O_RDWR;
use std::rc::Rc;

struct List {
    m: Machine,
    epoll: FileId,
}

impl List {
    fn new() -> List {
        let mut m = Machine::empty();
        let list = Rc::new(Epoll::default());
        let fd = m.vfs.open_anonymous(&mut m.process, list, O_RDWR);
        let epoll = m.process.fds.get(fd.unwrap()).unwrap().file;
        List { m, epoll }
    }

    fn eventfd(&mut self) -> Key {
        let event = Rc::new(EventFd::new(0, false));
        let m = &mut self.m;
        let fd = m.vfs.open_anonymous(&mut m.process, event, O_RDWR);
        let fd = fd.unwrap();
        (fd, m.process.fds.get(fd).unwrap().file)
    }

    fn interest(&self, key: Key, events: u32) -> Interest {
        let ino = self.m.vfs.files.get(key.1).unwrap().ino;
        Interest::new(ino, Announcement::Change, events, 0)
    }

    fn watch(&mut self, key: Key, events: u32) -> Result<(), Errno> {
        let interest = self.interest(key, events);
        self.m.vfs.add_interest(self.epoll, key, interest)
    }

    /// The descriptors that a look meets, which all report `ready`.
    fn look(&mut self, ready: u32) -> Vec<u32> {
        self.m.vfs.take_changes();
        let list = self.m.vfs.epoll(self.epoll).unwrap();
        let last = list.begin_look();
        let mut met = Vec::new();
        while let Some((key, _)) = list.next_candidate(last) {
            met.push(key.0);
            match ready {
                0 => list.pass(key, 0),
                _ => list.report(key, ready, [0; 2]),
            }
        }
        met
    }

    fn write(&mut self, key: Key) {
        self.m.write(key.0, &1_u64.to_le_bytes()).unwrap();
    }
}

#[test]
fn a_look_meets_what_changed_since_the_last_one() {
    let mut list = List::new();
    let keys = [list.eventfd(), list.eventfd(), list.eventfd()];
    for key in keys {
        list.watch(key, 1).unwrap();
    }
    assert_eq!(list.watch(keys[0], 1), Err(Errno::EEXIST));
    let all = keys.map(|(fd, _)| fd);
    assert_eq!(list.look(0), all, "each once after it was added");
    assert!(list.look(0).is_empty());
    list.write(keys[2]);
    list.write(keys[0]);
    list.write(keys[2]);
    assert_eq!(list.look(1), [all[2], all[0]]);
    assert_eq!(
        list.look(0),
        [all[2], all[0]],
        "reported: it may still be ready"
    );
    assert!(list.look(1).is_empty());
}

#[test]
fn edges_and_one_shots_are_met_once() {
    for flags in [EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT] {
        let mut list = List::new();
        let key = list.eventfd();
        list.watch(key, 1 | flags).unwrap();
        assert_eq!(list.look(1), [key.0]);
        assert!(list.look(1).is_empty());
        list.write(key);
        assert_eq!(list.look(1), [key.0]);
        let interest = list.interest(key, 1);
        list.m
            .vfs
            .modify_interest(list.epoll, key, interest)
            .unwrap();
        assert_eq!(list.look(0), [key.0]);
    }
}

#[test]
fn files_that_announce_nothing_are_met_each_time() {
    let mut list = List::new();
    let key = list.eventfd();
    for (announcement, any) in [(Announcement::Input, false), (Announcement::Nothing, true)] {
        let mut interest = list.interest(key, 1);
        interest.announcement = announcement;
        list.m.vfs.add_interest(list.epoll, key, interest).unwrap();
        assert_eq!(
            list.m.vfs.epoll(list.epoll).unwrap().needs_any_change(),
            any
        );
        for _ in 0..3 {
            assert_eq!(list.look(0), [key.0]);
        }
        list.m.vfs.remove_interest(list.epoll, key).unwrap();
        assert!(list.look(0).is_empty());
    }
    assert_eq!(
        list.m.vfs.remove_interest(list.epoll, key),
        Err(Errno::ENOENT)
    );
}

#[test]
fn a_change_is_told_to_the_tasks_that_wait_for_the_list() {
    let mut list = List::new();
    let key = list.eventfd();
    let own = list.m.vfs.files.get(list.epoll).unwrap().ino;
    list.watch(key, 1).unwrap();
    assert!(
        list.m.vfs.take_changes().contains(&own),
        "there is one more interest"
    );
    list.write(key);
    assert!(list.m.vfs.take_changes().contains(&own));
    list.m.vfs.remove_interest(list.epoll, key).unwrap();
    list.write(key);
    assert!(!list.m.vfs.take_changes().contains(&own));
}

#[test]
fn interests_end_with_their_files_and_watches_with_their_list() {
    let mut list = List::new();
    let (closed, kept) = (list.eventfd(), list.eventfd());
    list.watch(closed, 1).unwrap();
    list.watch(kept, 1).unwrap();
    list.m.close(closed.0).unwrap();
    assert_eq!(list.look(1), [kept.0]);
    assert_eq!(list.m.vfs.epoll(list.epoll).unwrap().interests().len(), 1);
    list.m.vfs.release(list.epoll);
    list.write(kept);
    assert_eq!(
        list.m.vfs.take_changes().len(),
        1,
        "nothing but the eventfd"
    );
}
