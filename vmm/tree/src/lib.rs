//! Packs the root file system of a VM: directories, tar files, EROFS images and `--volume`
//! imports become one read-only [`hartline_abi::tree`] image in a sealed memory file or in memory.
//!
//! File data is streamed into the image while the sources are read; the host's memory holds only
//! names and attributes. Contents of EROFS images are shown from the EROFS image where possible,
//! not copied. Owners, groups, permissions and times are taken from the source. Extended attributes
//! are not kept.

#![warn(
    clippy::borrow_as_ptr,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness
)]

pub mod archive;
mod directory;
mod erofs;
mod error;
mod fingerprint;
mod image;
mod kept;
mod nodes;
mod packed;
mod stamp;
mod storage;
#[cfg(test)]
mod tests;

pub use erofs::is_image as is_erofs;
pub use error::TreeError;
pub use fingerprint::Fingerprint;
pub use nodes::Attributes;
pub use packed::{Base, Extent, TreeImage};
pub use stamp::{Stamp, boot_id};

use image::Image;
use nodes::{NodeId, Nodes, ROOT};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use storage::Storage;

/// Largest image, bytes. The image is memory of the host until the VM ends.
pub const MAX_LENGTH: u64 = 32 << 30;
/// Most files in a tree.
pub const MAX_INODES: u32 = 1 << 24;

/// The source of bytes, for messages: the path, and the error to make of a failed read.
#[derive(Clone, Copy)]
struct Source<'a> {
    path: &'a [u8],
    error: &'a dyn Fn(&'static str, io::Error) -> TreeError,
}

impl Source<'_> {
    fn error(&self, action: &'static str, error: io::Error) -> TreeError {
        (self.error)(action, error)
    }
}

/// Puts a tree together and writes its image.
///
/// ```no_run
/// # fn main() -> Result<(), hartline_tree::TreeError> {
/// let mut builder = hartline_tree::TreeBuilder::new()?;
/// builder.add_directory("rootfs".as_ref())?;
/// builder.add_file("data".as_ref(), "/srv/data")?;
/// let memory_file = builder.build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TreeBuilder {
    nodes: Nodes,
    image: Image,
}

impl TreeBuilder {
    /// A tree that consists of its root directory, whose image will be a memory file.
    ///
    /// # Errors
    /// The memory file cannot be made.
    pub fn new() -> Result<Self, TreeError> {
        Ok(Self::stored_in(Storage::file()?))
    }

    /// As [`new`](Self::new), but an image of at most 64 MiB will be memory of this process, in
    /// huge pages, which files are read into directly. With an EROFS image, the image is always a
    /// memory file.
    ///
    /// # Errors
    /// There is no memory.
    pub fn in_memory() -> Result<Self, TreeError> {
        Ok(Self::stored_in(Storage::memory()?))
    }

    fn stored_in(storage: Storage) -> Self {
        Self {
            nodes: Nodes::new(),
            image: Image::new(storage),
        }
    }

    /// Limits the data that the image may have from now on to `bytes`, in whole pages. Holes and
    /// pages of zeros do not count.
    pub fn limit(&mut self, bytes: u64) {
        self.image.limit(bytes);
    }

    /// Adds the directories of a VM that has no root file system: empty `/dev`, `/proc`, `/root` and
    /// `/tmp`.
    ///
    /// # Errors
    /// One of these names is in use for something else.
    pub fn add_minimal(&mut self) -> Result<(), TreeError> {
        for (name, permissions) in [
            ("dev", 0o755),
            ("proc", 0o555),
            ("root", 0o700),
            ("tmp", 0o1777),
        ] {
            let attributes = Attributes {
                permissions,
                ..Attributes::directory()
            };
            let name = name.as_bytes();
            self.nodes.add_directory(ROOT, name, attributes, name)?;
        }
        Ok(())
    }

    /// Add a root file system: a directory, a tar file (also compressed with gzip), or an
    /// EROFS image.
    ///
    /// # Errors
    /// As [`add_directory`](Self::add_directory), [`add_tar`](Self::add_tar) and
    /// [`add_erofs`](Self::add_erofs).
    pub fn add_root(&mut self, path: &Path) -> Result<(), TreeError> {
        let metadata = fs::metadata(path).map_err(TreeError::host(path, "open"))?;
        if metadata.is_dir() {
            return self.add_directory(path);
        }
        let file = File::open(path).map_err(TreeError::host(path, "open"))?;
        match is_erofs(&file) {
            true => self.add_erofs(file, path),
            false => self.add_open_tar(file, path),
        }
    }

    /// Adds the contents of an uncompressed EROFS image, which must not change as long as the tree
    /// is used. A tree can have one such image. Messages call it `name`.
    ///
    /// # Errors
    /// The image cannot be read, is damaged, or has compressed files or unknown features; or the
    /// tree becomes too large.
    pub fn add_erofs(&mut self, file: File, name: &Path) -> Result<(), TreeError> {
        self.pack_erofs(file, name)
    }

    /// Adds the contents of the host directory `path` to the root directory, which gets the
    /// attributes of `path`.
    ///
    /// # Errors
    /// `path` or something below it cannot be read or changes during the reading, or the tree
    /// becomes too large.
    pub fn add_directory(&mut self, path: &Path) -> Result<(), TreeError> {
        self.pack_directory(path, ROOT)
    }

    /// Add the tar file `path`, plain or compressed with gzip. POSIX (pax), GNU and
    /// old formats are read; later members replace earlier ones of the same name,
    /// and links in the archive stay within the tree.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, truncated or no tar file; it has members that are not
    /// allowed in a tree (`..`, hard links to missing files), sparse members or another
    /// compression; or the tree becomes too large.
    pub fn add_tar(&mut self, path: &Path) -> Result<(), TreeError> {
        self.pack_tar(path)
    }

    /// Adds an open tar file, whose offset must be at its start, as [`add_tar`](Self::add_tar)
    /// does. Messages call it `name`.
    ///
    /// # Errors
    /// As [`add_tar`](Self::add_tar).
    pub fn add_open_tar(&mut self, file: File, name: &Path) -> Result<(), TreeError> {
        self.pack_open_tar(file, name)
    }

    /// Adds an empty file or directory, of the same kind as `host`, at `guest` as the mount point
    /// of a volume; it hides an earlier entry of that path. Missing parent directories are made.
    /// Symbolic links on the path are followed within the tree.
    ///
    /// # Errors
    /// `host` cannot be found, or `guest` is the root, contains `..`, or goes through
    /// something that is no directory.
    pub fn add_mount_point(&mut self, host: &Path, guest: &str) -> Result<(), TreeError> {
        let metadata = fs::metadata(host).map_err(TreeError::host(host, "open"))?;
        let (parent, name) = self.parent_of(guest)?;
        let content = match metadata.is_dir() {
            true => nodes::Content::Directory {
                parent,
                entries: Default::default(),
            },
            false => nodes::Content::File {
                offset: 0,
                size: 0,
                stamp: None,
            },
        };
        let shown = guest.as_bytes();
        let id = self.nodes.add(Attributes::directory(), content, shown)?;
        self.nodes.replace(parent, &name, id, shown)
    }

    /// Adds the regular host file `host` at `guest`, which hides an earlier entry of that path.
    ///
    /// # Errors
    /// The file cannot be read; otherwise as [`add_mount_point`](Self::add_mount_point).
    pub fn add_file(&mut self, host: &Path, guest: &str) -> Result<(), TreeError> {
        let host = &fs::canonicalize(host).map_err(TreeError::host(host, "open"))?;
        let (parent, name) = self.parent_of(guest)?;
        let id = self.pack_file(host)?;
        self.nodes.replace(parent, &name, id, guest.as_bytes())
    }

    /// Adds a file with these bytes at `guest`, which hides an earlier entry of that path.
    ///
    /// # Errors
    /// As [`add_file`](Self::add_file).
    pub fn add_text(&mut self, text: &[u8], guest: &str) -> Result<(), TreeError> {
        let (parent, name) = self.parent_of(guest)?;
        let (path, size) = (Path::new(guest), text.len() as u64);
        let error = |action, source: io::Error| TreeError::host(path, action)(source);
        let source = Source {
            path: guest.as_bytes(),
            error: &error,
        };
        let offset = self.image.append(&mut &*text, size, source)?;
        let content = nodes::Content::File {
            offset: offset.unwrap_or_default(),
            size,
            stamp: None,
        };
        let attributes = Attributes {
            permissions: 0o644,
            ..Attributes::directory()
        };
        let id = self.nodes.add(attributes, content, guest.as_bytes())?;
        self.nodes.replace(parent, &name, id, guest.as_bytes())
    }

    /// Adds an open regular file at `guest`, executable by all users, which hides an earlier entry
    /// of that path. Messages call it `name`.
    ///
    /// # Errors
    /// As [`add_file`](Self::add_file).
    pub fn add_open_program(
        &mut self,
        mut file: File,
        name: &Path,
        guest: &str,
    ) -> Result<(), TreeError> {
        let (parent, last) = self.parent_of(guest)?;
        let id = self.pack_open_file(&mut file, name)?;
        self.nodes.get_mut(id).attributes = Attributes::directory();
        self.nodes.replace(parent, &last, id, guest.as_bytes())
    }

    /// Writes the inodes and names, and returns the image, whose length is a multiple of the page
    /// size. The image is memory, or a memory file sealed against every change. It includes the
    /// EROFS image, if one was added.
    ///
    /// # Errors
    /// The image becomes too large or cannot be written.
    pub fn build(self) -> Result<TreeImage, TreeError> {
        self.image.finish(&self.nodes)
    }

    /// The directory for `path`, made if it is missing, and the name in it.
    fn parent_of(&mut self, path: &str) -> Result<(NodeId, Box<[u8]>), TreeError> {
        let path = path.as_bytes();
        nodes::check_path(path)?;
        let bad = |reason| TreeError::BadPath {
            path: error::show(path),
            reason,
        };
        let (parent, name) =
            nodes::split(path).ok_or_else(|| bad("nothing can be put over the root directory"))?;
        let parent = self.nodes.directory(&parent, true)?;
        let parent = parent.ok_or_else(|| bad("no such directory"))?;
        Ok((parent, name))
    }
}
