//! The tree while it is put together: inodes, names, and path lookup confined to
//! the tree, with the symbolic links that are in it.

use crate::MAX_INODES;
use crate::error::{TreeError, show};
use crate::stamp::Stamp;
use std::collections::BTreeMap;

/// Index of an inode; the root is [`ROOT`]. Not the number in the image.
pub(super) type NodeId = usize;

/// The root directory.
pub(super) const ROOT: NodeId = 0;

/// Symbolic links followed in one lookup, as Linux's MAXSYMLINKS.
const MAX_SYMLINKS: u32 = 40;
/// Longest name, NAME_MAX.
const NAME_MAX: usize = 255;
/// The reason why a longer name is refused.
pub(super) const NAME_TOO_LONG: &str = "a name is longer than 255 bytes";

/// The fields of `stat` for a file, without its size.
#[derive(Debug, Clone, Copy)]
pub struct Attributes {
    /// Permission bits, 0–07777, without the file type.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds of the modification time.
    pub mtime_ns: u32,
}

impl Attributes {
    /// The attributes of a directory that no source describes: 0755, owned by root, from 1970.
    pub const fn directory() -> Self {
        Self {
            permissions: 0o755,
            uid: 0,
            gid: 0,
            mtime_s: 0,
            mtime_ns: 0,
        }
    }
}

/// The type of an inode, with its contents.
#[derive(Debug, Clone)]
pub(super) enum Content {
    Directory {
        /// Its parent; for the root, the root itself.
        parent: NodeId,
        entries: BTreeMap<Box<[u8]>, NodeId>,
    },
    /// Bytes that are in the image already.
    File {
        offset: u64,
        size: u64,
        /// Stamp of the host file: that file has the same bytes as long as it has this stamp.
        stamp: Option<Stamp>,
    },
    Symlink {
        target: Box<[u8]>,
    },
    /// Character or block device, FIFO, socket.
    Special {
        /// `S_IFCHR`, `S_IFBLK`, `S_IFIFO` or `S_IFSOCK`.
        format: u32,
        /// Linux device number, 0 for FIFOs and sockets.
        rdev: u64,
    },
}

/// An inode.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub attributes: Attributes,
    pub content: Content,
}

/// All inodes, including those that have lost their last name.
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
}

impl Nodes {
    /// A tree that consists of an empty root directory.
    pub fn new() -> Self {
        let content = Content::Directory {
            parent: ROOT,
            entries: BTreeMap::new(),
        };
        let attributes = Attributes::directory();
        Self {
            nodes: vec![Node {
                attributes,
                content,
            }],
        }
    }

    pub fn get(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    pub fn get_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id]
    }

    /// The entries of a directory; `None` if `id` is no directory.
    pub fn entries(&self, id: NodeId) -> Option<&BTreeMap<Box<[u8]>, NodeId>> {
        match &self.nodes[id].content {
            Content::Directory { entries, .. } => Some(entries),
            _ => None,
        }
    }

    /// Gives `directory` an entry `name` for the inode `id`. An existing non-directory or empty
    /// directory of that name is replaced.
    pub fn link(
        &mut self,
        directory: NodeId,
        name: &[u8],
        id: NodeId,
        path: &[u8],
    ) -> Result<(), TreeError> {
        let old = self.entries(directory).and_then(|e| e.get(name)).copied();
        if let Some(entries) = old.and_then(|old| self.entries(old))
            && !entries.is_empty()
        {
            return Err(TreeError::ReplacesDirectory { path: show(path) });
        }
        self.replace(directory, name, id, path)
    }

    /// As [`link`](Self::link), but also replaces directories that are not empty.
    pub fn replace(
        &mut self,
        directory: NodeId,
        name: &[u8],
        id: NodeId,
        path: &[u8],
    ) -> Result<(), TreeError> {
        check_name(name, path)?;
        match &mut self.nodes[directory].content {
            Content::Directory { entries, .. } => entries.insert(name.into(), id),
            _ => return Err(TreeError::NotADirectory { path: show(path) }),
        };
        if let Content::Directory { parent, .. } = &mut self.nodes[id].content {
            *parent = directory;
        }
        Ok(())
    }

    /// A new inode without a name.
    pub fn add(
        &mut self,
        attributes: Attributes,
        content: Content,
        path: &[u8],
    ) -> Result<NodeId, TreeError> {
        if self.nodes.len() >= MAX_INODES as usize {
            return Err(TreeError::TooManyFiles {
                path: show(path),
                limit: MAX_INODES,
            });
        }
        self.nodes.push(Node {
            attributes,
            content,
        });
        Ok(self.nodes.len() - 1)
    }

    /// A new, empty directory in `parent`, replacing a non-directory of that name.
    pub fn add_directory(
        &mut self,
        parent: NodeId,
        name: &[u8],
        attributes: Attributes,
        path: &[u8],
    ) -> Result<NodeId, TreeError> {
        let entries = BTreeMap::new();
        let id = self.add(attributes, Content::Directory { parent, entries }, path)?;
        self.link(parent, name, id, path)?;
        Ok(id)
    }

    /// The directory that `path` names. Symbolic links are followed as in a process whose root is
    /// the tree. Missing directories are made if `create` is set; otherwise the result is `None`.
    pub fn directory(&mut self, path: &[u8], create: bool) -> Result<Option<NodeId>, TreeError> {
        let mut pending: Vec<Box<[u8]>> = components(path);
        let mut at = ROOT;
        let mut followed = 0;
        while let Some(name) = pending.pop() {
            let Content::Directory { parent, entries } = &self.nodes[at].content else {
                return Err(TreeError::NotADirectory { path: show(path) });
            };
            if &*name == b".." {
                at = *parent;
                continue;
            }
            let Some(&id) = entries.get(&name) else {
                if !create {
                    return Ok(None);
                }
                at = self.add_directory(at, &name, Attributes::directory(), path)?;
                continue;
            };
            let Content::Symlink { target } = &self.nodes[id].content else {
                at = id;
                continue;
            };
            followed += 1;
            if followed > MAX_SYMLINKS {
                return Err(TreeError::SymlinkLoop { path: show(path) });
            }
            if target.starts_with(b"/") {
                at = ROOT;
            }
            pending.extend(components(target));
        }
        match self.nodes[at].content {
            Content::Directory { .. } => Ok(Some(at)),
            _ => Err(TreeError::NotADirectory { path: show(path) }),
        }
    }

    /// The inode that `path` names, without following a symbolic link at its end.
    pub fn lookup(&mut self, path: &[u8]) -> Result<Option<NodeId>, TreeError> {
        let Some((parent, name)) = split(path) else {
            return Ok(Some(ROOT));
        };
        let parent = self.directory(&parent, false)?;
        Ok(parent.and_then(|parent| self.entries(parent)?.get(&*name).copied()))
    }
}

/// The components of a path, last one first, without empty ones and `.`.
fn components(path: &[u8]) -> Vec<Box<[u8]>> {
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .rev()
        .map(Box::from)
        .collect()
}

/// The directory and the last component of a path; `None` for the root.
pub(super) fn split(path: &[u8]) -> Option<(Vec<u8>, Box<[u8]>)> {
    let mut names = components(path);
    if names.is_empty() {
        return None;
    }
    let last = names.remove(0);
    names.reverse();
    Some((names.join(&b'/'), last))
}

/// Checks that a path from outside contains neither `..` nor a NUL byte.
pub(super) fn check_path(path: &[u8]) -> Result<(), TreeError> {
    let bad = |reason| {
        Err(TreeError::BadPath {
            path: show(path),
            reason,
        })
    };
    if path.contains(&0) {
        return bad("a path cannot contain a NUL byte");
    }
    if path.split(|&byte| byte == b'/').any(|name| name == b"..") {
        return bad("a path in a tree must not contain \"..\"");
    }
    Ok(())
}

/// Checks that a directory entry can have this name.
fn check_name(name: &[u8], path: &[u8]) -> Result<(), TreeError> {
    let reason = match name {
        b"" | b"." | b".." => "not a file name",
        _ if name.len() > NAME_MAX => NAME_TOO_LONG,
        _ if name.contains(&0) || name.contains(&b'/') => "a name contains NUL or '/'",
        _ => return Ok(()),
    };
    Err(TreeError::BadPath {
        path: show(path),
        reason,
    })
}
