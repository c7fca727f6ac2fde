//! Names in volumes: lookup, creation, removal and rename.

use super::super::filesystem::{Dentry, FileSystem, NewInode};
use super::super::inode::{Kind, MAY_EXEC, MAY_WRITE};
use super::super::names::Rename;
use super::super::types::Ino;
use crate::credentials::Credentials;
use alloc::vec;
use alloc::vec::Vec;
use hartline_abi::volume::{Operation, VOLUME_DATA};
use hartline_linux::errno::Errno;
use hartline_linux::fs::{RENAME_EXCHANGE, RENAME_NOREPLACE};
use hartline_linux::inotify::{IN_ATTRIB, IN_CREATE, IN_DELETE};
use hartline_linux::limits::PATH_MAX;

impl FileSystem {
    /// Looks a name up in a directory of a volume.
    pub(in crate::fs) fn volume_lookup(
        &mut self,
        directory: Ino,
        name: &[u8],
    ) -> Result<Option<Ino>, Errno> {
        let (volume, node) = self.volume_and_node(directory)?;
        let args = [node, name.len() as u64, 0, 0, 0, 0];
        match self.ask(Operation::Lookup, args, &[name.into()], &mut []) {
            Ok(answer) => self
                .add_node(volume, &answer.attributes, directory, name)
                .map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a file, directory or symbolic link in a volume.
    pub(in crate::fs) fn volume_create(
        &mut self,
        at: Dentry<'_>,
        new: &NewInode,
        cred: &Credentials,
    ) -> Result<Ino, Errno> {
        self.check_parent(at.directory, cred)?;
        let (volume, node) = self.volume_and_node(at.directory)?;
        let (uid, gid) = cred.file_owner();
        let mut args = [
            node,
            at.name.len() as u64,
            u64::from(new.mode & 0o7777),
            uid.into(),
            gid.into(),
            0,
        ];
        let target: &[u8];
        let operation = match &new.kind {
            Kind::File(_) => {
                target = b"";
                Operation::Create
            }
            Kind::Directory(_) => {
                target = b"";
                Operation::MakeDirectory
            }
            Kind::Link(path) => {
                target = path;
                args[2] = path.len() as u64;
                Operation::SymbolicLink
            }
            // The guest's devices, FIFOs and sockets have no counterpart on the host.
            _ => return Err(Errno::EPERM),
        };
        let answer = self.ask(operation, args, &[at.name.into(), target.into()], &mut [])?;
        let ino = self.add_node(volume, &answer.attributes, at.directory, at.name)?;
        self.tell_place(at, IN_CREATE, operation == Operation::MakeDirectory);
        Ok(ino)
    }

    /// Creates a file without a name in a directory of a volume.
    pub(crate) fn volume_create_unnamed(
        &mut self,
        directory: Ino,
        mode: u32,
        cred: &Credentials,
    ) -> Result<Ino, Errno> {
        let (volume, node) = self.volume_and_node(directory)?;
        let (uid, gid) = cred.file_owner();
        let args = [node, 0, mode.into(), uid.into(), gid.into(), 0];
        let answer = self.ask(Operation::CreateUnnamed, args, &[], &mut [])?;
        self.add_node(volume, &answer.attributes, directory, b"")
    }

    /// Checks that the entries of a directory of a volume may be changed.
    fn check_parent(&self, directory: Ino, cred: &Credentials) -> Result<(), Errno> {
        let parent = self.inode(directory)?;
        if parent.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        let attributes = parent.attributes(directory);
        if !attributes.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        attributes.check(cred, MAY_WRITE | MAY_EXEC)
    }

    /// Links a file of a volume to another name.
    pub(in crate::fs) fn volume_link(
        &mut self,
        at: Dentry<'_>,
        ino: Ino,
        cred: &Credentials,
    ) -> Result<(), Errno> {
        self.check_parent(at.directory, cred)?;
        let inode = self.inode(ino)?;
        if inode.device != self.inode(at.directory)?.device {
            return Err(Errno::EXDEV);
        }
        if inode.attributes(ino).is_directory() {
            return Err(Errno::EPERM);
        }
        let args = [
            self.node(at.directory)?,
            at.name.len() as u64,
            self.node(ino)?,
            0,
            0,
            0,
        ];
        let answer = self.ask(Operation::Link, args, &[at.name.into()], &mut [])?;
        let inode = self.inode_mut(ino)?;
        inode.describe(&answer.attributes);
        inode.nameable = false;
        inode.parent = at.directory;
        inode.name = at.name.into();
        self.fsnotify_self(ino, IN_ATTRIB);
        self.tell_place(at, IN_CREATE, false);
        Ok(())
    }

    /// Removes a name from a directory of a volume.
    pub(in crate::fs) fn volume_remove(
        &mut self,
        at: Dentry<'_>,
        ino: Ino,
        is_directory: bool,
    ) -> Result<(), Errno> {
        let operation = match is_directory {
            true => Operation::RemoveDirectory,
            false => Operation::Unlink,
        };
        let args = [self.node(at.directory)?, at.name.len() as u64, 0, 0, 0, 0];
        self.ask(operation, args, &[at.name.into()], &mut [])?;
        if !is_directory {
            self.fsnotify_self(ino, IN_ATTRIB);
        }
        self.renew(ino);
        self.renew(at.directory);
        self.tell_place(at, IN_DELETE, is_directory);
        Ok(())
    }

    /// Updates the attributes after a change, and removes an inode that no longer exists.
    fn renew(&mut self, ino: Ino) {
        // If the host does not return attributes, the old ones stay.
        let _ = self.refresh_volume(ino);
        self.drop_unused_node(ino);
    }

    /// Renames within a volume.
    pub(in crate::fs) fn volume_rename(
        &mut self,
        (from, ino): (Dentry<'_>, Ino),
        (to, target): (Dentry<'_>, Option<Ino>),
        how: Rename,
    ) -> Result<(), Errno> {
        let flags = match how {
            Rename::Replace => 0,
            Rename::NoReplace => RENAME_NOREPLACE,
            Rename::Exchange => RENAME_EXCHANGE,
        };
        let args = [
            self.node(from.directory)?,
            from.name.len() as u64,
            self.node(to.directory)?,
            to.name.len() as u64,
            flags,
            0,
        ];
        self.ask(
            Operation::Rename,
            args,
            &[from.name.into(), to.name.into()],
            &mut [],
        )?;
        let mut dentry = |ino: Ino, at: Dentry<'_>| {
            if let Ok(inode) = self.inode_mut(ino) {
                inode.parent = at.directory;
                inode.name = at.name.into();
            }
        };
        dentry(ino, to);
        let exchanged = target.filter(|_| how == Rename::Exchange);
        if let Some(target) = exchanged {
            dentry(target, from);
        }
        // Two names of one file: nothing happens.
        if target != Some(ino) {
            let replaced = target.filter(|_| exchanged.is_none());
            self.fsnotify_move(ino, (from, to), replaced);
            if let Some(target) = exchanged {
                self.fsnotify_move(target, (to, from), None);
            }
        }
        for changed in [ino, from.directory, to.directory]
            .into_iter()
            .chain(target)
        {
            self.renew(changed);
        }
        Ok(())
    }

    /// The entries of a directory of a volume from a cookie on, as `struct linux_dirent64`; empty
    /// at the end.
    ///
    /// # Errors
    /// An error of the host.
    pub fn volume_entries(&self, directory: Ino, cookie: u64) -> Result<Vec<u8>, Errno> {
        let mut entries = vec![0; VOLUME_DATA];
        let args = [self.node(directory)?, cookie, 0, 0, 0, 0];
        let answer = self.ask(Operation::ReadDirectory, args, &[], &mut entries)?;
        entries.truncate(usize::try_from(answer.result).unwrap_or(0));
        Ok(entries)
    }

    /// Target of a symbolic link of a volume.
    pub(in crate::fs) fn volume_link_target(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        let mut target = vec![0; PATH_MAX];
        let args = [self.node(ino)?, 0, 0, 0, 0, 0];
        let answer = self.ask(Operation::ReadLink, args, &[], &mut target)?;
        target.truncate(usize::try_from(answer.result).unwrap_or(0));
        Ok(target)
    }
}
