//! Removes rights of the threads of a VM.

use std::fmt::Debug;
use std::sync::Arc;

/// Threads of a VM that need different rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thread {
    /// Runs a vCPU and serves its calls.
    Vcpu,
    /// As [`Vcpu`](Self::Vcpu), of a VM that is reset.
    ResetVcpu,
    /// Writes the program's output.
    Console,
    /// Serves the volumes.
    Volumes,
    /// Moves packets.
    Network,
    /// Takes requests for processes in the VM.
    Spawn,
}

impl Thread {
    /// All kinds of threads.
    pub const ALL: [Self; 6] = [
        Self::Vcpu,
        Self::ResetVcpu,
        Self::Console,
        Self::Volumes,
        Self::Network,
        Self::Spawn,
    ];
}

/// Confinement of a VM's threads by the user of this crate.
pub trait Confine: Debug + Send + Sync {
    /// Called on each thread before it does anything for the guest. Ends the process if
    /// the thread cannot be confined.
    fn confine(&self, thread: Thread);
}

/// Removes rights of the calling thread, if `confine` is given.
pub(crate) fn confine_to(thread: Thread, confine: Option<&Arc<dyn Confine>>) {
    if let Some(confine) = confine {
        confine.confine(thread);
    }
}
