//! Nodes: the files that the guest knows by a number, with their descriptors of the host.

use super::backend::{self, Errno};
use hartline_abi::volume::NodeAttributes;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A file that the guest knows.
#[derive(Debug)]
pub struct Node {
    /// The file itself, opened with `O_PATH`.
    path: OwnedFd,
    /// The file opened for reading, and for reading and writing, from the first use on.
    reader: Option<OwnedFd>,
    writer: Option<OwnedFd>,
    identity: Identity,
    /// Number of the volume in which the file was found.
    volume: usize,
}

/// The volume in which a file was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Number of the volume.
    pub volume: usize,
    /// Whether the guest may not change the file.
    pub read_only: bool,
}

/// The identity of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    /// Device number of the host's file system.
    device: u64,
    /// Inode number in the file system.
    ino: u64,
    /// Whether the guest may not change the file. A file in a read-only and in a writable volume is
    /// two nodes.
    read_only: bool,
}

impl Node {
    /// The `O_PATH` descriptor of the file, of any type.
    pub fn path(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }

    /// The identity of the node.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The origin of the node, which is also that of files in it.
    pub fn origin(&self) -> Origin {
        Origin {
            volume: self.volume,
            read_only: self.identity.read_only,
        }
    }

    /// Whether the guest may not change the file or files in it.
    pub fn is_read_only(&self) -> bool {
        self.identity.read_only
    }

    /// The node, if the guest may change it.
    ///
    /// # Errors
    /// `EROFS` if the guest may not.
    pub fn changeable(&self) -> Result<&Self, Errno> {
        match self.is_read_only() {
            true => Err(libc::EROFS),
            false => Ok(self),
        }
    }

    /// The regular file or directory, opened for reading.
    ///
    /// # Errors
    /// `ENXIO` for another type of file, or the host's.
    pub fn reader(&mut self) -> Result<BorrowedFd<'_>, Errno> {
        if let (None, Some(writer)) = (&self.reader, &self.writer) {
            return Ok(writer.as_fd());
        }
        open(&mut self.reader, self.path.as_fd(), OFlags::RDONLY)
    }

    /// The regular file, opened for reading and writing.
    ///
    /// # Errors
    /// `EROFS`, `ENXIO` for another type of file, or the host's.
    pub fn writer(&mut self) -> Result<BorrowedFd<'_>, Errno> {
        self.changeable()?;
        open(&mut self.writer, self.path.as_fd(), OFlags::RDWR)
    }
}

/// Opens a file if it is not open yet. Devices and FIFOs of the host are never opened: opening alone
/// may have an effect, or wait.
fn open<'a>(
    slot: &'a mut Option<OwnedFd>,
    path: BorrowedFd<'_>,
    flags: OFlags,
) -> Result<BorrowedFd<'a>, Errno> {
    if slot.is_none() {
        let (attributes, _) = backend::attributes(path)?;
        match attributes.mode & libc::S_IFMT {
            libc::S_IFREG | libc::S_IFDIR => {}
            libc::S_IFLNK => return Err(libc::ELOOP),
            _ => return Err(libc::ENXIO),
        }
        *slot = Some(backend::reopen(path, flags)?);
    }
    slot.as_ref().map(OwnedFd::as_fd).ok_or(libc::EIO)
}

/// The nodes of a VM.
#[derive(Debug)]
pub struct Nodes {
    by_number: HashMap<u64, Node>,
    by_identity: HashMap<Identity, u64>,
    next: u64,
    limit: usize,
}

impl Nodes {
    /// No nodes. There may be at most `limit`.
    pub fn new(limit: usize) -> Self {
        Self {
            by_number: HashMap::new(),
            by_identity: HashMap::new(),
            next: 1,
            limit,
        }
    }

    /// A node.
    ///
    /// # Errors
    /// `ESTALE` if there is none.
    pub fn get(&self, number: u64) -> Result<&Node, Errno> {
        self.by_number.get(&number).ok_or(libc::ESTALE)
    }

    /// A node, to open its file.
    ///
    /// # Errors
    /// `ESTALE` if there is none.
    pub fn get_mut(&mut self, number: u64) -> Result<&mut Node, Errno> {
        self.by_number.get_mut(&number).ok_or(libc::ESTALE)
    }

    /// Adds a node for a file, unless the file has one. Returns the attributes with the node's
    /// number.
    ///
    /// # Errors
    /// `ENFILE` if there are too many nodes, or the host's.
    pub fn add(&mut self, path: OwnedFd, origin: Origin) -> Result<NodeAttributes, Errno> {
        let (mut attributes, device) = backend::attributes(path.as_fd())?;
        let identity = Identity {
            device,
            ino: attributes.ino,
            read_only: origin.read_only,
        };
        // The node's descriptor keeps the inode in use, so an equal inode number is the same file.
        if let Some(&number) = self.by_identity.get(&identity) {
            attributes.node = number;
            return Ok(attributes);
        }
        if self.by_number.len() >= self.limit {
            return Err(libc::ENFILE);
        }
        let number = self.next;
        self.next += 1;
        self.by_identity.insert(identity, number);
        let node = Node {
            path,
            reader: None,
            writer: None,
            identity,
            volume: origin.volume,
        };
        self.by_number.insert(number, node);
        attributes.node = number;
        Ok(attributes)
    }

    /// Adds a new file that is open for reading and writing. Its permissions apply only to later
    /// opens.
    ///
    /// # Errors
    /// As [`Nodes::add`].
    pub fn add_open(&mut self, file: OwnedFd, origin: Origin) -> Result<NodeAttributes, Errno> {
        let path = file.try_clone().map_err(|_| libc::EMFILE)?;
        let attributes = self.add(path, origin)?;
        self.get_mut(attributes.node)?.writer = Some(file);
        Ok(attributes)
    }

    /// Removes a node.
    ///
    /// # Errors
    /// `ESTALE` if there is none.
    pub fn forget(&mut self, number: u64) -> Result<Node, Errno> {
        let node = self.by_number.remove(&number).ok_or(libc::ESTALE)?;
        self.by_identity.remove(&node.identity);
        Ok(node)
    }

    /// Whether there is a node for a file in a writable volume.
    pub fn knows(&self, device: u64, ino: u64) -> bool {
        let identity = Identity {
            device,
            ino,
            read_only: false,
        };
        self.by_identity.contains_key(&identity)
    }

    /// Attributes of a node.
    ///
    /// # Errors
    /// `ESTALE`, or the host's.
    pub fn attributes(&self, number: u64) -> Result<NodeAttributes, Errno> {
        let (attributes, _) = backend::attributes(self.get(number)?.path())?;
        Ok(NodeAttributes {
            node: number,
            ..attributes
        })
    }
}
