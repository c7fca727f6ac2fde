//! The table of mounts, and the way between a mount and the place that it covers.
//!
//! A mount shows a directory or file, its root, at a place. An [`Ino`] says through which mount an
//! inode was reached, so that `..`, paths and the flags of a mount are right also where several
//! mounts show one directory.

use super::filesystem::FileSystem;
use super::proc;
use super::process::Process;
use super::types::{Ino, MountId};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use hartline_linux::errno::Errno;
use hartline_linux::mount::{
    MS_NOATIME, MS_NODEV, MS_NODIRATIME, MS_NOEXEC, MS_NOSUID, MS_NOSYMFOLLOW, MS_RDONLY,
    MS_STRICTATIME,
};

/// Most mounts.
const MOST: usize = 4096;

/// A file system that is mounted at least once.
#[derive(Debug)]
pub struct SuperBlock {
    /// Name of its type.
    pub kind: &'static str,
    /// `st_dev` of its inodes.
    pub device: u64,
    /// Its root.
    pub root: Ino,
    /// It is read-only through all its mounts.
    pub read_only: Cell<bool>,
    /// Its files are removed with its last mount.
    pub is_temporary: bool,
    /// Options that `/proc/mounts` shows.
    pub options: Box<[u8]>,
    /// The file systems of the layers of an overlay, which exist as long as it does.
    pub layers: Vec<Rc<SuperBlock>>,
}

/// A mount.
#[derive(Debug)]
pub struct Mount {
    /// The file system.
    pub super_block: Rc<SuperBlock>,
    /// What it shows, through the mount itself.
    pub root: Ino,
    /// The place that it covers; none for the root of the tree, and after a lazy unmount.
    pub point: Option<Ino>,
    /// The first argument of `mount`.
    pub source: Rc<[u8]>,
    /// Flags, of [`Mount::FLAGS`].
    pub flags: u64,
}

impl Mount {
    /// The flags that each mount has of its own.
    pub const FLAGS: u64 = MS_RDONLY
        | MS_NOSUID
        | MS_NODEV
        | MS_NOEXEC
        | MS_NOSYMFOLLOW
        | MS_NOATIME
        | MS_NODIRATIME
        | MS_STRICTATIME;

    /// A mount of the whole file system with this device number and root.
    #[must_use]
    pub fn of(
        kind: &'static str,
        (device, root): (u64, Ino),
        source: &[u8],
        point: Option<Ino>,
    ) -> Self {
        let super_block = SuperBlock {
            kind,
            device,
            root,
            read_only: Cell::new(false),
            is_temporary: false,
            options: Box::default(),
            layers: Vec::new(),
        };
        Self {
            super_block: Rc::new(super_block),
            root,
            point,
            source: source.into(),
            flags: 0,
        }
    }

    /// Whether files cannot be changed through the mount.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.flags & MS_RDONLY != 0 || self.super_block.read_only.get()
    }
}

/// All mounts, by number. A number is free only when no file refers to it any more.
#[derive(Debug, Default)]
pub struct Mounts {
    slots: Vec<Option<Mount>>,
    /// The number of the root of the tree.
    top: MountId,
    /// Mounts that the next `umount2` with `MNT_EXPIRE` unmounts, unless a path leads into one of
    /// them before.
    expiring: Vec<MountId>,
}

impl Mounts {
    /// The mount with this number.
    #[must_use]
    pub fn get(&self, id: MountId) -> Option<&Mount> {
        self.slots.get(usize::from(id.0))?.as_ref()
    }

    /// As [`get`](Self::get), mutably.
    pub fn get_mut(&mut self, id: MountId) -> Option<&mut Mount> {
        self.slots.get_mut(usize::from(id.0))?.as_mut()
    }

    /// All mounts with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (MountId, &Mount)> {
        let numbered = (0..).map(MountId).zip(&self.slots);
        numbered.filter_map(|(id, mount)| Some((id, mount.as_ref()?)))
    }

    /// The number of the root of the tree.
    #[must_use]
    pub fn top(&self) -> MountId {
        self.top
    }

    /// Whether a mount is in the tree.
    #[must_use]
    pub fn is_attached(&self, id: MountId) -> bool {
        let mut at = id;
        while at != self.top {
            match self.get(at).and_then(|mount| mount.point) {
                Some(point) => at = point.1,
                None => return false,
            }
        }
        true
    }

    /// Makes a mount the root of the tree.
    fn set_top(&mut self, top: MountId) {
        self.top = top;
    }

    /// Marks a mount for its end (`MNT_EXPIRE`). Returns whether it was marked.
    pub fn expire(&mut self, id: MountId) -> bool {
        let is_marked = self.expiring.contains(&id);
        if !is_marked {
            self.expiring.push(id);
        }
        is_marked
    }

    /// Removes the mark of a mount, because a path led into it.
    #[inline]
    pub(super) fn used(&mut self, id: MountId) {
        if !self.expiring.is_empty() {
            self.expiring.retain(|&marked| marked != id);
        }
    }

    /// Removes all marks, and returns them.
    pub fn take_expiring(&mut self) -> Vec<MountId> {
        core::mem::take(&mut self.expiring)
    }

    /// Sets the marks again that [`take_expiring`](Self::take_expiring) returned.
    pub fn set_expiring(&mut self, marks: Vec<MountId>) {
        self.expiring = marks;
    }

    /// The index of a slot for another mount.
    ///
    /// # Errors
    /// `ENOSPC` if there are too many.
    pub fn free_slot(&self) -> Result<usize, Errno> {
        let free = self.slots.iter().position(Option::is_none);
        let index = free.unwrap_or(self.slots.len());
        match index < MOST {
            true => Ok(index),
            false => Err(Errno::ENOSPC),
        }
    }

    /// Adds a mount, whose root gets its number.
    ///
    /// # Errors
    /// `ENOSPC` if there are too many.
    fn add(&mut self, mut mount: Mount) -> Result<MountId, Errno> {
        let number = self.free_slot()?;
        let id = MountId(u16::try_from(number).map_err(|_| Errno::ENOSPC)?);
        mount.root = mount.root.on(id);
        match self.slots.get_mut(number) {
            Some(slot) => *slot = Some(mount),
            None => self.slots.push(Some(mount)),
        }
        Ok(id)
    }

    /// Removes a mount.
    fn remove(&mut self, id: MountId) -> Option<Mount> {
        self.used(id);
        self.slots.get_mut(usize::from(id.0))?.take()
    }

    /// The mount whose root this is.
    pub(super) fn rooted_at(&self, ino: Ino) -> Option<&Mount> {
        self.get(ino.1).filter(|mount| mount.root == ino)
    }

    /// The place behind `ino`: if mounts cover it, the root of the last one.
    pub(super) fn cross(&self, mut ino: Ino) -> Ino {
        // Each step leads to another mount, since a mount covers a place that existed before it.
        while let Some(next) = (self.slots.iter().flatten())
            .find(|mount| mount.point.is_some_and(|point| point.is_at(ino)))
        {
            ino = next.root;
        }
        ino
    }

    /// Whether a mount covers the inode, at any place.
    pub(super) fn is_point(&self, ino: Ino) -> bool {
        (self.slots.iter().flatten()).any(|mount| mount.point == Some(ino))
    }

    /// The mounts that cover places of the mount `id`.
    pub fn children(&self, id: MountId) -> impl Iterator<Item = MountId> {
        self.iter()
            .filter(move |(_, mount)| mount.point.is_some_and(|point| point.1 == id))
            .map(|(child, _)| child)
    }
}

impl FileSystem {
    /// All mounts.
    #[must_use]
    pub fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// The mount through which an inode was reached; none for an inode outside file systems: a
    /// pipe, a socket, a memory file.
    #[must_use]
    pub fn mount_of(&self, ino: Ino) -> Option<&Mount> {
        let mount = self.mounts.get(ino.1)?;
        let device = match proc::Node::from_ino(ino) {
            Some(node) => node.device(),
            None => self.inodes.get(&ino)?.device,
        };
        (mount.super_block.device == device).then_some(mount)
    }

    /// Whether the mount of an inode has a flag.
    #[must_use]
    pub fn has_mount_flag(&self, ino: Ino, flag: u64) -> bool {
        (self.mount_of(ino)).is_some_and(|mount| mount.flags & flag != 0)
    }

    /// Checks that the mount of an inode allows changes.
    ///
    /// # Errors
    /// `EROFS`.
    pub fn check_writable(&self, ino: Ino) -> Result<(), Errno> {
        match self.mount_of(ino).is_some_and(Mount::is_read_only) {
            true => Err(Errno::EROFS),
            false => Ok(()),
        }
    }

    /// Mounts `mount.root` over `mount.point`, which both exist from then on. Returns the root.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn attach(&mut self, mount: Mount) -> Result<Ino, Errno> {
        let (root, point) = (mount.root, mount.point);
        let id = self.mounts.add(mount)?;
        self.retain(root);
        if let Some(point) = point {
            self.retain(point);
        }
        Ok(root.on(id))
    }

    /// Mounts a file system that programs may mount again. Returns the root.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn attach_system(&mut self, mount: Mount) -> Result<Ino, Errno> {
        self.system.push(Rc::clone(&mount.super_block));
        self.attach(mount)
    }

    /// The file system of the VM whose type has this name.
    #[must_use]
    pub fn system_file_system(&self, kind: &[u8]) -> Option<Rc<SuperBlock>> {
        let mut all = self.system.iter();
        all.find(|found| found.kind.as_bytes() == kind).cloned()
    }

    /// Makes a directory without a name the root of a file system.
    ///
    /// # Errors
    /// `ENOENT` for a removed inode.
    pub(crate) fn make_root(&mut self, root: Ino) -> Result<(), Errno> {
        let inode = self.own_mut(root)?;
        inode.parent = root;
        inode.nlink = inode.nlink.max(2);
        Ok(())
    }

    /// As [`mounts`](Self::mounts), mutably.
    pub fn mounts_mut(&mut self) -> &mut Mounts {
        &mut self.mounts
    }

    /// As [`Mounts::get_mut`].
    pub fn mount_mut(&mut self, id: MountId) -> Option<&mut Mount> {
        self.mounts.get_mut(id)
    }

    /// Makes a mount the root of the tree.
    pub fn set_top(&mut self, top: MountId) {
        self.mounts.set_top(top);
    }

    /// Whether this is the root of a mount.
    #[must_use]
    pub fn is_mount_root(&self, ino: Ino) -> bool {
        self.mounts.rooted_at(ino).is_some()
    }

    /// The place behind `ino`: if mounts cover it, the root of the last one.
    #[must_use]
    pub fn covered(&self, ino: Ino) -> Ino {
        self.mounts.cross(ino)
    }

    /// A mount of `root` over `point`, like the one through which `root` was reached; none if `root`
    /// is outside file systems.
    #[must_use]
    pub fn copy_of_mount(&self, root: Ino, point: Ino) -> Option<Mount> {
        let from = self.mount_of(root)?;
        Some(Mount {
            super_block: Rc::clone(&from.super_block),
            root,
            point: Some(point),
            source: Rc::clone(&from.source),
            flags: from.flags,
        })
    }

    /// The mounts below a place, each after the one that it covers, with the number of the latter.
    #[must_use]
    pub fn mounts_below(&self, location: Ino, process: &Process) -> Vec<(MountId, MountId)> {
        let mut found = Vec::new();
        let mut parents = Vec::from([location.1]);
        while let Some(parent) = parents.pop() {
            for child in self.mounts.children(parent) {
                let point = self.mounts.get(child).and_then(|mount| mount.point);
                if point.is_some_and(|point| self.is_place_below(point, location, process)) {
                    found.push((child, parent));
                    parents.push(child);
                }
            }
        }
        found
    }

    /// Changes the place of a mount; none detaches it.
    pub fn set_point(&mut self, id: MountId, point: Option<Ino>) {
        let Some(mount) = self.mounts.get_mut(id) else {
            return;
        };
        let old = core::mem::replace(&mut mount.point, point);
        if let Some(point) = point {
            self.retain(point);
        }
        if let Some(old) = old {
            self.release(old);
        }
    }

    /// Removes a mount that nothing uses. The last mount of a temporary file system takes its files
    /// with it.
    pub fn remove_mount(&mut self, id: MountId) {
        self.set_point(id, None);
        let Some(mount) = self.mounts.remove(id) else {
            return;
        };
        self.release(mount.root);
        self.leave_super_block(mount.super_block);
    }

    /// Removes the files of a temporary file system if nothing else uses it.
    fn leave_super_block(&mut self, super_block: Rc<SuperBlock>) {
        let Some(last) = Rc::into_inner(super_block).filter(|last| last.is_temporary) else {
            return;
        };
        self.remove_files(last.device);
        for layer in last.layers {
            self.leave_super_block(layer);
        }
    }

    /// Removes all inodes of a file system, and its budget.
    fn remove_files(&mut self, device: u64) {
        let of_device = self.inodes.iter_mut();
        let of_device = of_device.filter(|(_, inode)| inode.device == device);
        let files: Vec<Ino> = of_device
            .map(|(&ino, inode)| {
                inode.nlink = 0;
                ino
            })
            .collect();
        for ino in files {
            self.drop_unused(ino);
        }
        self.budgets.remove(&device);
        self.forget_overlay(device);
    }

    /// Whether `location` is `above` or below it, through any number of mounts.
    #[must_use]
    pub fn is_place_below(&self, location: Ino, above: Ino, process: &Process) -> bool {
        let mut at = location;
        loop {
            if at.is_at(above) {
                return true;
            }
            match self.step_up(at, process) {
                Some(next) if !next.is_at(at) => at = next,
                _ => return false,
            }
        }
    }

    /// The place above `at`: for the root of a mount, the place that the mount covers; else the
    /// parent directory. None for the root of the tree and for a detached one.
    pub(super) fn step_up(&self, at: Ino, process: &Process) -> Option<Ino> {
        match self.mounts.rooted_at(at) {
            Some(mount) => mount.point,
            None => self.plain_parent(at, process).ok(),
        }
    }

    /// The parent directory of an inode that is not the root of a mount.
    pub(super) fn plain_parent(&self, at: Ino, process: &Process) -> Result<Ino, Errno> {
        let parent = match proc::Node::from_ino(at) {
            Some(node) => node.parent(process).map_or(at, proc::Node::ino),
            None => self.own(at)?.parent,
        };
        Ok(parent.at(at))
    }
}
