//! The largest numbers of parts of one VM.

/// Most vCPUs of one VM: a set of vCPUs fits a 64-bit word.
pub const MAX_CPUS: usize = 64;
/// Most disks of one VM.
pub const MAX_DISKS: usize = 4;
