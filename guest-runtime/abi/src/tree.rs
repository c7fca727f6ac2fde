//! The root file system image: a read-only tree that the VMM packs from a directory or tar file. It
//! is mapped into the VM and read in place.
//!
//! All offsets are bytes from the image's start. The runtime checks every field that it uses.

/// First bytes of a tree image.
pub const MAGIC: [u8; 8] = *b"HARTTREE";

/// Header of the image.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TreeHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`crate::ABI_VERSION`].
    pub version: u32,
    /// Number of inodes. Inode 0 is the root directory.
    pub inode_count: u32,
    /// Offset of the [`TreeInode`] array, aligned to 8.
    pub inodes_offset: u64,
    /// Length of the image, bytes.
    pub length: u64,
}

/// An inode.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TreeInode {
    /// `st_mode`: type and permissions.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number (Linux `makedev` encoding) of a device node.
    pub rdev: u64,
    /// Modification time, seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds of the modification time, 0–999,999,999.
    pub mtime_ns: u32,
    /// Directory: the parent's inode (root: 0).
    pub parent: u32,
    /// Offset of the contents. Regular file or symbolic link: its bytes; directory: its
    /// [`TreeEntry`] array, aligned to 8, sorted by name. File data is aligned to 4096.
    pub offset: u64,
    /// Length of a regular file or symbolic link, bytes; number of entries of a directory.
    pub size: u64,
}

/// A directory entry. `.` and `..` are not stored.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TreeEntry {
    /// The inode of the entry.
    pub inode: u32,
    /// Length of the name, 1–255 bytes, without `/` and NUL.
    pub name_length: u32,
    /// Offset of the name.
    pub name_offset: u64,
}

const _: () = assert!(core::mem::size_of::<TreeInode>() == 56);
const _: () = assert!(core::mem::size_of::<TreeEntry>() == 16);
