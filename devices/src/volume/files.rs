//! The volumes of a VM with their open files and limits.

use super::arguments::safe_mode;
use super::backend::{self, Errno};
use super::depth;
use super::nodes::{Node, Nodes};
use super::usage::{Limits, Usage};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Descriptors that the process keeps for other purposes.
const OTHER_DESCRIPTORS: u64 = 256;
/// Most descriptors of a node.
const DESCRIPTORS_PER_NODE: u64 = 3;
/// Smallest limit of the number of nodes.
const MIN_NODES: u64 = 64;
/// Largest limit of the number of nodes.
const MAX_NODES: u64 = 1 << 16;

/// A file or directory of the host that the guest may use.
#[derive(Debug)]
pub struct Volume {
    pub(super) path: OwnedFd,
    /// Absolute path in the guest.
    pub(super) guest: Vec<u8>,
    pub(super) read_only: bool,
    usage: Option<Usage>,
}

impl Volume {
    /// A volume with a limit: the open directory `path` (`O_PATH` is enough), which the guest sees
    /// at the absolute path `guest`. `usage` has its contents and its limit. Unless the volume is
    /// `read_only`, no other process may change the directory meanwhile.
    #[must_use]
    pub fn limited(path: OwnedFd, guest: &str, read_only: bool, usage: Usage) -> Self {
        Self {
            path,
            guest: guest.as_bytes().to_vec(),
            read_only,
            usage: Some(usage),
        }
    }

    /// The file or directory `host`, which the guest sees at the absolute path `guest`. Symbolic
    /// links in `host` are followed. If `read_only`, the guest may not change the contents.
    ///
    /// # Errors
    /// There is no such file or directory.
    pub fn open(host: &Path, guest: &str, read_only: bool) -> io::Result<Self> {
        let host = fs::canonicalize(host)?;
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let path = open(&host, flags, Mode::empty())?;
        let kind = fs::metadata(&host)?.file_type();
        if !kind.is_dir() && !kind.is_file() {
            return Err(io::Error::other(
                "a volume must be a regular file or a directory",
            ));
        }
        Ok(Self {
            path,
            guest: guest.as_bytes().to_vec(),
            read_only,
            usage: None,
        })
    }
}

/// The volumes of a VM, the nodes that the guest knows, and the limits.
#[derive(Debug)]
pub(super) struct Files {
    pub volumes: Vec<Volume>,
    pub limits: Limits,
    pub nodes: Nodes,
}

impl Files {
    /// Volumes without nodes. There may be as many nodes as the process may have descriptors.
    pub fn new(volumes: Vec<Volume>) -> Self {
        let limit = descriptor_limit().saturating_sub(OTHER_DESCRIPTORS) / DESCRIPTORS_PER_NODE;
        Self {
            limits: Limits::new(volumes.iter().map(|volume| volume.usage).collect()),
            volumes,
            nodes: Nodes::new(
                usize::try_from(limit.clamp(MIN_NODES, MAX_NODES)).unwrap_or(usize::MAX),
            ),
        }
    }

    /// A node that the guest may change.
    pub fn changeable(&self, number: u64) -> Result<&Node, Errno> {
        self.nodes.get(number)?.changeable()
    }

    /// Number of levels of a directory below the root of its volume.
    pub fn depth(&self, directory: BorrowedFd<'_>, volume: usize) -> Result<usize, Errno> {
        let volume = self.volumes.get(volume).ok_or(libc::ESTALE)?;
        depth::below(directory, volume.path.as_fd())
    }

    /// Sets the permissions of a node.
    pub fn set_mode(&self, number: u64, mode: u64) -> Result<(), Errno> {
        let path = self.changeable(number)?.path();
        let (attributes, _) = backend::attributes(path)?;
        let is_directory = attributes.mode & libc::S_IFMT == libc::S_IFDIR;
        backend::set_mode(path, safe_mode(mode, is_directory))
    }
}

/// Raises the limit of descriptors of this process as far as allowed and useful. Returns the limit.
fn descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let [current, maximum] = [limit.current, limit.maximum].map(|n| n.unwrap_or(u64::MAX));
    let wanted = maximum.min(MAX_NODES * DESCRIPTORS_PER_NODE + OTHER_DESCRIPTORS);
    if current < wanted {
        let raised = Rlimit {
            current: Some(wanted),
            ..limit
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            return wanted;
        }
    }
    current
}
