//! Backups: one tar file with what the daemon cannot make again. Trees and translations are made again
//! from the uploads. Snapshots of machines are left out.
//!
//! ```text
//! hartline-backup         version of this form
//! hartline.db             a snapshot of the database
//! secret                  the key of API keys
//! uploads/ID              programs
//! machines/ID/…           input, output and result of machines and runs
//! volumes/ID/…            contents of volumes, with their owners
//! complete                the last member
//! ```
//! A backup is made while the daemon runs. Root copies files and does not read what is in them: a
//! child process with the user of the service makes the snapshot of the database.

mod files;
mod restore;
mod write;

pub use restore::restore;
pub use write::write;

use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The first argument of the process that makes a snapshot of the database.
pub const SNAPSHOT: &str = "snapshot";

/// The first member of a backup, and its contents.
const START: &str = "hartline-backup";
const VERSION: &str = "1\n";
/// The last member of a backup.
const END: &str = "complete";
const DATABASE: &str = "hartline.db";
const SECRET: &str = "secret";
const UPLOADS: &str = "uploads";
const MACHINES: &str = "machines";
const VOLUMES: &str = "volumes";

/// The reason why a backup cannot be made or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// An operation on a file failed.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The snapshot of the database could not be made.
    #[error("the snapshot of the database: {0}")]
    Snapshot(String),
    /// Programs or volumes were deleted faster than they could be copied.
    #[error("{0} was deleted while the backup was made, several times: try again later")]
    Changing(PathBuf),
    /// The file is not a backup, or damaged.
    #[error("{}: not a complete backup of hartlined: {why}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// There is something in the place of the data directory.
    #[error("{0}: is not empty: move it away, a backup is restored into a new directory")]
    Occupied(PathBuf),
}

/// Adds the path to an error of a file.
fn at(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_path_buf();
    move |source| BackupError::File { path, source }
}

/// The objects in a snapshot of the database.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objects {
    /// Ids of programs.
    pub programs: Vec<String>,
    /// Ids of machines and runs.
    pub machines: Vec<String>,
    /// Ids of volumes.
    pub volumes: Vec<String>,
}

/// The contents of a backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of programs.
    pub programs: usize,
    /// Number of machines and runs.
    pub machines: usize,
    /// Number of volumes.
    pub volumes: usize,
}

#[cfg(test)]
mod tests;
