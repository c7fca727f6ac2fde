//! Taking rights away from the threads of a VM.

use std::fmt::Debug;

/// Threads of a VM that need different rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thread {
    /// Runs a vCPU and serves its calls.
    Vcpu,
    /// Writes the program's output.
    Console,
    /// Serves the volumes.
    Volumes,
}

impl Thread {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Vcpu, Self::Console, Self::Volumes];
}

/// Who runs a VM may have its threads confined.
pub trait Confine: Debug + Send + Sync {
    /// Called on each thread before it does anything for the guest. Ends the process if
    /// the thread cannot be confined.
    fn confine(&self, thread: Thread);
}
