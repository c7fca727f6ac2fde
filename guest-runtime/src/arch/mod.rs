//! What depends on the processor and on the VM: start, exceptions, vCPUs, the clock, the heap, and
//! calls to the VMM.

pub mod boot;
pub mod clock;
pub mod cpus;
pub mod exception;
pub mod heap;
pub mod host;
pub mod thunks;
