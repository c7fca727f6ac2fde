//! GDB's remote serial protocol ("Debugging with GDB", appendix E): packets, and the parts of their
//! contents that need no kernel. The kernel serves them (`kernel/debug`).
//!
//! The server is here and not on the host, so that packets of a debugger are parsed inside the VM. The
//! crate `gdbstub` (0.7) has neither several processes, nor events of fork, vfork and execve, nor
//! `qXfer:siginfo`, so the protocol is implemented here.

pub mod packet;
pub mod resume;
pub mod target;
pub mod text;
