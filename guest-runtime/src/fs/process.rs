//! The file state of a process: descriptors, directories, identity.

pub use crate::ids::FileId;

use super::filesystem::FileSystem;
use super::registry::Registry;
use super::types::{Ino, Timestamp};
use crate::credentials::Credentials;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::cmp::Ordering;
use hartline_linux::errno::Errno;

/// A file descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// The open file description.
    pub file: FileId,
    /// The inode of the file.
    pub ino: Ino,
    /// `FD_CLOEXEC`.
    pub close_on_exec: bool,
}

#[derive(Debug, Clone, Default)]
struct Slots {
    slots: Vec<Option<Descriptor>>,
    /// All slots below this index are in use.
    lowest_free: usize,
    /// Number of processes that use the table, besides one.
    sharers: u32,
}

/// The descriptors of a process.
#[derive(Debug)]
pub struct FdTable {
    /// Shared, because `/proc` shows the descriptors to other processes.
    table: Rc<RefCell<Slots>>,
    /// `RLIMIT_NOFILE`: descriptors are below this number.
    pub limit: u32,
}

/// Default soft limit of descriptors.
pub const DEFAULT_LIMIT: u32 = 1024;

impl Default for FdTable {
    fn default() -> Self {
        Self {
            table: Rc::default(),
            limit: DEFAULT_LIMIT,
        }
    }
}

impl FdTable {
    /// Returns a new table with copies of the descriptors.
    pub fn copy(&self) -> Self {
        Self {
            table: Rc::new(RefCell::new(Slots {
                sharers: 0,
                ..self.table.borrow().clone()
            })),
            limit: self.limit,
        }
    }

    /// Returns the same table for another process (`CLONE_FILES`).
    pub fn join(&self) -> Self {
        self.table.borrow_mut().sharers += 1;
        self.share()
    }

    /// Ends the use by a process. Returns whether other processes use the table.
    pub fn leave(&self) -> bool {
        let sharers = &mut self.table.borrow_mut().sharers;
        let is_shared = *sharers > 0;
        *sharers = sharers.saturating_sub(1);
        is_shared
    }

    /// Whether several processes use the table.
    pub fn is_shared(&self) -> bool {
        self.table.borrow().sharers > 0
    }

    /// An order of tables: equal if they are the same.
    pub fn order(&self, other: &Self) -> Ordering {
        Rc::as_ptr(&self.table).cmp(&Rc::as_ptr(&other.table))
    }

    /// Returns another handle to the same table.
    pub fn share(&self) -> Self {
        Self {
            table: Rc::clone(&self.table),
            limit: self.limit,
        }
    }

    /// Returns descriptor `fd`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn get(&self, fd: u32) -> Result<Descriptor, Errno> {
        let table = self.table.borrow();
        let slot = table.slots.get(fd as usize).copied().flatten();
        slot.ok_or(Errno::EBADF)
    }

    /// Adds the lowest free descriptor that is at least `from`.
    ///
    /// # Errors
    /// `EMFILE`; `EINVAL` if `from` is beyond the limit.
    pub fn insert(&mut self, from: u32, descriptor: Descriptor) -> Result<u32, Errno> {
        let fd = self.free_from(from)?;
        self.install(fd, descriptor)?;
        Ok(fd)
    }

    /// The lowest free descriptor that is at least `from`.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn free_from(&self, from: u32) -> Result<u32, Errno> {
        if from != 0 && from >= self.limit {
            return Err(Errno::EINVAL);
        }
        let table = self.table.borrow();
        let mut fd = table.lowest_free.max(from as usize);
        while table.slots.get(fd).is_some_and(Option::is_some) {
            fd += 1;
        }
        match u32::try_from(fd) {
            Ok(fd) if fd < self.limit => Ok(fd),
            _ => Err(Errno::EMFILE),
        }
    }

    /// Sets descriptor `fd`; returns the old one.
    ///
    /// # Errors
    /// `EBADF` beyond the limit, `ENOMEM`.
    pub fn install(
        &mut self,
        fd: u32,
        descriptor: Descriptor,
    ) -> Result<Option<Descriptor>, Errno> {
        if fd >= self.limit {
            return Err(Errno::EBADF);
        }
        let mut table = self.table.borrow_mut();
        let Slots {
            slots, lowest_free, ..
        } = &mut *table;
        let index = fd as usize;
        if index >= slots.len() {
            let more = index + 1 - slots.len();
            slots.try_reserve(more).map_err(|_| Errno::ENOMEM)?;
            slots.resize(index + 1, None);
        }
        if index == *lowest_free {
            *lowest_free += 1;
        }
        Ok(slots[index].replace(descriptor))
    }

    /// Removes a descriptor, and returns it.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn remove(&mut self, fd: u32) -> Result<Descriptor, Errno> {
        let mut table = self.table.borrow_mut();
        let slot = table.slots.get_mut(fd as usize).ok_or(Errno::EBADF)?;
        let descriptor = slot.take().ok_or(Errno::EBADF)?;
        table.lowest_free = table.lowest_free.min(fd as usize);
        Ok(descriptor)
    }

    /// Sets or clears `FD_CLOEXEC`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn set_close_on_exec(&mut self, fd: u32, on: bool) -> Result<(), Errno> {
        let mut table = self.table.borrow_mut();
        let slot = table.slots.get_mut(fd as usize).ok_or(Errno::EBADF)?;
        slot.as_mut().ok_or(Errno::EBADF)?.close_on_exec = on;
        Ok(())
    }

    /// Number of slots that Linux's table would have (`max_fds`), which limits `select`.
    pub fn capacity(&self) -> u32 {
        const FIRST: u32 = 64;
        const STEP: u32 = 128;
        let slots = u32::try_from(self.table.borrow().slots.len());
        match slots.unwrap_or(u32::MAX) {
            0..=FIRST => FIRST,
            n => (n.div_ceil(STEP).next_power_of_two()).saturating_mul(STEP),
        }
    }

    /// Iterates over the descriptors in use.
    pub fn iter(&self) -> impl Iterator<Item = Descriptor> + use<> {
        let table = self.table.borrow();
        let used: Vec<Descriptor> = table.slots.iter().copied().flatten().collect();
        used.into_iter()
    }

    /// Removes the descriptors that `chosen` selects.
    pub fn take(&mut self, chosen: impl Fn(&Descriptor) -> bool) -> Vec<Descriptor> {
        let mut table = self.table.borrow_mut();
        table.lowest_free = 0;
        let slots = table.slots.iter_mut();
        slots
            .filter_map(|slot| slot.take_if(|descriptor| chosen(descriptor)))
            .collect()
    }

    /// The first descriptor in use that is at least `from`.
    pub fn next(&self, from: u32) -> Option<u32> {
        let table = self.table.borrow();
        let rest = table.slots.get(from as usize..)?;
        let offset = rest.iter().position(Option::is_some)?;
        u32::try_from(offset).ok()?.checked_add(from)
    }
}

/// The adjustment in `oom_score_adj`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OomScore {
    /// −1000, never, to 1000, first.
    pub adjustment: i16,
    /// The least adjustment that a process without `CAP_SYS_RESOURCE` may set.
    pub least: i16,
}

/// File-related state of a process.
#[derive(Debug)]
pub struct Process {
    /// Descriptors.
    pub fds: FdTable,
    /// Working directory; kept by [`FileSystem::retain`].
    pub cwd: Ino,
    /// Root directory; kept by [`FileSystem::retain`].
    pub root: Ino,
    /// The adjustment of the out-of-memory score, by which a process is chosen and killed when
    /// memory is used up.
    pub oom_score: Rc<Cell<OomScore>>,
    /// Permission bits that new files do not receive.
    pub umask: u32,
    /// Number of processes, besides one, that have the same directories and umask (`CLONE_FS`). They
    /// have the same cell.
    pub fs_sharers: Rc<Cell<u32>>,
    /// Users, groups and capabilities; [`set_credentials`](Self::set_credentials) changes them.
    pub cred: Rc<Credentials>,
    /// Process number.
    pub pid: u32,
    /// Number of the task whose system call uses this state.
    pub running: u32,
    /// `PR_SET_DUMPABLE`; [`set_dumpable`](Self::set_dumpable) changes it.
    pub dumpable: u64,
    /// Number of the session.
    pub session: u32,
    /// When it started; the time stamps of `/proc`.
    pub started: Timestamp,
    /// The program's file, for `/proc/self/exe`.
    pub executable: Option<Ino>,
    /// All processes.
    pub registry: Registry,
}

impl Process {
    /// The inodes that the process keeps besides those of its descriptors.
    pub fn inodes(&self) -> impl Iterator<Item = Ino> + use<> {
        [Some(self.cwd), Some(self.root), self.executable]
            .into_iter()
            .flatten()
    }

    /// Stops sharing the directories and the umask with other processes.
    pub fn leave_fs(&mut self) {
        let sharers = core::mem::take(&mut self.fs_sharers);
        sharers.set(sharers.get().saturating_sub(1));
    }

    /// Whether another process has the same directories and umask as this one.
    pub fn shares_fs(&self, other: &Process) -> bool {
        Rc::ptr_eq(&self.fs_sharers, &other.fs_sharers)
    }

    /// A process with the file system's root and no descriptors.
    pub fn new(fs: &mut FileSystem, cred: Credentials, pid: u32) -> Self {
        use super::filesystem::ROOT;
        fs.retain(ROOT);
        fs.retain(ROOT);
        let process = Self {
            fds: FdTable::default(),
            cwd: ROOT,
            root: ROOT,
            oom_score: Rc::default(),
            umask: 0o022,
            fs_sharers: Rc::default(),
            cred: Rc::new(cred),
            pid,
            running: pid,
            dumpable: 1,
            session: pid,
            started: fs.now(),
            executable: None,
            registry: Registry::default(),
        };
        process.registry.add(&process);
        process
    }
}
