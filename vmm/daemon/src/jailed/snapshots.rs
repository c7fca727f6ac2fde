//! Snapshots of the VM of this VMM that the daemon requests ([`SnapshotJob`], [`SuspendJob`]).
//!
//! [`SnapshotJob`]: super::protocol::SnapshotJob
//! [`SuspendJob`]: super::protocol::SuspendJob

use super::protocol::SUSPENDED;
use hartline_jail::RESULT_FD;
use hartline_vmm::snapshot::stream::{END, refuse};
use hartline_vmm::snapshot::{Checkpoint, Then};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The request for a snapshot that is due, and what it needs.
#[derive(Debug, Default)]
pub struct Snapshots {
    /// Device and inode of the VM's tree; `None`: this VM makes no snapshots.
    tree: Option<(u64, u64)>,
    checkpoint: OnceLock<Checkpoint>,
    /// Where the snapshot goes at the next checkpoint, and what happens then.
    due: Mutex<Option<(File, Then)>>,
    /// The VM ends because the daemon has its snapshot.
    is_suspended: AtomicBool,
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

    /// Handles a request for a snapshot with this tree (device and inode). It takes the place of an
    /// earlier one, which the daemon has given up.
    pub fn request(&self, job: ((u64, u64), Then), descriptors: Vec<OwnedFd>) {
        let (tree, then) = job;
        let Ok([to]) = <[OwnedFd; 1]>::try_from(descriptors) else {
            return;
        };
        let mut to = File::from(to);
        let refused = match self.tree {
            None => "this machine's VMM makes no snapshots",
            Some(own) if own != tree => {
                "the program was packed again since the machine was started: start it again first"
            }
            Some(_) => "",
        };
        if !refused.is_empty() {
            // The daemon sees the end of the stream otherwise.
            let _ = refuse(&mut to, refused);
            return;
        }
        *self.lock() = Some((to, then));
        if let Some(checkpoint) = self.checkpoint.get() {
            checkpoint.request();
        }
    }

    /// Takes the request that is due. It is refused if the VM `is_busy` with processes of the daemon,
    /// whose streams are not in the guest's memory.
    pub fn take(&self, is_busy: bool) -> Option<(File, Then)> {
        let (mut to, then) = self.lock().take()?;
        if !is_busy {
            return Some((to, then));
        }
        let reason = "processes that were started in the machine (exec) are still there";
        // The daemon sees the end of the stream otherwise.
        let _ = refuse(&mut to, reason);
        None
    }

    /// Notes in the file for the result that the guest does not run any more.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn note_end(&self) -> io::Result<()> {
        write_result(SUSPENDED)
    }

    /// Takes the note back: the guest goes on.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn forget_end(&self) -> io::Result<()> {
        write_result(&[b' '; SUSPENDED.len()])
    }

    /// Waits for the daemon's answer to a whole snapshot, or the daemon's end. Result: whether the VM
    /// ends.
    pub fn is_to_end(&self, daemon: &mut File) -> bool {
        let mut answer = [0];
        let ends = daemon.read_exact(&mut answer).is_ok() && answer == [END];
        self.is_suspended.store(ends, Ordering::Release);
        ends
    }

    /// Whether the VM has ended because the daemon has its snapshot. There is no result then.
    pub fn is_suspended(&self) -> bool {
        self.is_suspended.load(Ordering::Acquire)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(File, Then)>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the begin of the file for the result. A virtual CPU may write to this descriptor only, and
/// the room is reserved.
fn write_result(bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the descriptor stays open as long as this process: it was put there before the VM
    // started, and nobody closes it.
    let file = unsafe { BorrowedFd::borrow_raw(RESULT_FD) };
    match rustix::io::pwrite(file, bytes, 0)? {
        written if written == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}
