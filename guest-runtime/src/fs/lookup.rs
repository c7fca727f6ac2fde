//! From names to inodes and back: directories, mount points, paths.

use super::filesystem::{FileSystem, ROOT};
use super::proc;
use super::process::Process;
use super::types::Ino;
use super::volume;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::limits::{NAME_MAX, PATH_MAX};
use hartline_linux::stat::S_IFDIR;

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
            return Ok(node.lookup(name, process).map(proc::Node::ino));
        }
        let found = match volume::is_volume(directory) {
            true => self.volume_lookup(directory, name)?,
            false => self.own_lookup(directory, name)?,
        };
        let Some(ino) = found else { return Ok(None) };
        let mount = self.mounts.iter().find(|(point, _)| *point == ino);
        Ok(Some(mount.map_or(ino, |&(_, root)| root)))
    }

    /// [`lookup`](Self::lookup) in a directory of the root image or in memory.
    fn own_lookup(&mut self, directory: Ino, name: &[u8]) -> Result<Option<Ino>, Errno> {
        let directories = self.inode(directory)?.directory()?;
        let Some(target) = directories.find(self.tree.as_ref(), name)? else {
            return Ok(None);
        };
        let ino = target.ino();
        self.load(ino, directory, name)?;
        Ok(Some(ino))
    }

    /// The parent of `directory`.
    ///
    /// # Errors
    /// `ENOENT` for a removed inode.
    pub fn parent(&self, directory: Ino, process: &Process) -> Result<Ino, Errno> {
        match proc::Node::from_ino(directory) {
            Some(node) => Ok(node
                .parent(process)
                .map_or_else(|| self.mounted_under(node.root()), proc::Node::ino)),
            None => Ok(self.inode(directory)?.parent),
        }
    }

    /// The directory that holds the mount point of `root`.
    fn mounted_under(&self, root: Ino) -> Ino {
        let mount = self.mounts.iter().find(|(_, mounted)| *mounted == root);
        let point = mount.and_then(|(point, _)| self.inodes.get(point));
        point.map_or(ROOT, |point| point.parent)
    }

    /// The absolute path of an inode below `root`, if it has one.
    pub fn path(&self, ino: Ino, root: Ino, process: &Process) -> Option<Vec<u8>> {
        let mut names: Vec<Cow<'_, [u8]>> = Vec::new();
        let mut at = ino;
        let mut length = 0;
        while at != root && at != ROOT {
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
            at = self.parent(at, process).ok()?;
        }
        if at != root {
            return None;
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

    /// Whether `ino` is a mount point or the root of a mount.
    pub(super) fn is_mount(&self, ino: Ino) -> bool {
        self.mounts
            .iter()
            .any(|&(point, root)| point == ino || root == ino)
    }

    /// Mounts the directory `root` over `point`.
    pub fn mount(&mut self, point: Ino, root: Ino) -> Result<(), Errno> {
        let (parent, name) = {
            let point = self.inode(point)?;
            (point.parent, point.name.clone())
        };
        if let Some(inode) = self.inodes.get_mut(&root) {
            inode.parent = parent;
            inode.name = name;
            inode.nlink = inode.nlink.max(2);
        }
        self.retain(point);
        self.retain(root);
        self.mounts.push((point, root));
        Ok(())
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
        let mount = self.mounts.iter().find(|(point, _)| *point == ino);
        if mount.is_some() {
            let mode = S_IFDIR;
            return Ok(Some(Found {
                cookie,
                name,
                ino,
                mode,
            }));
        }
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
