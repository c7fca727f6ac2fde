//! Inodes of the root image, which are loaded when they are first looked up.

use super::data::FileData;
use super::directory::Directory;
use super::filesystem::{FileSystem, ROOT, ROOT_DEVICE};
use super::inode::{Inode, Kind, is_file_type};
use super::types::{Ino, Timestamp};
use super::xattr;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use hartline_abi::call::COPY_INODES;
use hartline_abi::tree::TreeInode;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::F_SEAL_SEAL;
use hartline_linux::stat::{S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG};

impl FileSystem {
    /// Loads an inode of the image into memory.
    pub(super) fn load(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        if self.inodes.contains_key(&ino) {
            return Ok(());
        }
        let tree = self.tree.ok_or(Errno::EIO)?;
        let index = u32::try_from(ino.0 - 1).map_err(|_| Errno::EIO)?;
        let raw = tree.inode(index)?;
        let is_directory = raw.mode & S_IFMT == S_IFDIR;
        // A directory is valid in its one parent only, so directories form a tree.
        if is_directory && self.inode(parent)?.origin != Some(raw.parent) {
            return Err(Errno::EIO);
        }
        let mut inode = self.image_inode(index, raw)?;
        inode.parent = parent;
        inode.name = name.into();
        self.inodes.insert(ino, inode);
        Ok(())
    }

    /// The inode of the tree that the regular file `ino` was loaded from, if its contents are
    /// unchanged; or the copy that is executed instead of a file of a volume.
    #[must_use]
    pub fn unchanged_origin(&self, ino: Ino) -> Option<u32> {
        let inode = self.inode(ino).ok()?;
        let data = match &inode.kind {
            Kind::File(data) => data,
            Kind::Volume(volume) => return volume.copy,
            _ => return None,
        };
        let contents = data.as_image()?;
        let origin = inode.origin?;
        let original = self.origin_bytes(origin)?;
        core::ptr::eq(contents, original).then_some(origin)
    }

    /// The contents of a regular file in the tree, or of a copy.
    #[must_use]
    pub fn origin_bytes(&self, origin: u32) -> Option<&'static [u8]> {
        if origin >= COPY_INODES {
            return self.copy_bytes(origin);
        }
        let tree = self.tree.as_ref()?;
        let inode = tree.inode(origin).ok()?;
        match inode.mode & S_IFMT {
            S_IFREG => tree.data(&inode).ok(),
            _ => None,
        }
    }

    pub(super) fn image_inode(&self, index: u32, raw: TreeInode) -> Result<Inode, Errno> {
        let tree = self.tree.as_ref().ok_or(Errno::EIO)?;
        if !is_file_type(raw.mode) {
            return Err(Errno::EIO);
        }
        let mut nlink = raw.nlink.max(1);
        let kind = match raw.mode & S_IFMT {
            S_IFREG => Kind::File(FileData::from_image(tree.data(&raw)?)),
            S_IFLNK => Kind::Link(Cow::Borrowed(tree.data(&raw)?)),
            S_IFDIR => {
                nlink = 2;
                for at in 0..raw.size {
                    let (child, _) = tree.entry(&raw, at)?;
                    nlink += u32::from(tree.inode(child)?.mode & S_IFMT == S_IFDIR);
                }
                Kind::Directory(Directory::Image(index))
            }
            S_IFIFO => Kind::Fifo(Box::default()),
            _ => Kind::Node,
        };
        let time = Timestamp {
            seconds: raw.mtime_s,
            nanoseconds: raw.mtime_ns,
        };
        Ok(Inode {
            kind,
            mode: raw.mode,
            nlink,
            uid: raw.uid,
            gid: raw.gid,
            device: ROOT_DEVICE,
            rdev: raw.rdev,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            users: 0,
            writers: 0,
            executions: 0,
            parent: ROOT,
            name: Box::default(),
            nameable: false,
            seals: F_SEAL_SEAL,
            extended: xattr::Attributes::default(),
            origin: Some(index),
        })
    }
}
