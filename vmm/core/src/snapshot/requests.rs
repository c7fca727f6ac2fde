//! Snapshots that are requested while the VM runs, any number of them, one after another.

use super::Then;
use crate::interrupts::Reach;
use crate::signals::request_checkpoint;
use std::fmt::Debug;
use std::fs::File;
use std::io;

/// Makes the guest of a running VM come to a checkpoint.
#[derive(Debug, Clone)]
pub struct Checkpoint(Reach);

impl Checkpoint {
    /// For the VM with these parts.
    pub(crate) fn new(reach: &Reach) -> Self {
        Self(reach.clone())
    }

    /// Requests a checkpoint. The guest makes it at its next safepoint.
    pub fn request(&self) {
        request_checkpoint(&self.0);
    }
}

/// Takes requests for snapshots of a VM. A VM with it has one vCPU, and no other devices than every
/// VM has and a network interface.
pub trait Requests: Debug + Send + Sync {
    /// Called once, before the guest runs.
    fn connect(&self, checkpoint: Checkpoint);

    /// The guest has made a checkpoint. Result: where the snapshot is written to, as
    /// [`stream`](super::stream) describes it, and what is wanted then; `None`: there is no request any
    /// more. The guest can make checkpoints without a request.
    fn take(&self) -> Option<(File, Then)>;

    /// Notes that the VM is to end after its snapshot. Called before the last record of the snapshot
    /// is sent. The guest does not run from now on, until [`forget_end`](Self::forget_end).
    ///
    /// # Errors
    /// It cannot be noted: the snapshot is not sent.
    fn note_end(&self) -> io::Result<()>;

    /// Waits until the receiver of a snapshot, to which all of it was sent, has decided. Result:
    /// whether the VM ends.
    fn is_to_end(&self, receiver: &mut File) -> bool;

    /// Forgets what [`note_end`](Self::note_end) noted: the guest goes on.
    ///
    /// # Errors
    /// It is still noted: the VM must end.
    fn forget_end(&self) -> io::Result<()>;
}
