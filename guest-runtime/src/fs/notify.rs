//! inotify: instances, their watches and their queued events.
//!
//! An instance is identified by its anonymous inode. Watches do not keep inodes alive: a watch ends
//! with its inode.

use super::dnotify::DirectoryNotices;
use super::filesystem::{ANONYMOUS_DEVICE, Dentry, FileSystem};
use super::types::Ino;
use crate::mm::UserSliceMut;
use crate::wait::{READABLE, WaitQueue};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::inotify::{
    IN_ALL_EVENTS, IN_ATTRIB, IN_DELETE_SELF, IN_EXCL_UNLINK, IN_IGNORED, IN_ISDIR, IN_MASK_ADD,
    IN_MASK_CREATE, IN_MOVE_SELF, IN_MOVED_FROM, IN_MOVED_TO, IN_ONESHOT, IN_Q_OVERFLOW,
    InotifyEvent,
};
use hartline_linux::stat::{S_IFDIR, S_IFMT};
use zerocopy::IntoBytes;

/// Most queued events of one instance (`fs.inotify.max_queued_events`).
pub const MAX_EVENTS: usize = 16384;
/// Most watches of one instance (`fs.inotify.max_user_watches`).
pub const MAX_WATCHES: usize = 65536;
/// Most instances (`fs.inotify.max_user_instances`).
pub const MAX_INSTANCES: usize = 1024;
/// Length of `struct inotify_event` before the name, bytes.
const HEADER: usize = size_of::<InotifyEvent>();

/// A queued event.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    watch: i32,
    mask: u32,
    cookie: u32,
    name: Box<[u8]>,
}

impl Event {
    /// Length of the name with its padding, bytes.
    fn name_length(&self) -> usize {
        match self.name.len() {
            0 => 0,
            length => (length + 1).next_multiple_of(HEADER),
        }
    }

    fn length(&self) -> usize {
        HEADER + self.name_length()
    }

    fn write(&self, mut to: UserSliceMut<'_>) {
        let header = InotifyEvent {
            wd: self.watch,
            mask: self.mask,
            cookie: self.cookie,
            len: u32::try_from(self.name_length()).unwrap_or(u32::MAX),
        };
        to.copy_start(header.as_bytes());
        let (mut name, mut padding) = to.split_at(HEADER).1.split_at(self.name.len());
        name.copy_start(&self.name);
        padding.fill(0);
    }
}

#[derive(Debug, Clone, Copy)]
struct Watch {
    ino: Ino,
    mask: u32,
}

#[derive(Debug, Default)]
struct Instance {
    events: VecDeque<Event>,
    watches: BTreeMap<i32, Watch>,
    last_watch: i32,
    /// Woken when an event is queued.
    waiters: WaitQueue,
}

impl Instance {
    fn push(&mut self, event: Event) {
        if self.events.back() == Some(&event) {
            return;
        }
        let event = match self.events.len() {
            0..MAX_EVENTS => event,
            MAX_EVENTS => Event {
                watch: -1,
                mask: IN_Q_OVERFLOW,
                cookie: 0,
                name: Box::default(),
            },
            _ => return,
        };
        self.events.push_back(event);
        self.waiters.wake(READABLE);
    }
}

/// All inotify instances.
#[derive(Debug, Default)]
pub struct Notifications {
    instances: BTreeMap<Ino, Instance>,
    /// Watches of each inode: instance and watch descriptor.
    watched: BTreeMap<Ino, Vec<(Ino, i32)>>,
    last_cookie: u32,
    /// Notification by signals.
    pub directories: DirectoryNotices,
}

impl Notifications {
    /// Whether nobody hears of events.
    fn is_idle(&self) -> bool {
        self.watched.is_empty() && self.directories.is_empty()
    }

    /// Adds an instance.
    ///
    /// # Errors
    /// `EMFILE` beyond [`MAX_INSTANCES`].
    pub fn add_instance(&mut self, instance: Ino) -> Result<(), Errno> {
        if self.instances.len() >= MAX_INSTANCES {
            return Err(Errno::EMFILE);
        }
        self.instances.insert(instance, Instance::default());
        Ok(())
    }

    /// Removes a closed instance.
    pub fn remove_instance(&mut self, instance: Ino) {
        let Some(removed) = self.instances.remove(&instance) else {
            return;
        };
        for (number, watch) in removed.watches {
            self.forget(watch.ino, (instance, number));
        }
    }

    fn forget(&mut self, ino: Ino, watch: (Ino, i32)) {
        if let Some(watches) = self.watched.get_mut(&ino) {
            watches.retain(|&other| other != watch);
            if watches.is_empty() {
                self.watched.remove(&ino);
            }
        }
    }

    /// Adds or changes a watch of `ino` with the flags `wanted`; returns the watch descriptor.
    ///
    /// # Errors
    /// `EEXIST` with `MASK_CREATE`, `ENOSPC` beyond [`MAX_WATCHES`], `EINVAL` for a file that is
    /// not an instance.
    pub fn add_watch(&mut self, instance: Ino, ino: Ino, wanted: u32) -> Result<i32, Errno> {
        const KEPT: u32 = IN_ALL_EVENTS | IN_EXCL_UNLINK | IN_ONESHOT;
        let known = self.instances.get_mut(&instance).ok_or(Errno::EINVAL)?;
        let mut watches = known.watches.iter_mut();
        if let Some((&number, watch)) = watches.find(|(_, watch)| watch.ino == ino) {
            if wanted & IN_MASK_CREATE != 0 {
                return Err(Errno::EEXIST);
            }
            let kept = if wanted & IN_MASK_ADD != 0 {
                watch.mask
            } else {
                0
            };
            watch.mask = kept | wanted & KEPT;
            return Ok(number);
        }
        if known.watches.len() >= MAX_WATCHES {
            return Err(Errno::ENOSPC);
        }
        let number = known.last_watch.checked_add(1).ok_or(Errno::ENOSPC)?;
        known.last_watch = number;
        let mask = wanted & KEPT;
        known.watches.insert(number, Watch { ino, mask });
        self.watched
            .entry(ino)
            .or_default()
            .push((instance, number));
        Ok(number)
    }

    /// Removes a watch, and queues `IN_IGNORED`.
    ///
    /// # Errors
    /// `EINVAL` if there is no such watch.
    pub fn remove_watch(&mut self, instance: Ino, number: i32) -> Result<(), Errno> {
        let known = self.instances.get_mut(&instance).ok_or(Errno::EINVAL)?;
        let watch = known.watches.remove(&number).ok_or(Errno::EINVAL)?;
        known.push(Event {
            watch: number,
            mask: IN_IGNORED,
            cookie: 0,
            name: Box::default(),
        });
        self.forget(watch.ino, (instance, number));
        Ok(())
    }

    /// Reads queued events, as many as fit.
    ///
    /// # Errors
    /// `EAGAIN` if there are none, `EINVAL` if the first does not fit.
    pub fn read(&mut self, instance: Ino, mut to: UserSliceMut<'_>) -> Result<usize, Errno> {
        let known = self.instances.get_mut(&instance).ok_or(Errno::EINVAL)?;
        let mut done = 0;
        while let Some(event) = known.events.front() {
            if to.len() - done < event.length() {
                break;
            }
            event.write(to.part(done, event.length()));
            done += event.length();
            known.events.pop_front();
        }
        match done {
            0 if known.events.is_empty() => Err(Errno::EAGAIN),
            0 => Err(Errno::EINVAL),
            done => Ok(done),
        }
    }

    /// Whether a watch exists for an inode.
    #[must_use]
    pub fn is_watched(&self, ino: Ino) -> bool {
        self.watched.contains_key(&ino)
    }

    /// The watches of an instance: number, inode, mask.
    pub fn watches(&self, instance: Ino) -> impl Iterator<Item = (i32, Ino, u32)> {
        let instance = self.instances.get(&instance);
        let watches = instance.into_iter().flat_map(|instance| &instance.watches);
        watches.map(|(&number, watch)| (number, watch.ino, watch.mask))
    }

    /// Bytes that [`read`](Self::read) would return.
    #[must_use]
    pub fn waiting(&self, instance: Ino) -> usize {
        let events = self.instances.get(&instance).map(|known| &known.events);
        events.map_or(0, |events| events.iter().map(Event::length).sum())
    }

    /// The wait queue of an instance.
    #[must_use]
    pub fn waiters(&self, instance: Ino) -> Option<&WaitQueue> {
        self.instances.get(&instance).map(|known| &known.waiters)
    }

    /// Queues `event` for the watches of `ino`; `unlinked`: the file has no name.
    fn fsnotify(&mut self, ino: Ino, event: u32, cookie: u32, name: &[u8], unlinked: bool) {
        self.directories.queue(ino, event);
        let Some(watches) = self.watched.get(&ino) else {
            return;
        };
        for (instance, number) in watches.clone() {
            let Some(known) = self.instances.get_mut(&instance) else {
                continue;
            };
            let wanted = known.watches.get(&number).map_or(0, |watch| watch.mask);
            let excluded = unlinked && wanted & IN_EXCL_UNLINK != 0;
            if wanted & event & IN_ALL_EVENTS == 0 || excluded {
                continue;
            }
            known.push(Event {
                watch: number,
                mask: event,
                cookie,
                name: name.into(),
            });
            if wanted & IN_ONESHOT != 0 {
                // It was there a moment ago.
                let _ = self.remove_watch(instance, number);
            }
        }
    }
}

impl FileSystem {
    /// Queues an event about the name `dentry` for the watches of its directory.
    pub(super) fn tell_place(&mut self, dentry: Dentry<'_>, event: u32, is_directory: bool) {
        let directory = if is_directory { IN_ISDIR } else { 0 };
        let event = event | directory;
        self.notify
            .fsnotify(dentry.directory, event, 0, dentry.name, false);
    }

    /// Queues an event for the watches of `ino` and of its directory.
    pub fn fsnotify(&mut self, ino: Ino, event: u32) {
        if self.notify.is_idle() {
            return;
        }
        let Ok(inode) = self.own(ino) else { return };
        let event = match inode.mode & S_IFMT {
            S_IFDIR => event | IN_ISDIR,
            _ => event,
        };
        let unlinked = inode.nlink == 0;
        let named = !inode.name.is_empty() && inode.device != ANONYMOUS_DEVICE;
        if named {
            let (parent, name) = (inode.parent, inode.name.clone());
            self.notify.fsnotify(parent, event, 0, &name, unlinked);
        }
        self.notify.fsnotify(ino, event, 0, b"", false);
    }

    /// Queues an event for the watches of `ino` itself.
    pub(super) fn fsnotify_self(&mut self, ino: Ino, event: u32) {
        self.notify.fsnotify(ino, event, 0, b"", false);
    }

    /// Queues the events of a move of `ino` from `from` to `to`, which replaced `replaced`.
    pub(super) fn fsnotify_move(
        &mut self,
        ino: Ino,
        (from, to): (Dentry<'_>, Dentry<'_>),
        replaced: Option<Ino>,
    ) {
        if self.notify.is_idle() {
            return;
        }
        let is_directory = self
            .inode(ino)
            .is_ok_and(|inode| inode.mode & S_IFMT == S_IFDIR);
        let directory = if is_directory { IN_ISDIR } else { 0 };
        let notify = &mut self.notify;
        notify.last_cookie = notify.last_cookie.wrapping_add(1).max(1);
        let cookie = notify.last_cookie;
        for (dentry, event) in [(from, IN_MOVED_FROM), (to, IN_MOVED_TO)] {
            notify.fsnotify(
                dentry.directory,
                event | directory,
                cookie,
                dentry.name,
                false,
            );
        }
        if let Some(replaced) = replaced {
            notify.fsnotify(replaced, IN_ATTRIB, 0, b"", false);
        }
        notify.fsnotify(ino, IN_MOVE_SELF, 0, b"", false);
    }

    /// Removes the watches of a deleted inode.
    pub(super) fn tell_deleted(&mut self, ino: Ino) {
        self.notify.fsnotify(ino, IN_DELETE_SELF, 0, b"", false);
        for (instance, number) in self.notify.watched.remove(&ino).unwrap_or_default() {
            // The watch exists, because both maps contain it.
            let _ = self.notify.remove_watch(instance, number);
        }
    }
}
