//! Changing names: creating, linking, removing and renaming.

use super::budget::{Budget, INODE_COST};
use super::directory::{Directory, Entries, FIRST_COOKIE, Target};
use super::filesystem::{Dentry, FileSystem, NewInode};
use super::inode::{Kind, MAY_EXEC, MAY_WRITE};
use super::proc;
use super::types::{Ino, Timestamp};
use super::volume;
use crate::credentials::Credentials;
use hartline_linux::capability::{CAP_FOWNER, CAP_FSETID};
use hartline_linux::errno::Errno;
use hartline_linux::inotify::{IN_ATTRIB, IN_CREATE, IN_DELETE};
use hartline_linux::limits::NAME_MAX;
use hartline_linux::stat::{S_ISGID, S_ISVTX};

/// The treatment of an existing target by [`FileSystem::rename`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rename {
    /// Replaces it.
    Replace,
    /// Fails with `EEXIST`.
    NoReplace,
    /// Swaps the two.
    Exchange,
}

impl FileSystem {
    /// Creates an inode with a name.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` in a removed directory or in `/proc`, `EACCES`, `ENOSPC`,
    /// `ENAMETOOLONG`.
    pub fn create(
        &mut self,
        at: Dentry<'_>,
        mut new: NewInode,
        cred: &Credentials,
    ) -> Result<Ino, Errno> {
        self.check_writable(at.directory)?;
        if volume::is_volume(at.directory) {
            let ino = self.volume_create(at, &new, cred)?;
            return Ok(ino.at(at.directory));
        }
        self.check_new_name(at, cred)?;
        let is_directory = matches!(new.kind, Kind::Directory(_));
        if self.overlays.contains(at.directory) {
            let ino = self.create_in_overlay(at, new, cred)?;
            self.tell_place(at, IN_CREATE, is_directory);
            return Ok(ino.at(at.directory));
        }
        let parent = self.inode(at.directory)?;
        let device = parent.device;
        let mut owner = cred.file_owner();
        if parent.mode & S_ISGID != 0 {
            owner.1 = parent.gid;
            if is_directory {
                new.mode |= S_ISGID;
            } else if new.mode & 0o010 != 0
                && !cred.is_in_group(parent.gid)
                && !cred.has(CAP_FSETID)
            {
                new.mode &= !S_ISGID;
            }
        }
        let cost = INODE_COST + new.target_length();
        self.budget.charge(cost)?;
        let inode = self.fresh(new, owner, device, at.directory, at.name);
        let ino = self.insert(inode);
        if let Err(error) = self.add_entry(at, ino) {
            self.inode_mut(ino)?.nlink = 0;
            self.drop_unused(ino);
            return Err(error);
        }
        if is_directory {
            self.inode_mut(at.directory)?.nlink += 1;
        }
        self.tell_place(at, IN_CREATE, is_directory);
        Ok(ino.at(at.directory))
    }

    /// Checks that `at` may become a name.
    fn check_new_name(&self, at: Dentry<'_>, cred: &Credentials) -> Result<(), Errno> {
        if proc::Node::from_ino(at.directory).is_some() {
            return Err(Errno::ENOENT);
        }
        if at.name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let parent = self.inode(at.directory)?;
        let existing = parent.directory()?.find(self.tree.as_ref(), at.name)?;
        if existing.is_some() {
            return Err(Errno::EEXIST);
        }
        if parent.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        parent
            .attributes(at.directory)
            .check(cred, MAY_WRITE | MAY_EXEC)
    }

    pub(super) fn add_entry(&mut self, at: Dentry<'_>, ino: Ino) -> Result<(), Errno> {
        let now = self.now();
        self.entries(at.directory, |entries, budget| {
            entries.insert(budget, at.name, ino)
        })?;
        self.changed(at.directory, now)
    }

    pub(super) fn remove_entry(&mut self, at: Dentry<'_>) -> Result<(), Errno> {
        let now = self.now();
        self.entries(at.directory, |entries, budget| {
            entries.remove(budget, at.name);
            Ok(())
        })?;
        self.changed(at.directory, now)
    }

    pub(super) fn replace_entry(&mut self, at: Dentry<'_>, ino: Ino) -> Result<(), Errno> {
        let now = self.now();
        self.entries(at.directory, |entries, _| {
            entries.replace(at.name, ino);
            Ok(())
        })?;
        self.changed(at.directory, now)
    }

    /// Notes a change of contents.
    pub(super) fn changed(&mut self, ino: Ino, now: Timestamp) -> Result<(), Errno> {
        let inode = self.inode_mut(ino)?;
        inode.mtime = now;
        inode.ctime = now;
        Ok(())
    }

    /// Changes a directory, which is copied into memory first.
    pub(super) fn entries(
        &mut self,
        directory: Ino,
        change: impl FnOnce(&mut Entries, &mut Budget) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.copy_up(directory)?;
        let (inode, budget) = self.parts(directory)?;
        match &mut inode.kind {
            Kind::Directory(Directory::Memory(entries)) => change(entries, budget),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn copy_up(&mut self, directory: Ino) -> Result<(), Errno> {
        let Directory::Image(index) = *self.inode(directory)?.directory()? else {
            return Ok(());
        };
        let tree = self.tree.ok_or(Errno::EIO)?;
        let raw = tree.inode(index)?;
        let mut entries = Entries::copied(raw.size);
        for at in 0..raw.size {
            let copied = tree.entry(&raw, at).and_then(|(child, name)| {
                let ino = Target::Image(child).ino();
                entries.copy(&mut self.budget, name, ino, at + FIRST_COOKIE)
            });
            if let Err(error) = copied {
                entries.clear(&mut self.budget);
                return Err(error);
            }
        }
        self.inode_mut(directory)?.kind = Kind::Directory(Directory::Memory(entries));
        Ok(())
    }

    /// Links an inode to another name.
    ///
    /// # Errors
    /// `EPERM` for a directory or an inode of `/proc`, `EXDEV` across file systems, `EMLINK`;
    /// otherwise as [`create`](Self::create).
    pub fn link(&mut self, at: Dentry<'_>, ino: Ino, cred: &Credentials) -> Result<(), Errno> {
        self.check_writable(at.directory)?;
        if volume::is_volume(at.directory) {
            return self.volume_link(at, ino, cred);
        }
        self.check_new_name(at, cred)?;
        let device = self.inode(at.directory)?.device;
        let inode = self.own(ino)?;
        if matches!(inode.kind, Kind::Directory(_)) {
            return Err(Errno::EPERM);
        }
        if inode.device != device {
            return Err(Errno::EXDEV);
        }
        if inode.nlink == u32::MAX {
            return Err(Errno::EMLINK);
        }
        if self.overlays.contains(ino) {
            self.link_in_overlay(at, ino, cred)?;
            self.fsnotify_self(ino, IN_ATTRIB);
            self.tell_place(at, IN_CREATE, false);
            return Ok(());
        }
        self.add_entry(at, ino)?;
        let now = self.now();
        let inode = self.inode_mut(ino)?;
        inode.nlink += 1;
        inode.nameable = false;
        inode.ctime = now;
        inode.parent = at.directory;
        inode.name = at.name.into();
        self.fsnotify_self(ino, IN_ATTRIB);
        self.tell_place(at, IN_CREATE, false);
        Ok(())
    }

    /// Checks that the entry of `ino` in `directory` may be removed.
    fn check_delete(&self, directory: Ino, ino: Ino, cred: &Credentials) -> Result<(), Errno> {
        let parent = self.inode(directory)?.attributes(directory);
        parent.check(cred, MAY_WRITE | MAY_EXEC)?;
        // A mount covers it, here or elsewhere.
        if ino.1 != directory.1 || self.mounts.is_point(ino) {
            return Err(Errno::EBUSY);
        }
        let owner = self.inode(ino)?.uid;
        let sticky = parent.mode & S_ISVTX != 0;
        if sticky && ![owner, parent.uid].contains(&cred.user.files) && !cred.has(CAP_FOWNER) {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// Removes the name `at` of the inode `ino`, which is not a directory.
    ///
    /// # Errors
    /// `EISDIR`, `EACCES`, `EPERM`.
    pub fn unlink(&mut self, at: Dentry<'_>, ino: Ino, cred: &Credentials) -> Result<(), Errno> {
        self.check_writable(at.directory)?;
        self.check_delete(at.directory, ino, cred)?;
        if self.inode(ino)?.attributes(ino).is_directory() {
            return Err(Errno::EISDIR);
        }
        if volume::is_volume(at.directory) {
            return self.volume_remove(at, ino, false);
        }
        if self.overlays.contains(at.directory) {
            self.remove_in_overlay(at, ino)?;
        }
        self.remove_entry(at)?;
        self.fsnotify_self(ino, IN_ATTRIB);
        self.drop_name(ino)?;
        self.tell_place(at, IN_DELETE, false);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOTEMPTY`, `EBUSY` for a mount point, `EACCES`, `EPERM`.
    pub fn remove_directory(
        &mut self,
        at: Dentry<'_>,
        ino: Ino,
        cred: &Credentials,
    ) -> Result<(), Errno> {
        self.check_writable(at.directory)?;
        self.check_delete(at.directory, ino, cred)?;
        if volume::is_volume(at.directory) {
            return self.volume_remove(at, ino, true);
        }
        if !self.inode(ino)?.directory()?.is_empty(self.tree.as_ref())? {
            return Err(Errno::ENOTEMPTY);
        }
        if self.overlays.contains(at.directory) {
            self.remove_in_overlay(at, ino)?;
        }
        self.remove_entry(at)?;
        self.inode_mut(at.directory)?.nlink -= 1;
        self.drop_name(ino)?;
        self.tell_place(at, IN_DELETE, true);
        Ok(())
    }

    /// Counts one name less; a directory then has none.
    pub(super) fn drop_name(&mut self, ino: Ino) -> Result<(), Errno> {
        let now = self.now();
        let inode = self.own_mut(ino)?;
        inode.ctime = now;
        inode.nlink = match inode.kind {
            Kind::Directory(_) => 0,
            _ => inode.nlink.saturating_sub(1),
        };
        self.drop_unused(ino);
        Ok(())
    }

    /// Moves the name `from` of `ino` to `to`, which may exist with the inode `target`.
    ///
    /// # Errors
    /// Errors of rename(2).
    pub fn rename(
        &mut self,
        (from, ino): (Dentry<'_>, Ino),
        (to, target): (Dentry<'_>, Option<Ino>),
        how: Rename,
        cred: &Credentials,
    ) -> Result<(), Errno> {
        self.check_writable(from.directory)?;
        if volume::is_volume(from.directory) && volume::is_volume(to.directory) {
            self.check_volume_rename((from, ino), (to, target), cred)?;
            return self.volume_rename((from, ino), (to, target), how);
        }
        self.check_rename((from, ino), (to, target), how, cred)?;
        if target == Some(ino) {
            return Ok(());
        }
        let is_in_overlay = self.overlays.contains(from.directory);
        if is_in_overlay {
            self.rename_layers((from, ino), (to, target), how)?;
        }
        let moved_directory = matches!(self.inode(ino)?.kind, Kind::Directory(_));
        match target {
            Some(target) if how == Rename::Exchange => {
                let other = matches!(self.inode(target)?.kind, Kind::Directory(_));
                self.copy_up(from.directory)?;
                self.copy_up(to.directory)?;
                self.replace_entry(from, target)?;
                self.replace_entry(to, ino)?;
                self.moved(target, to.directory, from, other)?;
                self.fsnotify_move(ino, (from, to), None);
                self.fsnotify_move(target, (to, from), None);
            }
            Some(target) => {
                self.copy_up(from.directory)?;
                self.replace_entry(to, ino)?;
                self.remove_entry(from)?;
                if moved_directory {
                    self.inode_mut(to.directory)?.nlink -= 1;
                }
                self.fsnotify_move(ino, (from, to), Some(target));
                self.drop_name(target)?;
            }
            None => {
                self.copy_up(from.directory)?;
                if !is_in_overlay {
                    self.add_entry(to, ino)?;
                }
                self.remove_entry(from)?;
                self.fsnotify_move(ino, (from, to), None);
            }
        }
        self.moved(ino, from.directory, to, moved_directory)
    }

    /// Moves a name in the layers of an overlay, and adds a new name in the overlay.
    fn rename_layers(
        &mut self,
        (from, ino): (Dentry<'_>, Ino),
        (to, target): (Dentry<'_>, Option<Ino>),
        how: Rename,
    ) -> Result<(), Errno> {
        if target.is_none() {
            self.add_entry(to, ino)?;
        }
        let moved = self.rename_in_overlay((from, ino), (to, target), how);
        if moved.is_err() && target.is_none() {
            self.remove_entry(to)?;
        }
        moved
    }

    /// Checks the guest's permissions for a rename within a volume; the host checks the rest.
    fn check_volume_rename(
        &self,
        (from, ino): (Dentry<'_>, Ino),
        (to, target): (Dentry<'_>, Option<Ino>),
        cred: &Credentials,
    ) -> Result<(), Errno> {
        if self.inode(from.directory)?.device != self.inode(to.directory)?.device {
            return Err(Errno::EXDEV);
        }
        self.check_delete(from.directory, ino, cred)?;
        match target {
            Some(target) => self.check_delete(to.directory, target, cred),
            None => (self.inode(to.directory)?.attributes(to.directory))
                .check(cred, MAY_WRITE | MAY_EXEC),
        }
    }

    /// Updates `ino` and the link counts of directories after a move to `to`.
    pub(super) fn moved(
        &mut self,
        ino: Ino,
        old_parent: Ino,
        to: Dentry<'_>,
        is_directory: bool,
    ) -> Result<(), Errno> {
        let now = self.now();
        if is_directory {
            self.inode_mut(old_parent)?.nlink -= 1;
            self.inode_mut(to.directory)?.nlink += 1;
        }
        let inode = self.own_mut(ino)?;
        inode.parent = to.directory;
        inode.name = to.name.into();
        inode.ctime = now;
        Ok(())
    }

    fn check_rename(
        &self,
        (from, ino): (Dentry<'_>, Ino),
        (to, target): (Dentry<'_>, Option<Ino>),
        how: Rename,
        cred: &Credentials,
    ) -> Result<(), Errno> {
        match (how, target) {
            (Rename::NoReplace, Some(_)) => return Err(Errno::EEXIST),
            (Rename::Exchange, None) => return Err(Errno::ENOENT),
            _ => {}
        }
        if self.inode(from.directory)?.device != self.inode(to.directory)?.device {
            return Err(Errno::EXDEV);
        }
        self.check_delete(from.directory, ino, cred)?;
        match target {
            Some(target) => self.check_delete(to.directory, target, cred)?,
            None => self.check_new_name(to, cred)?,
        }
        let source = &self.inode(ino)?.kind;
        let is_directory = matches!(source, Kind::Directory(_));
        if is_directory && self.is_below(to.directory, ino) {
            return Err(Errno::EINVAL);
        }
        if is_directory && from.directory != to.directory {
            self.inode(ino)?.attributes(ino).check(cred, MAY_WRITE)?;
        }
        let Some(target) = target else { return Ok(()) };
        let Kind::Directory(replaced) = &self.inode(target)?.kind else {
            let wrong = is_directory && how != Rename::Exchange;
            return if wrong { Err(Errno::ENOTDIR) } else { Ok(()) };
        };
        if self.is_below(from.directory, target) {
            let error = match how {
                Rename::Exchange => Errno::EINVAL,
                _ => Errno::ENOTEMPTY,
            };
            return Err(error);
        }
        match how {
            Rename::Exchange => Ok(()),
            _ if !is_directory => Err(Errno::EISDIR),
            _ if target != ino && !replaced.is_empty(self.tree.as_ref())? => Err(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Whether `directory` is `above` or one of its descendants.
    pub(super) fn is_below(&self, directory: Ino, above: Ino) -> bool {
        let mut at = directory;
        loop {
            if at == above {
                return true;
            }
            match self.inode(at) {
                Ok(inode) if inode.parent != at => at = inode.parent,
                _ => return false,
            }
        }
    }
}
