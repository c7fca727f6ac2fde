//! The files that the guest knows: numbers for descriptors of the host.

use super::host::{self, Errno};
use hartline_abi::volume::NodeAttributes;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A file that the guest knows.
#[derive(Debug)]
pub struct Node {
    /// The file itself, opened with `O_PATH`.
    path: OwnedFd,
    /// The same for reading, and for reading and writing, from the first use on.
    reader: Option<OwnedFd>,
    writer: Option<OwnedFd>,
    identity: Identity,
    /// The volume that it was found in.
    volume: usize,
}

/// Where a file was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Number of the volume.
    pub volume: usize,
    /// The guest may not change it.
    pub read_only: bool,
}

/// What tells nodes apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    /// Device of the host's file system.
    device: u64,
    /// Inode number on it.
    ino: u64,
    /// The guest may not change it: a file that is in a volume of either kind is two nodes.
    read_only: bool,
}

impl Node {
    /// The file, whatever it is; not for reading or writing.
    pub fn path(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }

    /// What tells it apart from others.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Where it was found, and so what is in it.
    pub fn origin(&self) -> Origin {
        Origin {
            volume: self.volume,
            read_only: self.identity.read_only,
        }
    }

    /// Whether the guest may not change it, nor what is in it.
    pub fn is_read_only(&self) -> bool {
        self.identity.read_only
    }

    /// The same file, which the guest may change.
    ///
    /// # Errors
    /// `EROFS` if it may not.
    pub fn changeable(&self) -> Result<&Self, Errno> {
        match self.is_read_only() {
            true => Err(libc::EROFS),
            false => Ok(self),
        }
    }

    /// The regular file or directory for reading.
    ///
    /// # Errors
    /// `ENXIO` for another file, or the host's.
    pub fn reader(&mut self) -> Result<BorrowedFd<'_>, Errno> {
        if let (None, Some(writer)) = (&self.reader, &self.writer) {
            return Ok(writer.as_fd());
        }
        open(&mut self.reader, self.path.as_fd(), libc::O_RDONLY)
    }

    /// The regular file for reading and writing.
    ///
    /// # Errors
    /// `EROFS`, `ENXIO` for another file, or the host's.
    pub fn writer(&mut self) -> Result<BorrowedFd<'_>, Errno> {
        self.changeable()?;
        open(&mut self.writer, self.path.as_fd(), libc::O_RDWR)
    }
}

/// Opens a file if it is not open yet. Devices and FIFOs of the host are never opened:
/// that alone may do something, or wait.
fn open<'a>(
    slot: &'a mut Option<OwnedFd>,
    path: BorrowedFd<'_>,
    flags: i32,
) -> Result<BorrowedFd<'a>, Errno> {
    if slot.is_none() {
        let (attributes, _) = host::attributes(path)?;
        match attributes.mode & libc::S_IFMT {
            libc::S_IFREG | libc::S_IFDIR => {}
            libc::S_IFLNK => return Err(libc::ELOOP),
            _ => return Err(libc::ENXIO),
        }
        *slot = Some(host::reopen(path, flags)?);
    }
    slot.as_ref().map(OwnedFd::as_fd).ok_or(libc::EIO)
}

/// All nodes.
#[derive(Debug)]
pub struct Nodes {
    by_number: HashMap<u64, Node>,
    by_identity: HashMap<Identity, u64>,
    next: u64,
    limit: usize,
}

impl Nodes {
    /// No nodes; at most `limit`.
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

    /// A node, for opening it.
    ///
    /// # Errors
    /// `ESTALE` if there is none.
    pub fn get_mut(&mut self, number: u64) -> Result<&mut Node, Errno> {
        self.by_number.get_mut(&number).ok_or(libc::ESTALE)
    }

    /// The node of a file, made if the file has none, and its attributes.
    ///
    /// # Errors
    /// `ENFILE` if there are too many, or the host's.
    pub fn add(&mut self, path: OwnedFd, origin: Origin) -> Result<NodeAttributes, Errno> {
        let (mut attributes, device) = host::attributes(path.as_fd())?;
        let identity = Identity {
            device,
            ino: attributes.ino,
            read_only: origin.read_only,
        };
        // The node's descriptor keeps the inode, so the number means the same file.
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

    /// Adds a file that was just made, open for reading and writing. Its permissions count
    /// for those who open it later only.
    ///
    /// # Errors
    /// As [`Nodes::add`].
    pub fn add_open(&mut self, file: OwnedFd, origin: Origin) -> Result<NodeAttributes, Errno> {
        let path = file.try_clone().map_err(|_| libc::EMFILE)?;
        let attributes = self.add(path, origin)?;
        self.get_mut(attributes.node)?.writer = Some(file);
        Ok(attributes)
    }

    /// Forgets a node.
    ///
    /// # Errors
    /// `ESTALE` if there is none.
    pub fn forget(&mut self, number: u64) -> Result<Node, Errno> {
        let node = self.by_number.remove(&number).ok_or(libc::ESTALE)?;
        self.by_identity.remove(&node.identity);
        Ok(node)
    }

    /// Whether the guest knows a file of a device that it may change.
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
        let (attributes, _) = host::attributes(self.get(number)?.path())?;
        Ok(NodeAttributes {
            node: number,
            ..attributes
        })
    }
}
