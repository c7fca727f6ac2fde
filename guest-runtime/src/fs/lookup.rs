//! From names to inodes and back: directories, mount points, paths.

use super::filesystem::FileSystem;
use super::proc;
use super::process::Process;
use super::types::Ino;
use super::volume;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::limits::{NAME_MAX, PATH_MAX};

/// A directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// The cookie.
    pub cookie: u64,
    /// The name.
    pub name: &'a [u8],
    /// The inode behind the name; for a mount point, the one below the mount.
    pub ino: Ino,
    /// `st_mode` of that inode.
    pub mode: u32,
}

impl FileSystem {
    /// The inode behind `name` (not `.` or `..`) in `directory`; for a mount point, the mounted
    /// root.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENAMETOOLONG`, `EIO` for a damaged image.
    pub fn lookup(
        &mut self,
        directory: Ino,
        name: &[u8],
        process: &Process,
    ) -> Result<Option<Ino>, Errno> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if let Some(node) = proc::Node::from_ino(directory) {
            let found = node.lookup(name, process).map(proc::Node::ino);
            return Ok(found.map(|ino| self.mounts.cross(ino.at(directory))));
        }
        let found = match volume::is_volume(directory) {
            true => self.volume_lookup(directory, name)?,
            false => self.own_lookup(directory, name)?,
        };
        let Some(ino) = found else { return Ok(None) };
        Ok(Some(self.mounts.cross(ino.at(directory))))
    }

    /// [`lookup`](Self::lookup) in a directory of the root image or in memory. Does not cross mounts.
    pub(super) fn own_lookup(&mut self, directory: Ino, name: &[u8]) -> Result<Option<Ino>, Errno> {
        let directories = self.inode(directory)?.directory()?;
        let Some(target) = directories.find(self.tree.as_ref(), name)? else {
            return Ok(None);
        };
        let ino = target.ino();
        self.load(ino, directory, name)?;
        if !self.overlays.is_empty() {
            self.merge(ino)?;
        }
        Ok(Some(ino))
    }

    /// The parent of `directory`; for the root of a mount, that of the place that the mount covers.
    ///
    /// # Errors
    /// `ENOENT` for a removed inode.
    pub fn parent(&self, directory: Ino, process: &Process) -> Result<Ino, Errno> {
        let mut at = directory;
        while let Some(mount) = self.mounts.rooted_at(at) {
            match mount.point {
                Some(point) => at = point,
                None => return Ok(at),
            }
        }
        Ok(self.mounts.cross(self.plain_parent(at, process)?))
    }

    /// The absolute path of a place below `root`, if it has one.
    pub fn path(&self, ino: Ino, root: Ino, process: &Process) -> Option<Vec<u8>> {
        let mut names: Vec<Cow<'_, [u8]>> = Vec::new();
        let mut at = ino;
        let mut length = 0;
        while !at.is_at(root) {
            if let Some(mount) = self.mounts.rooted_at(at) {
                at = mount.point?;
                continue;
            }
            let name = match proc::Node::from_ino(at) {
                Some(node) => Cow::Owned(node.name()),
                None => {
                    let inode = self.inodes.get(&at).filter(|inode| inode.nlink > 0)?;
                    Cow::Borrowed(&*inode.name)
                }
            };
            length += name.len() + 1;
            if name.is_empty() || length > PATH_MAX {
                return None;
            }
            names.push(name);
            at = self.plain_parent(at, process).ok()?;
        }
        let mut path = Vec::with_capacity(length.max(1));
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Some(path)
    }

    /// The name of an inode in its own file system, and the directory that has the name.
    #[must_use]
    pub fn name_above(&self, ino: Ino, process: &Process) -> Option<(Vec<u8>, Ino)> {
        let name = match proc::Node::from_ino(ino) {
            Some(node) => node.name(),
            None => self.own(ino).ok()?.name.to_vec(),
        };
        let above = self.plain_parent(ino, process).ok()?;
        (above != ino && !name.is_empty()).then_some((name, above))
    }

    /// The first entry of a directory with at least this cookie, without `.` and `..`.
    ///
    /// # Errors
    /// `ENOTDIR`, `EIO`.
    pub fn next_entry(&self, directory: Ino, cookie: u64) -> Result<Option<Found<'_>>, Errno> {
        let inode = self.inode(directory)?;
        let next = inode.directory()?.next(self.tree.as_ref(), cookie)?;
        let Some((cookie, name, target)) = next else {
            return Ok(None);
        };
        let ino = target.ino();
        let mode = match (self.inodes.get(&ino), &self.tree) {
            (Some(inode), _) => inode.mode,
            (None, Some(tree)) => {
                let index = u32::try_from(ino.0 - 1).map_err(|_| Errno::EIO)?;
                tree.inode(index)?.mode
            }
            (None, None) => return Err(Errno::EIO),
        };
        Ok(Some(Found {
            cookie,
            name,
            ino,
            mode,
        }))
    }
}
