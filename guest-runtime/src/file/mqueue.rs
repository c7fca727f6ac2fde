//! POSIX message queues (`mq_overview(7)`).

use super::{readable, writable};
use crate::credentials::Credentials;
use crate::file::Io;
use crate::file::description::OpenFile;
use crate::file::operations::{File, Mode};
use crate::file::transfer::Transfer;
use crate::file::view::View;
use crate::fs::types::Ino;
use crate::mm::UserSliceMut;
use crate::net::socket::SocketId;
use crate::wait::poll::PollTable;
use crate::wait::{READABLE, WRITABLE, WaitQueue};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use hartline_linux::capability::{CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SYS_RESOURCE};
use hartline_linux::errno::Errno;
use hartline_linux::mqueue::NOTIFY_COOKIE_LEN;

/// Default number of messages, and the most that a program without `CAP_SYS_RESOURCE` may ask for
/// (`msg_default`, `msg_max`).
const MESSAGES: u64 = 10;
/// Default length of messages, and the most that a program without `CAP_SYS_RESOURCE` may ask for
/// (`msgsize_default`, `msgsize_max`), bytes.
const SIZE: u64 = 8192;
/// Most messages and longest messages of a queue (`HARD_MSGMAX`, `HARD_MSGSIZEMAX`).
const HARD: (u64, u64) = (65_536, 16 << 20);
/// Most queues, unless the program has `CAP_SYS_RESOURCE` (`queues_max`).
const QUEUES: usize = 256;
/// Most bytes of the queues of a user, whatever `RLIMIT_MSGQUEUE` is.
const MOST_BYTES: u64 = 16 << 20;
/// What a message, and a priority of messages, count towards `RLIMIT_MSGQUEUE`, bytes.
const OVERHEAD: u64 = 48;

/// The size of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most messages.
    pub messages: u64,
    /// Length of the longest message, bytes.
    pub size: u64,
}

impl Limits {
    /// The size of a queue that is opened without attributes.
    pub const DEFAULT: Self = Self {
        messages: MESSAGES,
        size: SIZE,
    };

    /// What a queue counts towards `RLIMIT_MSGQUEUE`, bytes.
    fn bytes(self) -> u64 {
        /// `MQ_PRIO_MAX`
        const PRIORITIES: u64 = 32_768;
        let overhead = self.messages + self.messages.min(PRIORITIES);
        // Far from an overflow, because both are checked.
        overhead * OVERHEAD + self.messages * self.size
    }

    /// Checks the size that a program asks for.
    ///
    /// # Errors
    /// `EINVAL`.
    fn check(self, cred: &Credentials) -> Result<(), Errno> {
        let most = match cred.has(CAP_SYS_RESOURCE) {
            true => HARD,
            false => (MESSAGES, SIZE),
        };
        let is_good = (1..=most.0).contains(&self.messages) && (1..=most.1).contains(&self.size);
        if is_good { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

/// How a process hears of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// It does not (`SIGEV_NONE`).
    None,
    /// By a signal with this value.
    Signal(u8, u64),
    /// By a message to a netlink socket (`SIGEV_THREAD`).
    Thread(SocketId, [u8; NOTIFY_COOKIE_LEN]),
}

/// A registration of `mq_notify`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    /// The process.
    pub pid: u32,
    /// How it hears of a message.
    pub notice: Notice,
}

/// Bytes of the queues. Queues share it.
#[derive(Debug, Default)]
struct Usage {
    /// Of each user with queues.
    of_users: BTreeMap<u32, u64>,
    /// Of all users together.
    all: u64,
}

impl Usage {
    /// Counts a queue of a user, if it fits the limits: of the user, and of all users together.
    ///
    /// # Errors
    /// `EMFILE` for the limit of the user, `ENOMEM` for the other one.
    fn charge(&mut self, user: u32, bytes: u64, limits: (u64, u64)) -> Result<(), Errno> {
        let used = self.of_users.get(&user).copied().unwrap_or(0);
        let (used, all) = (used.saturating_add(bytes), self.all.saturating_add(bytes));
        match () {
            () if used > limits.0 => Err(Errno::EMFILE),
            () if all > limits.1 => Err(Errno::ENOMEM),
            () => {
                self.of_users.insert(user, used);
                self.all = all;
                Ok(())
            }
        }
    }

    /// Ends one [`charge`](Self::charge).
    fn refund(&mut self, user: u32, bytes: u64) {
        self.all = self.all.saturating_sub(bytes);
        let used = self.of_users.get(&user).copied().unwrap_or(0);
        match used.saturating_sub(bytes) {
            0 => self.of_users.remove(&user),
            rest => self.of_users.insert(user, rest),
        };
    }
}

/// A queue.
#[derive(Debug)]
pub struct MessageQueue {
    /// Its size.
    pub limits: Limits,
    /// Permission bits, user and group.
    mode: u32,
    owner: (u32, u32),
    /// Messages by priority, in the order of their arrival.
    messages: RefCell<BTreeMap<u32, VecDeque<Vec<u8>>>>,
    /// Number of messages, and of their bytes.
    count: Cell<u64>,
    bytes: Cell<u64>,
    /// The process that hears of a message in the empty queue.
    pub registered: Cell<Option<Registered>>,
    /// Tasks in `mq_timedreceive` and `mq_timedsend`.
    pub receivers: WaitQueue,
    /// As `receivers`, for room.
    pub senders: WaitQueue,
    /// The parties that poll.
    pollers: WaitQueue,
    usage: Rc<RefCell<Usage>>,
    /// The real user that the queue counts for.
    user: u32,
}

impl MessageQueue {
    /// Number of messages.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Whether `cred` may read (4) or write (2) messages.
    fn permits(&self, cred: &Credentials, wanted: u32) -> bool {
        let shift = match () {
            () if cred.user.files == self.owner.0 => 6,
            () if cred.is_in_group(self.owner.1) => 3,
            () => 0,
        };
        self.mode >> shift & wanted == wanted || cred.has(CAP_DAC_OVERRIDE)
    }

    /// Adds a message. Returns the registration that it uses up: that of a queue that was empty and
    /// for which no task waited.
    ///
    /// # Errors
    /// `EAGAIN` if the queue is full.
    pub fn send(&self, priority: u32, text: Vec<u8>) -> Result<Option<Registered>, Errno> {
        let before = self.count.get();
        if before >= self.limits.messages {
            return Err(Errno::EAGAIN);
        }
        self.count.set(before + 1);
        self.bytes.set(self.bytes.get() + text.len() as u64);
        let mut messages = self.messages.borrow_mut();
        messages.entry(priority).or_default().push_back(text);
        self.pollers.wake(READABLE);
        let is_expected = self.receivers.wake(READABLE);
        Ok(match before == 0 && !is_expected {
            true => self.registered.take(),
            false => None,
        })
    }

    /// Takes the oldest message of the highest priority.
    ///
    /// # Errors
    /// `EAGAIN` if the queue is empty.
    pub fn receive(&self) -> Result<(u32, Vec<u8>), Errno> {
        let mut messages = self.messages.borrow_mut();
        let mut highest = messages.last_entry().ok_or(Errno::EAGAIN)?;
        let priority = *highest.key();
        let text = highest.get_mut().pop_front().ok_or(Errno::EAGAIN)?;
        if highest.get().is_empty() {
            highest.remove();
        }
        self.count.set(self.count.get() - 1);
        self.bytes.set(self.bytes.get() - text.len() as u64);
        self.pollers.wake(WRITABLE);
        self.senders.wake(WRITABLE);
        Ok((priority, text))
    }

    /// Removes the registration of a process.
    pub fn unregister(&self, pid: u32) -> Option<Registered> {
        let registered = self
            .registered
            .get()
            .filter(|registered| registered.pid == pid)?;
        self.registered.set(None);
        Some(registered)
    }
}

impl Drop for MessageQueue {
    fn drop(&mut self) {
        let mut usage = self.usage.borrow_mut();
        usage.refund(self.user, self.limits.bytes());
    }
}

/// The queues that have names, and what all queues count for.
#[derive(Debug)]
pub struct Queues {
    names: BTreeMap<Vec<u8>, Rc<MessageQueue>>,
    usage: Rc<RefCell<Usage>>,
    /// Most bytes of all queues together: several users could use up the runtime's heap.
    most: u64,
}

/// A queue to create: its permission bits, its size, and the limit `RLIMIT_MSGQUEUE`.
#[derive(Debug, Clone, Copy)]
pub struct NewQueue {
    /// Permission bits.
    pub mode: u32,
    /// Size.
    pub limits: Limits,
    /// Most bytes of the queues of a user.
    pub most: u64,
}

impl Queues {
    /// No queues yet; all together take at most `most` bytes.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Self {
            names: BTreeMap::new(),
            usage: Rc::default(),
            most,
        }
    }

    /// Opens the queue `name` to read (4) and write (2) messages. `new` describes the queue to create
    /// if there is none; with `exclusive` there must be none.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EACCES`; `EINVAL`, `ENOSPC`, `EMFILE`, `ENOMEM` for the size and number of
    /// queues.
    pub fn open(
        &mut self,
        name: Vec<u8>,
        (wanted, exclusive): (u32, bool),
        new: Option<NewQueue>,
        cred: &Credentials,
    ) -> Result<Rc<MessageQueue>, Errno> {
        if let Some(queue) = self.names.get(&name) {
            return match () {
                () if exclusive && new.is_some() => Err(Errno::EEXIST),
                () if queue.permits(cred, wanted) => Ok(Rc::clone(queue)),
                () => Err(Errno::EACCES),
            };
        }
        let new = new.ok_or(Errno::ENOENT)?;
        if self.names.len() >= QUEUES && !cred.has(CAP_SYS_RESOURCE) {
            return Err(Errno::ENOSPC);
        }
        new.limits.check(cred)?;
        let user = cred.user.real;
        let limits = (new.most.min(MOST_BYTES), self.most);
        let mut usage = self.usage.borrow_mut();
        usage.charge(user, new.limits.bytes(), limits)?;
        let queue = Rc::new(MessageQueue {
            limits: new.limits,
            mode: new.mode,
            owner: cred.file_owner(),
            messages: RefCell::default(),
            count: Cell::new(0),
            bytes: Cell::new(0),
            registered: Cell::new(None),
            receivers: WaitQueue::default(),
            senders: WaitQueue::default(),
            pollers: WaitQueue::default(),
            usage: Rc::clone(&self.usage),
            user,
        });
        self.names.insert(name, Rc::clone(&queue));
        Ok(queue)
    }

    /// Removes the name of a queue. The queue exists until it is closed.
    ///
    /// # Errors
    /// `ENOENT`; `EPERM` if the queue belongs to another user.
    pub fn unlink(&mut self, name: &[u8], cred: &Credentials) -> Result<(), Errno> {
        let queue = self.names.get(name).ok_or(Errno::ENOENT)?;
        if queue.owner.0 != cred.user.files && !cred.has(CAP_FOWNER) {
            return Err(Errno::EPERM);
        }
        self.names.remove(name);
        Ok(())
    }
}

/// An open queue.
#[derive(Debug)]
pub struct OpenQueue {
    /// The queue.
    pub queue: Rc<MessageQueue>,
    /// The process that has registered itself through this description.
    pub registrant: Cell<Option<u32>>,
}

impl File for OpenQueue {
    fn mode(&self) -> Mode {
        Mode::PREAD
    }

    fn name(&self) -> &'static str {
        "[mqueue]"
    }

    fn release(&self, _: &mut Io<'_>, _: Ino, _: u32) {
        if let Some(pid) = self.registrant.get() {
            self.queue.unregister(pid);
        }
    }

    fn read(&self, transfer: &mut Transfer<'_>, mut to: UserSliceMut<'_>) -> Result<usize, Errno> {
        let registered = self.queue.registered.get();
        let pid = registered.map_or(0, |registered| registered.pid);
        let (notice, signal) = match registered.map(|registered| registered.notice) {
            Some(Notice::Signal(signal, _)) => (0, signal),
            Some(Notice::Thread(..)) => (2, 0),
            Some(Notice::None) => (1, 0),
            None => (0, 0),
        };
        let bytes = self.queue.bytes.get();
        let text =
            format!("QSIZE:{bytes:<10} NOTIFY:{notice:<5} SIGNO:{signal:<5} NOTIFY_PID:{pid:<6}\n");
        let start = usize::try_from(transfer.at()).unwrap_or(usize::MAX);
        let done = to.copy_start(text.as_bytes().get(start..).unwrap_or(&[]));
        transfer.advance(done)
    }

    fn poll(&self, _: &View<'_>, _: &OpenFile, table: &mut PollTable) -> u32 {
        table.wait(&self.queue.pollers);
        let count = self.queue.count();
        readable(count > 0) | writable(count < self.queue.limits.messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: NewQueue = NewQueue {
        mode: 0o640,
        limits: Limits {
            messages: 2,
            size: 10,
        },
        most: 1000,
    };

    fn open(
        queues: &mut Queues,
        name: &[u8],
        cred: &Credentials,
    ) -> Result<Rc<MessageQueue>, Errno> {
        queues.open(name.to_vec(), (6, false), Some(NEW), cred)
    }

    #[test]
    fn messages_come_by_priority_and_then_by_age() {
        let mut queues = Queues::new(2000);
        let queue = open(&mut queues, b"q", &Credentials::root()).unwrap();
        queue.registered.set(Some(Registered {
            pid: 7,
            notice: Notice::Signal(10, 0),
        }));
        let used = queue.send(1, b"first".to_vec()).unwrap();
        assert_eq!(used.map(|registered| registered.pid), Some(7));
        assert_eq!(queue.send(2, b"second".to_vec()), Ok(None));
        assert_eq!(queue.send(3, b"third".to_vec()), Err(Errno::EAGAIN));
        assert_eq!((queue.count(), queue.bytes.get()), (2, 11));
        assert_eq!(queue.receive(), Ok((2, b"second".to_vec())));
        queue.send(1, b"third".to_vec()).unwrap();
        assert_eq!(queue.receive(), Ok((1, b"first".to_vec())));
        assert_eq!(queue.receive(), Ok((1, b"third".to_vec())));
        assert_eq!(queue.receive(), Err(Errno::EAGAIN));
        assert_eq!(queue.bytes.get(), 0);
    }

    #[test]
    fn owners_modes_and_limits_are_checked() {
        let mut queues = Queues::new(2000);
        let (owner, other) = (Credentials::new(5, 5), Credentials::new(6, 6));
        let queue = open(&mut queues, b"q", &owner).unwrap();
        assert_eq!(open(&mut queues, b"q", &other).err(), Some(Errno::EACCES));
        assert_eq!(queues.unlink(b"q", &other), Err(Errno::EPERM));
        let exclusive = queues.open(b"q".to_vec(), (6, true), Some(NEW), &owner);
        assert_eq!(exclusive.err(), Some(Errno::EEXIST));
        let large = NewQueue {
            limits: Limits {
                messages: 11,
                size: 1,
            },
            ..NEW
        };
        let refused = queues.open(b"r".to_vec(), (6, false), Some(large), &owner);
        assert_eq!(refused.err(), Some(Errno::EINVAL));
        // Each of these queues counts for 2 * 48 + 2 * 48 + 20 bytes.
        for name in [b"1", b"2", b"3"] {
            open(&mut queues, name, &owner).unwrap();
        }
        assert_eq!(open(&mut queues, b"4", &owner).err(), Some(Errno::EMFILE));
        queues.unlink(b"q", &owner).unwrap();
        assert_eq!(open(&mut queues, b"4", &owner).err(), Some(Errno::EMFILE));
        drop(queue);
        open(&mut queues, b"4", &owner).unwrap();
        assert_eq!(queues.unlink(b"q", &owner), Err(Errno::ENOENT));
        // Only users with queues have an entry.
        let small = NewQueue { most: 1, ..NEW };
        let refused = queues.open(b"r".to_vec(), (6, false), Some(small), &other);
        assert_eq!(refused.err(), Some(Errno::EMFILE));
        assert!(queues.usage.borrow().of_users.keys().eq([&5]));
        for name in [b"1", b"2", b"3", b"4"] {
            queues.unlink(name, &owner).unwrap();
        }
        assert!(queues.usage.borrow().of_users.is_empty());
        assert_eq!(queues.usage.borrow().all, 0);
    }

    #[test]
    fn users_have_limits_of_their_own_and_one_together() {
        let mut queues = Queues::new(700);
        let users = [5, 6, 7].map(|id| Credentials::new(id, id));
        // Each of these queues counts for 212 bytes.
        let small = NewQueue { most: 300, ..NEW };
        let mut open = |name: &[u8], cred| {
            let queue = queues.open(name.to_vec(), (6, false), Some(small), cred);
            queue.map(|_| ())
        };
        open(b"1", &users[0]).unwrap();
        assert_eq!(open(b"2", &users[0]), Err(Errno::EMFILE));
        open(b"3", &users[1]).unwrap();
        open(b"4", &users[2]).unwrap();
        assert_eq!(open(b"5", &Credentials::root()), Err(Errno::ENOMEM));
        queues.unlink(b"3", &users[1]).unwrap();
        let root = &Credentials::root();
        queues
            .open(b"5".to_vec(), (6, false), Some(small), root)
            .unwrap();
    }
}
