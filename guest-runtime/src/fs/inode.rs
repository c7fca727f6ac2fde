//! Inodes.

use super::data::FileData;
use super::directory::Directory;
use super::pipe::Pipe;
use super::types::{Ino, Timestamp};
use super::volume::VolumeInode;
use super::xattr;
use crate::credentials::Credentials;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use hartline_linux::capability::{CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH};
use hartline_linux::errno::Errno;
use hartline_linux::stat::{
    S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK,
};

/// Kind of an inode.
#[derive(Debug)]
pub enum Kind {
    /// Regular file.
    File(FileData),
    /// Directory.
    Directory(Directory),
    /// Symbolic link and its target.
    Link(Cow<'static, [u8]>),
    /// FIFO or pipe.
    Fifo(Box<Pipe>),
    /// Character or block device ([`Inode::rdev`]) or socket.
    Node,
    /// Standard stream 0, 1 or 2 of the VM.
    Console(u32),
    /// A file of the host; [`Inode::mode`] has its type.
    Volume(Box<VolumeInode>),
    /// A file of an overlay, and the inode in a layer that has its contents and attributes.
    Overlay(Ino),
    /// Not a file: an eventfd or epoll instance, with its name in `/proc/self/fd`.
    Anonymous(&'static str),
}

/// An inode.
#[derive(Debug)]
pub struct Inode {
    /// Kind of the inode.
    pub kind: Kind,
    /// `st_mode`.
    pub mode: u32,
    /// Number of names; for a directory 2, plus one for each subdirectory.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of the file system.
    pub device: u64,
    /// Device number of a device node.
    pub rdev: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// Open files, working directories and mounts that keep it without a name.
    pub users: u32,
    /// Open file descriptions that write the file.
    pub writers: u32,
    /// Processes that execute the file.
    pub executions: u32,
    /// Directory of [`name`](Inode::name); for a directory always the parent.
    pub parent: Ino,
    /// The name of the last lookup.
    pub name: Box<[u8]>,
    /// The inode has no name yet and may get one (`O_TMPFILE` without `O_EXCL`).
    pub nameable: bool,
    /// Seals, of a regular file ([`super::seals`]).
    pub seals: u32,
    /// Extended attributes.
    pub extended: xattr::Attributes,
    /// The inode of the image that this one was loaded from.
    pub origin: Option<u32>,
}

/// The attributes of an inode that `stat` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub ino: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Whether its file system is mounted read-only.
    pub read_only: bool,
    /// Device number of a device node.
    pub rdev: u64,
    /// Length, bytes.
    pub size: u64,
    /// Preferred I/O size, bytes.
    pub block_size: u32,
    /// Space in use, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
}

/// Execute or search permission.
pub const MAY_EXEC: u32 = 1;
/// Write permission.
pub const MAY_WRITE: u32 = 2;
/// Read permission.
pub const MAY_READ: u32 = 4;

impl Attributes {
    /// Checks permissions; `mask` is a set of [`MAY_READ`], [`MAY_WRITE`] and [`MAY_EXEC`].
    ///
    /// # Errors
    /// `EACCES`, `EROFS`.
    pub fn check(&self, cred: &Credentials, mask: u32) -> Result<(), Errno> {
        if mask & MAY_WRITE != 0
            && self.read_only
            && matches!(self.mode & S_IFMT, S_IFREG | S_IFDIR | S_IFLNK)
        {
            return Err(Errno::EROFS);
        }
        let shift = match () {
            () if cred.user.files == self.uid => 6,
            () if cred.is_in_group(self.gid) => 3,
            () => 0,
        };
        match (self.mode >> shift) & mask == mask || self.is_overridden(cred, mask) {
            true => Ok(()),
            false => Err(Errno::EACCES),
        }
    }

    /// Whether capabilities give access that the mode refuses (`generic_permission` of the kernel).
    fn is_overridden(&self, cred: &Credentials, mask: u32) -> bool {
        let (overrides, only_reads) = match self.is_directory() {
            true => (true, mask & MAY_WRITE == 0),
            false => {
                let executable = mask & MAY_EXEC == 0 || self.mode & 0o111 != 0;
                (executable, mask == MAY_READ)
            }
        };
        overrides && cred.has(CAP_DAC_OVERRIDE) || only_reads && cred.has(CAP_DAC_READ_SEARCH)
    }

    /// Whether the inode is a directory.
    pub fn is_directory(&self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }
}

/// Least preferred I/O size of files in volumes, bytes: a request to the VMM takes as long as it
/// takes to copy about this much. The C library's streams read and write as much at once.
const VOLUME_IO_SIZE: u32 = 64 << 10;

impl Inode {
    /// The attributes of the inode, whose number is `ino`.
    pub fn attributes(&self, ino: Ino) -> Attributes {
        let (mut shown, mut block_size, mut read_only) = (ino.0, 4096, false);
        let (size, blocks) = match &self.kind {
            Kind::Volume(volume) => {
                shown = volume.host_ino;
                block_size = volume.block_size.max(VOLUME_IO_SIZE);
                read_only = volume.read_only;
                (volume.size, volume.blocks)
            }
            Kind::File(data) => (data.size(), data.blocks()),
            Kind::Link(target) => (target.len() as u64, 0),
            Kind::Directory(_) => (4096, 8),
            _ => (0, 0),
        };
        Attributes {
            device: self.device,
            ino: shown,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            read_only,
            rdev: self.rdev,
            size,
            block_size,
            blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
        }
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// `ENOTDIR` if the inode is not a directory.
    pub fn directory(&self) -> Result<&Directory, Errno> {
        match &self.kind {
            Kind::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// The contents of a regular file.
    ///
    /// # Errors
    /// `EISDIR` for a directory, `EINVAL` for another kind.
    pub fn data(&self) -> Result<&FileData, Errno> {
        match &self.kind {
            Kind::File(data) => Ok(data),
            Kind::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Value of `d_type` for a mode.
pub fn directory_type(mode: u32) -> u8 {
    (mode >> 12 & 15) as u8
}

/// Whether a mode contains a valid file type.
pub fn is_file_type(mode: u32) -> bool {
    matches!(
        mode & S_IFMT,
        S_IFREG | S_IFDIR | S_IFLNK | S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK
    )
}
