//! Signal-driven input and output (`O_ASYNC`, `F_SETOWN` of fcntl(2)): which open files send a
//! signal on an event, and to which process or group.

use super::operations::Mode;
use super::{Io, Vfs};
use crate::arch::clock;
use crate::credentials::Credentials;
use crate::fs::process::{FileId, Process};
use crate::fs::types::Ino;
use crate::wait::{Observer, READABLE, Registration, WRITABLE, Waiter};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::FASYNC;
use hartline_linux::poll::POLLMSG;
use hartline_linux::stat::{S_IFMT, S_IFREG};

/// The receiver of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// A thread.
    Thread(u32),
    /// A process.
    Process(u32),
    /// All processes of a group.
    Group(u32),
}

/// The owner of an open file (`F_SETOWN`), and the user that set it, as whom the signal is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOwner {
    /// The receiver of the signal.
    pub whom: Whom,
    /// The real and the effective user that set the owner.
    pub users: [u32; 2],
}

impl FileOwner {
    /// The owner that a process with the identity `cred` sets.
    #[must_use]
    pub fn new(whom: Whom, cred: &Credentials) -> FileOwner {
        FileOwner {
            whom,
            users: [cred.user.real, cred.user.effective],
        }
    }

    /// Whether the user that set the owner may signal a process with the identity `target`
    /// (`sigio_perm` of the kernel).
    #[must_use]
    pub fn may_signal(&self, target: &Credentials) -> bool {
        let targets = [target.user.real, target.user.saved];
        self.users[1] == 0 || self.users.iter().any(|user| targets.contains(user))
    }
}

/// The signal settings of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notice {
    /// The receiver of the signal; none: no signal is sent.
    pub owner: Option<FileOwner>,
    /// The signal (`F_SETSIG`), which carries the descriptor; 0: `SIGIO`, without the descriptor.
    pub signal: u8,
    /// The descriptor that [`Io::set_asynchronous`] was called for, or that got a lease or the
    /// notifications of a directory.
    pub fd: u32,
}

/// The event that a lease is to end, or that a directory changed. Wait queues do not have it.
const MESSAGE: u32 = POLLMSG;

/// The events since the last [`Vfs::take_file_events`], by description. All handles share one list.
#[derive(Debug, Clone, Default)]
pub(super) struct FileEvents(Rc<RefCell<Vec<(FileId, u32)>>>);

/// The observer of a description with `O_ASYNC`.
#[derive(Debug)]
struct Watch {
    id: FileId,
    events: FileEvents,
}

impl Observer for Watch {
    fn notify(&self, events: u32) -> bool {
        let FileEvents(list) = &self.events;
        let mut list = list.borrow_mut();
        match list.iter_mut().find(|(id, _)| *id == self.id) {
            Some((_, known)) => *known |= events,
            None => list.push((self.id, events)),
        }
        false
    }
}

/// An event of an open file with `O_ASYNC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEvent {
    /// The receiver of the signal.
    pub owner: FileOwner,
    /// [`Notice::signal`].
    pub signal: u8,
    /// The descriptor.
    pub fd: u32,
    /// Whether there is new input, whether there is new room for output, and whether a lease is to
    /// end or a directory changed.
    pub kinds: [bool; 3],
}

impl Io<'_> {
    /// Sets or clears `O_ASYNC` on the description behind `fd`, whose wait queues are those of
    /// `registrations`.
    ///
    /// # Errors
    /// `EBADF`; `ENOTTY` for a file that cannot send signals.
    pub fn set_asynchronous(
        &mut self,
        process: &Process,
        fd: u32,
        on: bool,
        mut registrations: Vec<Registration>,
    ) -> Result<(), Errno> {
        let id = process.fds.get(fd)?.file;
        let events = self.vfs.file_events.clone();
        let file = self.vfs.files.get_mut(id)?;
        if (file.flags & FASYNC != 0) == on {
            return Ok(());
        }
        let is_regular = self.vfs.fs.inode(file.ino)?.mode & S_IFMT == S_IFREG;
        if is_regular || !file.mode.has(Mode::ASYNC) {
            return Err(Errno::ENOTTY);
        }
        file.flags ^= FASYNC;
        file.notice.fd = fd;
        file.notice_registrations.clear();
        if on {
            let observer: Rc<dyn Observer> = Rc::new(Watch { id, events });
            for registration in &mut registrations {
                registration.enter(Waiter::Observer(Rc::clone(&observer)));
            }
            file.notice_registrations = registrations;
        }
        let is_input = file.object.is_standard_input();
        let default = self.terminal_owner(id, process);
        let file = self.vfs.files.get_mut(id)?;
        file.notice.owner = file.notice.owner.or(default.filter(|_| on));
        self.vfs.files.set_telling(id, on);
        self.vfs.awaits_input |= is_input && on;
        Ok(())
    }

    /// Returns the default owner of a terminal: its foreground process group.
    fn terminal_owner(&self, id: FileId, process: &Process) -> Option<FileOwner> {
        let file = self.vfs.files.get(id).ok()?;
        let whom = match file.object.foreground(self.ptys)? {
            0 => Whom::Process(process.pid),
            group => Whom::Group(group),
        };
        Some(FileOwner::new(whom, &process.cred))
    }
}

impl Vfs {
    /// Begins the end of the leases that an opening of a file, for writing or only for reading,
    /// conflicts with. Returns when the last of them ends at the latest.
    pub fn break_leases(&mut self, ino: Ino, writes: bool) -> Option<u64> {
        if self.leases.is_empty() {
            return None;
        }
        let conflict = self.leases.break_for(ino, writes, clock::monotonic())?;
        let mut events = self.file_events.0.borrow_mut();
        events.extend(conflict.holders.into_iter().map(|holder| (holder, MESSAGE)));
        Some(conflict.deadline)
    }

    /// Whether [`take_file_events`](Self::take_file_events) has any.
    #[inline]
    pub fn has_file_events(&self) -> bool {
        !self.file_events.0.borrow().is_empty() || self.fs.notify.directories.has_pending()
    }

    /// Returns the events since the last call, of files with `O_ASYNC`.
    pub fn take_file_events(&mut self) -> Vec<FileEvent> {
        let mut events = self.file_events.0.take();
        let pending = self.fs.notify.directories.take_pending();
        events.extend(pending.into_iter().map(|file| (file, MESSAGE)));
        let event = |(id, events): (FileId, u32)| {
            let Notice { owner, signal, fd } = self.files.get(id).ok()?.notice;
            Some(FileEvent {
                owner: owner?,
                signal,
                fd,
                kinds: [READABLE, WRITABLE, MESSAGE].map(|kind| events & kind != 0),
            })
        };
        events.into_iter().filter_map(event).collect()
    }

    /// Enables the signal for the next standard input, after a read.
    pub fn input_was_read(&mut self) {
        let tells = |id: &FileId| {
            let file = self.files.get(*id);
            file.is_ok_and(|file| file.object.is_standard_input())
        };
        self.awaits_input |= self.files.asynchronous().iter().any(tells);
    }
}
