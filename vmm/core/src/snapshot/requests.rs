//! Snapshots that are requested while the VM runs, any number of them, one after another.

use crate::interrupts::Reach;
use crate::signals::request_checkpoint;
use std::fmt::Debug;
use std::fs::File;

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
/// VM has.
pub trait Requests: Debug + Send + Sync {
    /// Called once, before the guest runs.
    fn connect(&self, checkpoint: Checkpoint);

    /// The guest has made a checkpoint. Result: where the snapshot is written to, as
    /// [`stream`](super::stream) describes it; `None`: there is no request any more. The guest can
    /// make checkpoints without a request.
    fn take(&self) -> Option<File>;
}
