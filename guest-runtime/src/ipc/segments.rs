//! Shared memory segments (`shmget(2)`, `shmat(2)`).

use super::ids::{Ids, Object, Permission};
use crate::mm::SharedMemory;
use alloc::rc::{Rc, Weak};
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::ipc::{IPC_PRIVATE, Ipc64Perm};
use hartline_linux::shm::{SHM_DEST, SHM_LOCKED, SHMMNI, Shmid64Ds};

/// The memory of a segment. Ranges that show it own it too.
#[derive(Debug)]
enum Memory {
    /// It lives until the segment is removed.
    Kept(Rc<SharedMemory>),
    /// The segment is removed: it lives as long as it is attached.
    Removed(Weak<SharedMemory>),
}

/// A segment of shared memory.
#[derive(Debug)]
pub struct Segment {
    permission: Permission,
    /// Length, bytes.
    pub size: u64,
    memory: Memory,
    /// Times of the last `shmat`, `shmdt` and change, s.
    pub times: [i64; 3],
    creator: u32,
    /// The process that attached or detached it last.
    pub last: u32,
    /// It is locked (`SHM_LOCK`). Nothing is ever swapped out.
    pub is_locked: bool,
}

impl Object for Segment {
    fn permission(&self) -> &Permission {
        &self.permission
    }
}

impl Segment {
    /// A segment of `size` bytes.
    #[must_use]
    pub fn new(
        permission: Permission,
        size: u64,
        memory: SharedMemory,
        (pid, now): (u32, i64),
    ) -> Segment {
        Segment {
            permission,
            size,
            memory: Memory::Kept(Rc::new(memory)),
            times: [0, 0, now],
            creator: pid,
            last: 0,
            is_locked: false,
        }
    }

    /// The permission, to change it.
    pub fn permission_mut(&mut self) -> &mut Permission {
        &mut self.permission
    }

    /// The memory; none if it was removed and is attached nowhere.
    #[must_use]
    pub fn memory(&self) -> Option<Rc<SharedMemory>> {
        match &self.memory {
            Memory::Kept(memory) => Some(Rc::clone(memory)),
            Memory::Removed(memory) => memory.upgrade(),
        }
    }

    /// Whether `memory` is the segment's.
    #[must_use]
    pub fn is_of(&self, memory: &Rc<SharedMemory>) -> bool {
        let own = match &self.memory {
            Memory::Kept(own) => Rc::as_ptr(own),
            Memory::Removed(own) => own.as_ptr(),
        };
        core::ptr::eq(own, Rc::as_ptr(memory))
    }

    /// Number of ranges that show it.
    #[must_use]
    pub fn attached(&self) -> usize {
        match &self.memory {
            Memory::Kept(memory) => Rc::strong_count(memory) - 1,
            Memory::Removed(memory) => memory.strong_count(),
        }
    }

    /// The structure that `IPC_STAT` returns.
    #[must_use]
    pub fn to_uapi(&self, id: i32) -> Shmid64Ds {
        let [shm_atime, shm_dtime, shm_ctime] = self.times;
        let removed = match self.memory {
            Memory::Kept(_) => 0,
            Memory::Removed(_) => SHM_DEST,
        };
        let locked = if self.is_locked { SHM_LOCKED } else { 0 };
        let permission = self.permission.to_uapi(id);
        Shmid64Ds {
            shm_perm: Ipc64Perm {
                mode: permission.mode | removed | locked,
                ..permission
            },
            shm_segsz: self.size,
            shm_atime,
            shm_dtime,
            shm_ctime,
            shm_cpid: self.creator,
            shm_lpid: self.last,
            shm_nattch: self.attached() as u64,
            ..Shmid64Ds::default()
        }
    }
}

/// All segments.
#[derive(Debug)]
pub struct Segments {
    ids: Ids<Segment>,
}

impl Default for Segments {
    fn default() -> Self {
        Segments {
            ids: Ids::new(SHMMNI),
        }
    }
}

impl Segments {
    /// The segments; removed segments without an attachment are freed.
    pub fn ids(&mut self) -> &mut Ids<Segment> {
        let is_gone = |segment: &Segment| segment.memory().is_none();
        let unused: Vec<i32> = (self.ids.iter())
            .filter(|(_, segment)| is_gone(segment))
            .map(|(id, _)| id)
            .collect();
        for id in unused {
            // It was found just now.
            let _ = self.ids.remove(id);
        }
        &mut self.ids
    }

    /// The segments, for `/proc/sysvipc/shm`.
    pub fn iter(&self) -> impl Iterator<Item = (i32, &Segment)> {
        (self.ids.iter()).filter(|(_, segment)| segment.memory().is_some())
    }

    /// Removes a segment: its key is free, and its memory lives as long as it is attached.
    ///
    /// # Errors
    /// `EINVAL`, `EIDRM`.
    pub fn remove(&mut self, id: i32) -> Result<(), Errno> {
        let segment = self.ids().find_mut(id)?;
        if let Memory::Kept(memory) = &segment.memory {
            segment.permission.key = IPC_PRIVATE;
            segment.memory = Memory::Removed(Rc::downgrade(memory));
        }
        Ok(())
    }

    /// The segment to which `memory` belongs.
    pub fn of_memory(&mut self, memory: &Rc<SharedMemory>) -> Option<&mut Segment> {
        let ids = self.ids();
        let id = ids.iter().find(|(_, segment)| segment.is_of(memory))?.0;
        ids.find_mut(id).ok()
    }
}
