//! The root file system image: a read-only tree packed by the VMM from a
//! directory or tar file, mapped into the VM and read in place.
//!
//! All offsets are bytes from the image's start. The runtime checks every field
//! it uses.

/// First bytes of a tree image.
pub const MAGIC: [u8; 8] = *b"HARTTREE";

/// Start of the image.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TreeHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`crate::ABI_VERSION`].
    pub version: u32,
    /// Number of inodes. Inode 0 is the root directory.
    pub inode_count: u32,
    /// [`TreeInode`] array, aligned to 8.
    pub inodes_offset: u64,
    /// Length of the image.
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
    /// Nanoseconds, 0–999,999,999.
    pub mtime_ns: u32,
    /// Directory: the parent's inode (root: 0).
    pub parent: u32,
    /// Regular file or symbolic link: its bytes. Directory: its [`TreeEntry`]
    /// array, aligned to 8, sorted by name. File data is aligned to 4096.
    pub offset: u64,
    /// Regular file or symbolic link: bytes. Directory: number of entries.
    pub size: u64,
}

/// A directory entry. `.` and `..` are not stored.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TreeEntry {
    /// The inode it names.
    pub inode: u32,
    /// Length of the name, 1–255 bytes, without `/` and NUL.
    pub name_length: u32,
    /// Offset of the name.
    pub name_offset: u64,
}

const _: () = assert!(core::mem::size_of::<TreeInode>() == 56);
const _: () = assert!(core::mem::size_of::<TreeEntry>() == 16);
