//! Errors of packing a tree.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a tree could not be packed. Every variant names the host file, or the path inside
/// the tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// An operation on a host file failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Host {
        /// The host file.
        path: PathBuf,
        /// The attempted operation: "open", "read", …
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// A file was made shorter, or became another kind of file, while it was read.
    #[error("{}: changed while it was read", path.display())]
    Changed {
        /// The host file.
        path: PathBuf,
    },
    /// The image's memory file could not be made or written.
    #[error("root file system image: cannot {action}: {source}")]
    Image {
        /// The attempted operation.
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The tree needs more than [`super::MAX_LENGTH`] bytes.
    #[error("{path}: the root file system image would be larger than {limit} bytes")]
    TooLarge {
        /// The file that exceeded the limit.
        path: String,
        /// The limit, bytes.
        limit: u64,
    },
    /// The tree has more data than it [may](super::TreeBuilder::limit).
    #[error("the root file system image would have more than {limit} bytes of data")]
    Limit {
        /// The limit, bytes.
        limit: u64,
    },
    /// The tree has more than [`super::MAX_INODES`] files.
    #[error("{path}: more than {limit} files in the root file system")]
    TooManyFiles {
        /// The file that exceeded the limit.
        path: String,
        /// The limit.
        limit: u32,
    },
    /// A path inside the tree is invalid: `..`, a NUL byte, a component longer than 255 bytes.
    #[error("{path}: {reason}")]
    BadPath {
        /// The path.
        path: String,
        /// The fault of the path.
        reason: &'static str,
    },
    /// A path goes through something that is no directory.
    #[error("{path}: a part of this path is not a directory")]
    NotADirectory {
        /// The path inside the tree.
        path: String,
    },
    /// Symbolic links of the tree lead in a circle.
    #[error("{path}: too many levels of symbolic links")]
    SymlinkLoop {
        /// The path inside the tree.
        path: String,
    },
    /// A hard link names a file that does not come before it in the archive.
    #[error("{path}: hard link to {target}, which is not in the archive before it")]
    LinkTarget {
        /// The link.
        path: String,
        /// The name that the link refers to.
        target: String,
    },
    /// A non-directory would replace a directory that has files in it.
    #[error("{path}: would replace a directory that is not empty")]
    ReplacesDirectory {
        /// The path inside the tree.
        path: String,
    },
    /// The archive is no tar file, damaged, truncated, or uses a form that is not
    /// supported.
    #[error("{}: at byte {offset}: {reason}", archive.display())]
    Archive {
        /// The archive.
        archive: PathBuf,
        /// Offset of the bad header, after decompression.
        offset: u64,
        /// The fault of the archive.
        reason: String,
    },
    /// The EROFS image is damaged or uses a form that is not supported.
    #[error("{}: EROFS image: {reason}", image.display())]
    Erofs {
        /// The image.
        image: PathBuf,
        /// The fault of the image.
        reason: String,
    },
    /// The file is neither a directory nor a tar file of a known compression.
    #[error("{}: {reason}", path.display())]
    Unsupported {
        /// The host file.
        path: PathBuf,
        /// The type of the file, and the supported types.
        reason: &'static str,
    },
}

impl TreeError {
    /// For `map_err`: `action` on the host file `path` failed.
    pub(super) fn host(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Host {
            path,
            action,
            source,
        }
    }

    /// For `map_err`: `action` on the memory file failed.
    pub(super) fn image(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Image { action, source }
    }
}

/// A path inside the tree or an archive, for messages.
pub(super) fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).escape_debug().to_string()
}
