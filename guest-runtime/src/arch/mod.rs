//! The parts that depend on the processor and on the VM: vCPUs and their kicks, the clock, and calls
//! to the VMM.

pub mod clock;
pub mod cpus;
pub mod host;
pub mod kick;
