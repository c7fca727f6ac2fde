//! Open file descriptions.

use super::asynchronous::Notice;
use super::epoll::Interest;
use super::operations::{File, Mode};
use crate::convert::{low_u32, to_usize};
use crate::fs::process::FileId;
use crate::fs::types::Ino;
use crate::wait::Registration;
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{FASYNC, O_ACCMODE, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_WRONLY};

/// An open file description.
#[derive(Debug)]
pub struct OpenFile {
    /// The inode of the file.
    pub ino: Ino,
    /// Access mode and status flags (`O_*`).
    pub flags: u32,
    /// Position, bytes; for a directory, the cookie of the next entry.
    pub offset: u64,
    /// The operations of the file.
    pub object: Rc<dyn File>,
    /// Properties of the file.
    pub mode: Mode,
    /// Settings for signals on events (`O_ASYNC`).
    pub notice: Notice,
    /// With `O_ASYNC`, the places of [`Notice`] in the wait queues of the file.
    pub(super) notice_registrations: Vec<Registration>,
    /// Interests of epoll in the description.
    pub(super) interests: Vec<Rc<Interest>>,
    /// Number of descriptors that refer to the description.
    references: u32,
}

/// Whether a description with these flags may be read. One that was opened with `O_PATH` is only a
/// location.
#[must_use]
pub fn reads(flags: u32) -> bool {
    flags & O_PATH == 0 && matches!(flags & O_ACCMODE, O_RDONLY | O_RDWR)
}

/// Whether a description with these flags may be written.
#[must_use]
pub fn writes(flags: u32) -> bool {
    flags & O_PATH == 0 && matches!(flags & O_ACCMODE, O_WRONLY | O_RDWR)
}

impl OpenFile {
    /// A description without descriptors.
    pub fn new(ino: Ino, flags: u32, object: Rc<dyn File>) -> Self {
        Self {
            ino,
            flags,
            offset: 0,
            mode: object.mode(),
            object,
            notice: Notice::default(),
            notice_registrations: Vec::new(),
            interests: Vec::new(),
            references: 0,
        }
    }

    /// Checks that the description may be read.
    ///
    /// # Errors
    /// `EBADF` if not.
    pub fn check_readable(&self) -> Result<(), Errno> {
        match reads(self.flags) {
            true => Ok(()),
            false => Err(Errno::EBADF),
        }
    }

    /// Checks that the description may be written.
    ///
    /// # Errors
    /// `EBADF` if not.
    pub fn check_writable(&self) -> Result<(), Errno> {
        match writes(self.flags) {
            true => Ok(()),
            false => Err(Errno::EBADF),
        }
    }

    /// Checks that the description is more than a location.
    ///
    /// # Errors
    /// `EBADF` for a description that was opened with `O_PATH`.
    pub fn check_located(&self) -> Result<(), Errno> {
        match self.flags & O_PATH {
            0 => Ok(()),
            _ => Err(Errno::EBADF),
        }
    }

    /// Drops an interest of epoll that has been removed from its list.
    pub(super) fn forget_interest(&mut self, interest: &Rc<Interest>) {
        self.interests.retain(|other| !Rc::ptr_eq(other, interest));
    }

    /// Whether at most one descriptor refers to the description.
    pub fn is_last(&self) -> bool {
        self.references <= 1
    }

    /// Whether calls do not block (`O_NONBLOCK`).
    pub fn is_nonblocking(&self) -> bool {
        self.flags & O_NONBLOCK != 0
    }
}

/// All open file descriptions.
#[derive(Debug, Default)]
pub struct OpenFiles {
    slots: Vec<Option<(FileId, OpenFile)>>,
    free: Vec<u32>,
    /// Number of descriptions that were ever opened.
    opened: u64,
    /// Descriptions with `O_ASYNC`.
    asynchronous: Vec<FileId>,
}

/// Bits of a [`FileId`] for its slot; the other bits count descriptions.
const SLOT_BITS: u32 = 20;
/// Most open file descriptions (`fs.file-max`).
pub const MAX_FILES: usize = 1 << SLOT_BITS;

/// The slot of a description in the table.
fn slot(id: FileId) -> usize {
    to_usize(id.0) % MAX_FILES
}

impl OpenFiles {
    /// Adds a description.
    ///
    /// # Errors
    /// `ENFILE` beyond [`MAX_FILES`].
    pub fn insert(&mut self, file: OpenFile) -> Result<FileId, Errno> {
        let index = match self.free.pop() {
            Some(index) => index as usize,
            None if self.slots.len() >= MAX_FILES => return Err(Errno::ENFILE),
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        self.opened += 1;
        let id = FileId(self.opened << SLOT_BITS | index as u64);
        self.slots[index] = Some((id, file));
        Ok(id)
    }

    /// A description.
    ///
    /// # Errors
    /// `EBADF` if it is closed.
    pub fn get(&self, id: FileId) -> Result<&OpenFile, Errno> {
        match self.slots.get(slot(id)) {
            Some(Some((own, file))) if *own == id => Ok(file),
            _ => Err(Errno::EBADF),
        }
    }

    /// A description, mutably.
    ///
    /// # Errors
    /// `EBADF` if it is closed.
    pub fn get_mut(&mut self, id: FileId) -> Result<&mut OpenFile, Errno> {
        match self.slots.get_mut(slot(id)) {
            Some(Some((own, file))) if *own == id => Ok(file),
            _ => Err(Errno::EBADF),
        }
    }

    /// Counts one more descriptor.
    pub fn retain(&mut self, id: FileId) {
        if let Ok(file) = self.get_mut(id) {
            file.references += 1;
        }
    }

    /// Counts one descriptor less; returns the description if it was the last.
    pub fn release(&mut self, id: FileId) -> Option<OpenFile> {
        let file = self.get_mut(id).ok()?;
        file.references = file.references.saturating_sub(1);
        if file.references > 0 {
            return None;
        }
        if file.flags & FASYNC != 0 {
            self.set_telling(id, false);
        }
        self.free.push(low_u32(slot(id) as u64));
        let (_, file) = self.slots.get_mut(slot(id))?.take()?;
        Some(file)
    }

    /// All descriptions.
    pub fn iter(&self) -> impl Iterator<Item = &OpenFile> {
        self.entries().map(|(_, file)| file)
    }

    /// All descriptions with their numbers.
    pub fn entries(&self) -> impl Iterator<Item = (FileId, &OpenFile)> {
        self.slots.iter().flatten().map(|(id, file)| (*id, file))
    }

    /// The descriptions with `O_ASYNC`.
    pub fn asynchronous(&self) -> &[FileId] {
        &self.asynchronous
    }

    /// Adds a description to [`asynchronous`](Self::asynchronous), or removes it.
    pub fn set_telling(&mut self, id: FileId, on: bool) {
        self.asynchronous.retain(|&other| other != id);
        if on {
            self.asynchronous.push(id);
        }
    }
}
