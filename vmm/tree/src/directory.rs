//! Packs host directories and files.

use crate::error::TreeError;
use crate::nodes::{Attributes, Content, NodeId};
use crate::stamp::Stamp;
use crate::{Source, TreeBuilder};
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Inodes by device and inode number of the host file, for those with several names.
type HardLinks = HashMap<(u64, u64), NodeId>;

impl TreeBuilder {
    /// Adds everything below the host directory `path` to the tree's directory `at`, which gets the
    /// attributes of `path`. Symbolic links are kept, never followed; several names of one file
    /// stay one file.
    pub(super) fn pack_directory(&mut self, path: &Path, at: NodeId) -> Result<(), TreeError> {
        let metadata = fs::metadata(path).map_err(TreeError::host(path, "read attributes of"))?;
        self.nodes.get_mut(at).attributes = attributes(&metadata);
        let mut links = HardLinks::new();
        let mut pending: Vec<(PathBuf, NodeId)> = vec![(path.to_path_buf(), at)];
        while let Some((directory, id)) = pending.pop() {
            let list = fs::read_dir(&directory).map_err(TreeError::host(&directory, "list"))?;
            for entry in list {
                let entry = entry.map_err(TreeError::host(&directory, "list"))?;
                let path = entry.path();
                let child = self.pack_entry(&path, &mut links)?;
                let name = entry.file_name();
                let shown = path.as_os_str().as_bytes();
                self.nodes.link(id, name.as_bytes(), child, shown)?;
                if self.nodes.entries(child).is_some() {
                    pending.push((path, child));
                }
            }
        }
        Ok(())
    }

    /// Makes an inode for the host file `path`; a directory is empty at first.
    fn pack_entry(&mut self, path: &Path, links: &mut HardLinks) -> Result<NodeId, TreeError> {
        let metadata =
            fs::symlink_metadata(path).map_err(TreeError::host(path, "read attributes of"))?;
        let identity = (metadata.dev(), metadata.ino());
        let shared = metadata.nlink() > 1 && !metadata.is_dir();
        if shared && let Some(&id) = links.get(&identity) {
            return Ok(id);
        }
        let id = self.pack_node(path, &metadata)?;
        if shared {
            links.insert(identity, id);
        }
        Ok(id)
    }

    fn pack_node(&mut self, path: &Path, metadata: &Metadata) -> Result<NodeId, TreeError> {
        let kind = metadata.file_type();
        if kind.is_file() {
            return self.pack_file(path);
        }
        let content = if kind.is_dir() {
            // The real parent is set when the directory is linked.
            Content::Directory {
                parent: super::nodes::ROOT,
                entries: Default::default(),
            }
        } else if kind.is_symlink() {
            let target =
                fs::read_link(path).map_err(TreeError::host(path, "read the symbolic link"))?;
            Content::Symlink {
                target: target.into_os_string().into_vec().into(),
            }
        } else {
            let device = kind.is_char_device() || kind.is_block_device();
            Content::Special {
                format: metadata.mode() & libc::S_IFMT,
                rdev: if device { metadata.rdev() } else { 0 },
            }
        };
        let shown = path.as_os_str().as_bytes();
        self.nodes.add(attributes(metadata), content, shown)
    }

    /// Makes an inode with the bytes of the regular host file `path`.
    pub(super) fn pack_file(&mut self, path: &Path) -> Result<NodeId, TreeError> {
        // O_NONBLOCK: opening a FIFO that has replaced the file must not block.
        let mut file = File::options()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(TreeError::host(path, "open"))?;
        self.pack_open_file(&mut file, path)
    }

    /// Makes an inode with the bytes of a regular host file from its current offset; `path` is for
    /// messages.
    pub(super) fn pack_open_file(
        &mut self,
        file: &mut File,
        path: &Path,
    ) -> Result<NodeId, TreeError> {
        let metadata = file
            .metadata()
            .map_err(TreeError::host(path, "read attributes of"))?;
        let changed = || TreeError::Changed {
            path: path.to_path_buf(),
        };
        if !metadata.is_file() {
            return Err(changed());
        }
        let shown = path.as_os_str().as_bytes();
        let error = |action, source: io::Error| TreeError::host(path, action)(source);
        let source = Source {
            path: shown,
            error: &error,
        };
        let size = metadata.size();
        let before = Stamp::of(&metadata);
        let has_holes = metadata.blocks().saturating_mul(512) < size;
        let offset = self.image.append_file(file, size, has_holes, source)?;
        let offset = offset.ok_or_else(changed)?;
        // Data written during the reading may be missing from the copy.
        let stamp = before.filter(|_| {
            let after = file.metadata();
            after.is_ok_and(|after| Stamp::of(&after) == before)
        });
        let content = Content::File {
            offset,
            size,
            stamp,
        };
        self.nodes.add(attributes(&metadata), content, shown)
    }
}

fn attributes(metadata: &Metadata) -> Attributes {
    Attributes {
        permissions: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime_s: metadata.mtime(),
        // The kernel returns a value below 10^9.
        mtime_ns: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
    }
}
