//! All state of the library OS for one program.

use crate::host::Host;
use crate::memory::AddressSpace;

/// What happens after a system call or an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The program goes on where it was.
    Continue,
    /// The program goes on at `Hart::pc`, which the kernel has set.
    Restart,
    /// The program has ended by `exit_group` with this status, 0–255.
    Exit(u8),
    /// The program has been killed by this signal.
    Kill(u8),
}

/// The library OS.
#[derive(Debug)]
pub struct Kernel {
    /// The way out of the VM.
    pub host: Host,
    /// The program's memory.
    pub memory: AddressSpace,
    /// What the call being served decided about the program's way on.
    pub control: Control,
    /// System calls made so far.
    pub syscalls: u64,
}
