//! Snapshots of the VM of this VMM that the daemon requests ([`SnapshotJob`]).

use super::protocol::SnapshotJob;
use hartline_vmm::snapshot::Checkpoint;
use hartline_vmm::snapshot::stream::refuse;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The request for a snapshot that is due, and what it needs.
#[derive(Debug, Default)]
pub struct Snapshots {
    /// Device and inode of the VM's tree; `None`: this VM makes no snapshots.
    tree: Option<(u64, u64)>,
    checkpoint: OnceLock<Checkpoint>,
    /// Where the snapshot goes at the next checkpoint.
    due: Mutex<Option<File>>,
}

impl Snapshots {
    /// Takes requests, if the VM's tree is this file (device and inode).
    pub fn of(tree: Option<(u64, u64)>) -> Self {
        Self {
            tree,
            ..Self::default()
        }
    }

    /// Whether the VM makes snapshots.
    pub fn are_possible(&self) -> bool {
        self.tree.is_some()
    }

    /// Sets how the guest comes to a checkpoint.
    pub fn connect(&self, checkpoint: Checkpoint) {
        let checkpoint = self.checkpoint.get_or_init(|| checkpoint);
        if self.lock().is_some() {
            checkpoint.request();
        }
    }

    /// Handles a request. It takes the place of an earlier one, which the daemon has given up.
    pub fn request(&self, job: SnapshotJob, descriptors: Vec<OwnedFd>) {
        let Ok([to]) = <[OwnedFd; 1]>::try_from(descriptors) else {
            return;
        };
        let mut to = File::from(to);
        let refused = match self.tree {
            None => "this machine's VMM makes no snapshots",
            Some(tree) if tree != job.tree => {
                "the program was packed again since the machine was started: start it again first"
            }
            Some(_) => "",
        };
        if !refused.is_empty() {
            // The daemon sees the end of the stream otherwise.
            let _ = refuse(&mut to, refused);
            return;
        }
        *self.lock() = Some(to);
        if let Some(checkpoint) = self.checkpoint.get() {
            checkpoint.request();
        }
    }

    /// Takes the request that is due. It is refused if the VM `is_busy` with processes of the daemon,
    /// whose streams are not in the guest's memory.
    pub fn take(&self, is_busy: bool) -> Option<File> {
        let mut to = self.lock().take()?;
        if !is_busy {
            return Some(to);
        }
        let reason = "processes that were started in the machine (exec) are still there";
        // The daemon sees the end of the stream otherwise.
        let _ = refuse(&mut to, reason);
        None
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<File>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
