//! I/O ports by which the guest leaves the VM on purpose (`out dx, eax`, 32
//! bits). The TSS I/O bitmap allows [`FIRST`]`..=`[`LAST`] at CPL 3; any other
//! port raises #GP in the guest.

/// First allowed port.
pub const FIRST: u16 = 0x510;
/// The program has ended; the value is ignored. The VMM reads [`crate::report::ExitReport`].
pub const EXIT: u16 = 0x510;
/// A [`crate::call::HostCall`] is ready. The VMM has served it when the instruction completes.
pub const CALL: u16 = 0x511;
/// The in-guest probe of CPU features reports a step.
pub const PROBE: u16 = 0x513;
/// Notification for the volumes, written only if their server asked for it
/// ([`crate::volume::Channel::server_waits`]). The value is ignored.
pub const VOLUME: u16 = 0x514;
/// This vCPU is idle: it sleeps as its [`crate::boot::CpuWait`] says.
pub const WAIT: u16 = 0x515;
/// Wakes the vCPUs whose [`crate::boot::CpuWait::wake`] is set.
pub const WAKE: u16 = 0x516;
/// This vCPU waits for another one that the host may not be running: the host thread yields.
pub const YIELD: u16 = 0x517;
/// The VMM must read [`crate::boot::NextTime`] now.
pub const TIMER: u16 = 0x518;
/// There is a reply in [`crate::exports::Channel`], written only if a thread of the VMM waits for it
/// ([`crate::exports::Channel::host_waits`]).
pub const REPLY: u16 = 0x519;
/// Last allowed port.
pub const LAST: u16 = 0x51f;
/// An interrupt or exception by an unassigned vector. Written at CPL 0 only, so it is outside the
/// allowed ports. The value is the error code of its #NP.
pub const NOBODY: u16 = 0x520;
