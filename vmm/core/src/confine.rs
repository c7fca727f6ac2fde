//! Taking rights away from the threads of a VM.

use std::fmt::Debug;
use std::sync::Arc;

/// Threads of a VM that need different rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thread {
    /// Runs a vCPU and serves its calls.
    Vcpu,
    /// Writes the program's output.
    Console,
    /// Serves the volumes.
    Volumes,
    /// Moves packets.
    Network,
}

impl Thread {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Vcpu, Self::Console, Self::Volumes, Self::Network];
}

/// Who runs a VM may have its threads confined.
pub trait Confine: Debug + Send + Sync {
    /// Called on each thread before it does anything for the guest. Ends the process if
    /// the thread cannot be confined.
    fn confine(&self, thread: Thread);
}

/// Takes rights away from the calling thread, if that is wanted.
pub(crate) fn confine_to(thread: Thread, confine: Option<&Arc<dyn Confine>>) {
    if let Some(confine) = confine {
        confine.confine(thread);
    }
}
