//! Copying files and directories of an overlay to its upper layer, before they are changed.

use super::super::budget::INODE_COST;
use super::super::data::FileData;
use super::super::directory::Directory;
use super::super::filesystem::{FileSystem, NewInode};
use super::super::inode::Kind;
use super::super::types::Ino;
use super::PRIVATE;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;

/// The part of a regular file that a copy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    All,
    /// The file is truncated at once.
    Nothing,
}

impl FileSystem {
    /// Copies an inode of an overlay to the upper layer, with the directories above it, unless it is
    /// there. Returns the inode in the upper layer; for another inode, itself.
    ///
    /// # Errors
    /// `EROFS` without an upper layer, `ENOSPC`; `ESTALE` if the upper layer was changed other than
    /// through the overlay.
    pub fn copy_to_upper(&mut self, ino: Ino) -> Result<Ino, Errno> {
        self.copy_with(ino, Contents::All)
    }

    /// As [`copy_to_upper`](Self::copy_to_upper), but a copy of a regular file is empty.
    ///
    /// # Errors
    /// As [`copy_to_upper`](Self::copy_to_upper).
    pub fn copy_empty_to_upper(&mut self, ino: Ino) -> Result<Ino, Errno> {
        self.copy_with(ino, Contents::Nothing)
    }

    fn copy_with(&mut self, ino: Ino, contents: Contents) -> Result<Ino, Errno> {
        if !self.overlays.contains(ino) {
            return Ok(ino);
        }
        // The inode and the directories above it that are not in the upper layer, and one that is.
        let mut missing = Vec::from([ino]);
        let mut at = ino;
        while self.overlays.get(at)?.upper.is_none() {
            let own = self.own(at)?;
            if own.nlink == 0 {
                break;
            }
            if own.parent == at {
                // The root of an overlay without an upper layer.
                return Err(Errno::EROFS);
            }
            at = own.parent;
            missing.push(at);
        }
        let mut upper = ino;
        while let Some(at) = missing.pop() {
            upper = self.copy_one(at, contents)?;
        }
        Ok(upper)
    }

    /// Copies an inode whose directory is in the upper layer.
    fn copy_one(&mut self, ino: Ino, contents: Contents) -> Result<Ino, Errno> {
        let layers = self.overlays.get(ino)?;
        if let Some(upper) = layers.upper {
            return Ok(upper);
        }
        let from = layers.top().ok_or(Errno::EIO)?;
        let own = self.own(ino)?;
        let (parent, name, links) = (own.parent, own.name.clone(), own.nlink);
        // A removed file that is open has no name in the upper layer.
        let directory = match links {
            0 => None,
            _ => self.overlays.get(parent)?.upper,
        };
        let device = match directory {
            Some(directory) => {
                let is_removed = self.inode(directory)?.nlink == 0;
                if is_removed || self.own_lookup(directory, &name)?.is_some() {
                    return Err(Errno::ESTALE);
                }
                self.inode(directory)?.device
            }
            None => self.filled_device(self.own(ino)?.device),
        };
        let copy = self.copy_inode(from, contents, device, (directory, &name))?;
        if let Some(directory) = directory {
            let added = self.entries(directory, |entries, budget| {
                entries.insert(budget, &name, copy)
            });
            if let Err(error) = added {
                self.inode_mut(copy)?.nlink = 0;
                self.drop_unused(copy);
                return Err(error);
            }
            if self.inode(copy)?.directory().is_ok() {
                self.inode_mut(directory)?.nlink += 1;
            }
        }
        self.take_copy(ino, from, copy)?;
        Ok(copy)
    }

    /// Makes an inode with the contents and attributes of `from`.
    fn copy_inode(
        &mut self,
        from: Ino,
        contents: Contents,
        device: u64,
        (directory, name): (Option<Ino>, &[u8]),
    ) -> Result<Ino, Errno> {
        let source = self.inodes.get(&from).ok_or(Errno::ENOENT)?;
        let extended = source.extended.copy_without(PRIVATE);
        let (mode, rdev, owner) = (source.mode, source.rdev, (source.uid, source.gid));
        let times = [source.atime, source.mtime];
        let kind = match &source.kind {
            Kind::File(_) if contents == Contents::Nothing => Kind::File(FileData::default()),
            Kind::File(data) => {
                let own = self.budgets.get_mut(&device);
                Kind::File(data.copy(own.unwrap_or(&mut self.budget))?)
            }
            Kind::Directory(_) => Kind::Directory(Directory::empty()),
            Kind::Link(target) => Kind::Link(Cow::Owned(target.to_vec())),
            Kind::Fifo(_) => Kind::Fifo(Box::default()),
            Kind::Node => Kind::Node,
            _ => return Err(Errno::EIO),
        };
        let new = NewInode { kind, mode, rdev };
        let cost = INODE_COST + new.target_length() + extended.cost();
        if let Err(error) = self.budget.charge(cost) {
            if let Kind::File(mut data) = new.kind {
                let own = self.budgets.get_mut(&device);
                data.clear(own.unwrap_or(&mut self.budget));
            }
            return Err(error);
        }
        let mut inode = self.fresh(new, owner, device, directory.unwrap_or(from), name);
        [inode.atime, inode.mtime] = times;
        inode.extended = extended;
        if directory.is_none() {
            inode.nlink = 0;
        }
        Ok(self.insert(inode))
    }

    /// Makes `copy` of `from` the inode in the upper layer.
    fn take_copy(&mut self, ino: Ino, from: Ino, copy: Ino) -> Result<(), Errno> {
        self.retain(copy);
        let inode = self.own_mut(ino)?;
        let is_directory = inode.directory().is_ok();
        if let Kind::Overlay(layer) = &mut inode.kind {
            *layer = copy;
        }
        if let Some(layers) = self.overlays.layers.get_mut(&ino) {
            layers.upper = Some(copy);
            if !is_directory {
                layers.lower.clear();
                self.release(from);
            }
        }
        Ok(())
    }
}
