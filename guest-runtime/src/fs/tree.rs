//! Checked reader of the root file system image ([`hartline_abi::tree`]).
//!
//! Nothing is copied: file data, names and link targets are slices of the image, which stays mapped
//! until the VM ends. Every field is checked when it is used, so a damaged image only causes `EIO`.

use core::fmt;
use hartline_abi::tree::{MAGIC, TreeEntry, TreeHeader, TreeInode};
use hartline_linux::errno::Errno;
use hartline_linux::limits::NAME_MAX;
use hartline_linux::stat::{S_IFDIR, S_IFMT};

/// Why an image was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeError {
    /// The image is shorter than its header, or than the length in the header.
    Truncated,
    /// The image does not start with [`MAGIC`].
    Magic,
    /// The image was made for another [`hartline_abi::ABI_VERSION`].
    Version,
    /// The inode array is empty or not within the image.
    Inodes,
    /// Inode 0 is not a directory.
    Root,
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "root file system image: truncated",
            Self::Magic => "root file system image: wrong magic number",
            Self::Version => "root file system image: made for another version",
            Self::Inodes => "root file system image: bad inode table",
            Self::Root => "root file system image: its root is not a directory",
        })
    }
}

impl core::error::Error for TreeError {}

/// A root file system image.
#[derive(Debug, Clone, Copy)]
pub struct Tree {
    bytes: &'static [u8],
    inodes: u64,
    count: u32,
}

fn bytes_at<const N: usize>(bytes: &[u8], offset: u64) -> Option<[u8; N]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..start.checked_add(N)?)?.try_into().ok()
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes_at(bytes, offset as u64)?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes_at(bytes, offset as u64)?))
}

impl Tree {
    /// Checks the header of an image.
    ///
    /// # Errors
    /// See [`TreeError`].
    pub fn new(bytes: &'static [u8]) -> Result<Self, TreeError> {
        use core::mem::offset_of;
        if bytes.get(..MAGIC.len()).ok_or(TreeError::Truncated)? != MAGIC {
            return Err(TreeError::Magic);
        }
        let word = |offset| u32_at(bytes, offset).ok_or(TreeError::Truncated);
        let long = |offset| u64_at(bytes, offset).ok_or(TreeError::Truncated);
        if word(offset_of!(TreeHeader, version))? != hartline_abi::ABI_VERSION {
            return Err(TreeError::Version);
        }
        let length = long(offset_of!(TreeHeader, length))?;
        let length = usize::try_from(length).map_err(|_| TreeError::Truncated)?;
        let bytes = bytes.get(..length).ok_or(TreeError::Truncated)?;
        let count = word(offset_of!(TreeHeader, inode_count))?;
        let inodes = long(offset_of!(TreeHeader, inodes_offset))?;
        let end = inodes.checked_add(u64::from(count) * size_of::<TreeInode>() as u64);
        if count == 0 || end.is_none_or(|end| end > length as u64) {
            return Err(TreeError::Inodes);
        }
        let tree = Self {
            bytes,
            inodes,
            count,
        };
        match tree.inode(0) {
            Ok(root) if root.mode & S_IFMT == S_IFDIR => Ok(tree),
            _ => Err(TreeError::Root),
        }
    }

    /// Number of inodes.
    pub fn inode_count(&self) -> u32 {
        self.count
    }

    /// Inode `index`.
    ///
    /// # Errors
    /// `EIO` if there is no such inode.
    pub fn inode(&self, index: u32) -> Result<TreeInode, Errno> {
        use core::mem::offset_of;
        if index >= self.count {
            return Err(Errno::EIO);
        }
        let start = self.inodes + u64::from(index) * size_of::<TreeInode>() as u64;
        let raw: [u8; size_of::<TreeInode>()] = bytes_at(self.bytes, start).ok_or(Errno::EIO)?;
        let word = |offset| u32_at(&raw, offset).ok_or(Errno::EIO);
        let long = |offset| u64_at(&raw, offset).ok_or(Errno::EIO);
        Ok(TreeInode {
            mode: word(offset_of!(TreeInode, mode))?,
            nlink: word(offset_of!(TreeInode, nlink))?,
            uid: word(offset_of!(TreeInode, uid))?,
            gid: word(offset_of!(TreeInode, gid))?,
            rdev: long(offset_of!(TreeInode, rdev))?,
            mtime_s: long(offset_of!(TreeInode, mtime_s))?.cast_signed(),
            mtime_ns: word(offset_of!(TreeInode, mtime_ns))?.min(999_999_999),
            parent: word(offset_of!(TreeInode, parent))?,
            offset: long(offset_of!(TreeInode, offset))?,
            size: long(offset_of!(TreeInode, size))?,
        })
    }

    /// The bytes of a regular file or symbolic link.
    ///
    /// # Errors
    /// `EIO` if they are not within the image.
    pub fn data(&self, inode: &TreeInode) -> Result<&'static [u8], Errno> {
        self.slice(inode.offset, inode.size)
    }

    /// Entry `index` of a directory: its inode and its name.
    ///
    /// # Errors
    /// `EIO` if there is no such entry, or it is damaged: an inode that does not exist or is the
    /// root, a name outside the image or an invalid name.
    pub fn entry(&self, directory: &TreeInode, index: u64) -> Result<(u32, &'static [u8]), Errno> {
        if index >= directory.size {
            return Err(Errno::EIO);
        }
        let start = index
            .checked_mul(size_of::<TreeEntry>() as u64)
            .and_then(|n| n.checked_add(directory.offset))
            .ok_or(Errno::EIO)?;
        let raw: [u8; size_of::<TreeEntry>()] = bytes_at(self.bytes, start).ok_or(Errno::EIO)?;
        let inode = u32_at(&raw, 0).ok_or(Errno::EIO)?;
        let length = u32_at(&raw, 4).ok_or(Errno::EIO)?;
        let name = self.slice(u64_at(&raw, 8).ok_or(Errno::EIO)?, u64::from(length))?;
        if inode == 0 || inode >= self.count || !is_name(name) {
            return Err(Errno::EIO);
        }
        Ok((inode, name))
    }

    /// Looks `name` up in a directory by binary search.
    ///
    /// # Errors
    /// `EIO` if a visited entry is damaged.
    pub fn find(&self, directory: &TreeInode, name: &[u8]) -> Result<Option<u32>, Errno> {
        let (mut low, mut high) = (0, directory.size);
        while low < high {
            let middle = low + (high - low) / 2;
            let (inode, found) = self.entry(directory, middle)?;
            match found.cmp(name) {
                core::cmp::Ordering::Equal => return Ok(Some(inode)),
                core::cmp::Ordering::Less => low = middle + 1,
                core::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    fn slice(&self, offset: u64, length: u64) -> Result<&'static [u8], Errno> {
        let start = usize::try_from(offset).map_err(|_| Errno::EIO)?;
        let end = offset.checked_add(length).ok_or(Errno::EIO)?;
        let end = usize::try_from(end).map_err(|_| Errno::EIO)?;
        self.bytes.get(start..end).ok_or(Errno::EIO)
    }
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX
        && name != b"."
        && name != b".."
        && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}
