//! Files with code that the guest maps.

use crate::program::{Bytes, MAX_LENGTH, TreeFile};
use crate::tree::Stamp;
use hartline_abi::call::COPY_INODES;
use hartline_devices::volume::FileCopy;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A file that the guest requests translation images of.
#[derive(Debug, Clone)]
pub enum CodeFile {
    /// A file of the root file system tree.
    Tree(TreeFile),
    /// A copy of a file of a volume, and its number.
    Copy(Arc<FileCopy>, u32),
}

impl CodeFile {
    /// The inode number that the guest uses for the file.
    #[must_use]
    pub fn inode(&self) -> u32 {
        match self {
            Self::Tree(file) => file.inode(),
            Self::Copy(_, number) => COPY_INODES + number,
        }
    }

    /// Whether the file may be a program.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        match self {
            Self::Tree(file) => file.is_regular(),
            Self::Copy(copy, _) => copy.length <= MAX_LENGTH,
        }
    }

    /// The stamp of the host file that the file was read from, if it has one.
    #[must_use]
    pub fn stamp(&self) -> Option<&Stamp> {
        match self {
            Self::Tree(file) => file.stamp(),
            Self::Copy(..) => None,
        }
    }

    /// The contents of the file.
    ///
    /// # Errors
    /// Any I/O error of the host; also if the file is not regular.
    pub fn bytes(&self) -> io::Result<Bytes> {
        match self {
            Self::Tree(file) => file.bytes(),
            Self::Copy(copy, _) => {
                let length = usize::try_from(copy.length).map_err(io::Error::other)?;
                let mut bytes = vec![0; length];
                copy.file.read_exact_at(&mut bytes, 0)?;
                Ok(bytes.into())
            }
        }
    }

    /// The file's name in messages.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Tree(file) => file.path().unwrap_or_default().display().to_string(),
            Self::Copy(_, number) => format!("program {number} of the volumes"),
        }
    }
}
