//! I/O ports by which the guest leaves the VM on purpose (`out dx, eax`, 32
//! bits). The TSS I/O bitmap allows [`FIRST`]`..=`[`LAST`] at CPL 3; any other
//! port raises #GP in the guest.

/// First allowed port.
pub const FIRST: u16 = 0x510;
/// The program has ended; the value is ignored. The VMM reads [`crate::report::ExitReport`].
pub const EXIT: u16 = 0x510;
/// A [`crate::call::HostCall`] is ready; it has been served when the instruction
/// completes.
pub const CALL: u16 = 0x511;
/// The in-guest probe of processor features reports a step.
pub const PROBE: u16 = 0x513;
/// Doorbell of the volumes, written only when their server asked for it
/// ([`crate::volume::Channel::server_waits`]). The value is ignored.
pub const VOLUME: u16 = 0x514;
/// This vCPU has nothing to do: it sleeps as its [`crate::boot::CpuWait`] says.
pub const WAIT: u16 = 0x515;
/// Wakes the vCPUs whose [`crate::boot::CpuWait::wake`] is set.
pub const WAKE: u16 = 0x516;
/// This vCPU waits for another one, which the host may not be running: it gives way.
pub const YIELD: u16 = 0x517;
/// The VMM is to look at [`crate::boot::NextTime`] now.
pub const TIMER: u16 = 0x518;
/// Last allowed port.
pub const LAST: u16 = 0x51f;
/// Written at CPL 0 only, which is why it is not among those that are allowed: an interrupt
/// or exception by a vector of nobody. The value is the error code of its #NP.
pub const NOBODY: u16 = 0x520;
