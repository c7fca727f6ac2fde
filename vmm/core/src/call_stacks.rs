//! Call stacks of system calls for a trace ([`Operation::Stack`](hartline_abi::call::Operation::Stack)).

use crate::inspect::ProgramMemory;
use hartline_abi::report::FileMapping;
use std::fmt::Debug;

/// A task that makes a system call. Nothing in it can be trusted.
#[derive(Debug)]
pub struct CallingTask {
    /// Address of the call.
    pub pc: u64,
    /// Integer registers.
    pub x: [u64; 32],
    /// Address of the code to which signal handlers return.
    pub trampoline: u64,
    /// The code that it has mapped.
    pub mappings: Vec<FileMapping>,
    /// Its memory. Other vCPUs may change it meanwhile.
    pub memory: ProgramMemory,
}

/// Finds and writes call stacks. Both calls are made on the thread of a vCPU, which waits.
pub trait CallStacks: Debug + Send + Sync {
    /// Finds the call stack of a system call that begins, and keeps it under the number of its task.
    fn find(&self, task: u64, from: &CallingTask);

    /// Writes the stack that was kept for a task. All earlier output has been written.
    fn write(&self, task: u64);
}

/// Finds the call stacks of samples of a profile, on the thread of the vCPU, which waits.
pub trait SampleStacks: Debug + Send + Sync {
    /// Finds the call stack of the sample that [`crate::profile::Profile::recorder`] gets next.
    fn sample(&self, from: &CallingTask);
}
