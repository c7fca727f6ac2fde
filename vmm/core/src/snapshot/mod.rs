//! Snapshots: the state of a VM in a directory, and VMs that continue from there.
//!
//! The guest makes a checkpoint ([`hartline_abi::checkpoint`]): then RAM is its whole state. The
//! directory has RAM without free frames and pages of zeros, the root file system tree, and `config.json`, which
//! describes both and has the checksum of every part.

mod capture;
mod config;
mod moment;
mod open;
mod requests;
mod single;
pub mod stream;
mod verified;

pub(crate) use capture::{Capture, Due, Source};
pub use capture::{Request, Summary, Then};
pub(crate) use config::{Config, Machine};
pub use config::{ConfigError, VERSION};
pub(crate) use moment::Moment;
pub use open::Snapshot;
pub use requests::{Checkpoint, Requests};
pub(crate) use single::Single;

use crate::platform;
use hartline_abi::checkpoint::trigger;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// File of the cache directory that remembers snapshots whose checksums were right.
pub const TABLE: &str = "snapshots";

/// Name of the description in the directory.
const CONFIG: &str = "config.json";
/// Name of the file with RAM: the byte at an offset of RAM is at the same offset of the file.
const MEMORY: &str = "memory";
/// Name of the file with the root file system tree.
const TREE: &str = "tree";
/// Name of the file that parts of the tree are shown from.
const BASE: &str = "base";

/// When the snapshot is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// Before the first read of standard input.
    Stdin,
    /// When no task can run for the first time while a task waits in `accept`, `epoll_wait`, `poll`
    /// or `select`.
    Listen,
    /// At the first `SIGUSR2` that this process receives.
    Signal,
    /// When a task waits for a call of the host for the first time ([`crate::exports`]).
    Call,
}

impl Trigger {
    /// The value in the boot information.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Stdin => trigger::STDIN,
            Self::Listen => trigger::LISTEN,
            Self::Signal => trigger::SIGNAL,
            Self::Call => trigger::CALL,
        }
    }
}

/// The reason why a snapshot cannot be written or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the snapshot cannot be read or written.
    #[error("{path}: {action}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// There is a file or directory where the snapshot is to be written.
    #[error("{path}: exists already: remove it, or write the snapshot elsewhere")]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// Another process writes a snapshot to the same place.
    #[error("{path}: another process writes this snapshot")]
    Busy {
        /// Path of the snapshot.
        path: PathBuf,
    },
    /// The path has no last component that could name a directory.
    #[error("{path}: not the path of a new directory")]
    Name {
        /// The path.
        path: PathBuf,
    },
    /// The description is damaged, or of another version.
    #[error("{path}: {source}")]
    Config {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: ConfigError,
    },
    /// A file has another length than the description says.
    #[error("{path}: {found} bytes long, but the snapshot has {expected}")]
    Length {
        /// The file.
        path: PathBuf,
        /// Length of the file, bytes.
        found: u64,
        /// Length in the description, bytes.
        expected: u64,
    },
    /// The contents of a file are not those that were written.
    #[error("{path}: damaged: wrong checksum of {length} bytes at {offset:#x}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the first byte of the part, bytes.
        offset: u64,
        /// Length of the part, bytes.
        length: u64,
    },
    /// The snapshot's tree is kept elsewhere.
    #[error("{path}: the root file system is not in the snapshot")]
    NoTree {
        /// The directory.
        path: PathBuf,
    },
    /// The time limit of the snapshot is over, and its trigger was not reached.
    #[error("{path}: not written: its time did not come within {} s", .within.as_secs_f64())]
    Late {
        /// Path of the snapshot.
        path: PathBuf,
        /// The limit.
        within: Duration,
    },
    /// The VM has state outside RAM, or more than one vCPU and calls or resets.
    #[error("a snapshot cannot contain {0}")]
    State(&'static str),
    /// The VM has a network interface, and the snapshot's VM had none, or the other way round.
    #[error("the snapshot has {}", match .had {
        true => "a network interface, and the VM has none",
        false => "no network interface, and the VM has one",
    })]
    Network {
        /// Whether the snapshot's VM had one.
        had: bool,
    },
    /// The VM has another number of vCPUs than the one of the snapshot.
    #[error("written with {had} vCPUs: a VM that is reset or called has one")]
    Cpus {
        /// Number of vCPUs of the snapshot's VM.
        had: u32,
    },
    /// The program has a terminal where there was none, or the other way round.
    #[error(
        "{stream} {is} a terminal, but {was} one when the snapshot was written: {}",
        "use the same kind of stream"
    )]
    Terminal {
        /// The stream.
        stream: &'static str,
        /// "is" or "is not", now.
        is: &'static str,
        /// "was" or "was not", at the checkpoint.
        was: &'static str,
    },
    /// KVM or the host refused.
    #[error(transparent)]
    Platform(#[from] platform::Error),
}

impl Error {
    /// For `map_err`: an operation on a file failed.
    fn file(path: &std::path::Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File {
            path: path.into(),
            action,
            source,
        }
    }
}
