//! `linux/ptrace.h`.
#![allow(missing_docs, reason = "the names are Linux's")]

use zerocopy::{FromBytes, Immutable, IntoBytes};

// Requests.
pub const PTRACE_TRACEME: u64 = 0;
pub const PTRACE_PEEKTEXT: u64 = 1;
pub const PTRACE_PEEKDATA: u64 = 2;
pub const PTRACE_POKETEXT: u64 = 4;
pub const PTRACE_POKEDATA: u64 = 5;
pub const PTRACE_CONT: u64 = 7;
pub const PTRACE_KILL: u64 = 8;
pub const PTRACE_SINGLESTEP: u64 = 9;
pub const PTRACE_ATTACH: u64 = 16;
pub const PTRACE_DETACH: u64 = 17;
pub const PTRACE_SYSCALL: u64 = 24;
pub const PTRACE_SETOPTIONS: u64 = 0x4200;
pub const PTRACE_GETEVENTMSG: u64 = 0x4201;
pub const PTRACE_GETSIGINFO: u64 = 0x4202;
pub const PTRACE_SETSIGINFO: u64 = 0x4203;
pub const PTRACE_GETREGSET: u64 = 0x4204;
pub const PTRACE_SETREGSET: u64 = 0x4205;
pub const PTRACE_SEIZE: u64 = 0x4206;
pub const PTRACE_INTERRUPT: u64 = 0x4207;
pub const PTRACE_LISTEN: u64 = 0x4208;
pub const PTRACE_PEEKSIGINFO: u64 = 0x4209;
pub const PTRACE_GETSIGMASK: u64 = 0x420a;
pub const PTRACE_SETSIGMASK: u64 = 0x420b;
pub const PTRACE_SECCOMP_GET_FILTER: u64 = 0x420c;
pub const PTRACE_GET_SYSCALL_INFO: u64 = 0x420e;
pub const PTRACE_GET_RSEQ_CONFIGURATION: u64 = 0x420f;
pub const PTRACE_SET_SYSCALL_INFO: u64 = 0x4212;

/// The signals of the process in [`PtracePeeksiginfoArgs::flags`].
pub const PTRACE_PEEKSIGINFO_SHARED: u32 = 1;

// Options. That of an event has the event's number as its bit.
pub const PTRACE_O_TRACESYSGOOD: u64 = 1;
pub const PTRACE_O_TRACEFORK: u64 = 1 << PTRACE_EVENT_FORK;
pub const PTRACE_O_TRACEVFORK: u64 = 1 << PTRACE_EVENT_VFORK;
pub const PTRACE_O_TRACECLONE: u64 = 1 << PTRACE_EVENT_CLONE;
pub const PTRACE_O_TRACEEXEC: u64 = 1 << PTRACE_EVENT_EXEC;
pub const PTRACE_O_TRACEVFORKDONE: u64 = 1 << PTRACE_EVENT_VFORK_DONE;
pub const PTRACE_O_TRACEEXIT: u64 = 1 << PTRACE_EVENT_EXIT;
pub const PTRACE_O_TRACESECCOMP: u64 = 1 << PTRACE_EVENT_SECCOMP;
pub const PTRACE_O_EXITKILL: u64 = 1 << 20;

// Events.
pub const PTRACE_EVENT_FORK: u32 = 1;
pub const PTRACE_EVENT_VFORK: u32 = 2;
pub const PTRACE_EVENT_CLONE: u32 = 3;
pub const PTRACE_EVENT_EXEC: u32 = 4;
pub const PTRACE_EVENT_VFORK_DONE: u32 = 5;
pub const PTRACE_EVENT_EXIT: u32 = 6;
pub const PTRACE_EVENT_SECCOMP: u32 = 7;
pub const PTRACE_EVENT_STOP: u32 = 128;

// Messages of stops at system calls.
pub const PTRACE_EVENTMSG_SYSCALL_ENTRY: u64 = 1;
pub const PTRACE_EVENTMSG_SYSCALL_EXIT: u64 = 2;

// Kinds of [`PtraceSyscallInfo`].
pub const PTRACE_SYSCALL_INFO_NONE: u8 = 0;
pub const PTRACE_SYSCALL_INFO_ENTRY: u8 = 1;
pub const PTRACE_SYSCALL_INFO_EXIT: u8 = 2;
pub const PTRACE_SYSCALL_INFO_SECCOMP: u8 = 3;

/// `struct ptrace_peeksiginfo_args`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct PtracePeeksiginfoArgs {
    pub off: u64,
    pub flags: u32,
    pub nr: i32,
}

/// `struct ptrace_syscall_info`. `data` is a union: for an entry the number and the arguments, for an
/// exit the result and whether it is an error, for `seccomp` number, arguments and the filter's data.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
pub struct PtraceSyscallInfo {
    pub op: u8,
    pub reserved: u8,
    pub flags: u16,
    pub arch: u32,
    pub instruction_pointer: u64,
    pub stack_pointer: u64,
    pub data: [u64; 8],
}

const _: () = assert!(size_of::<PtraceSyscallInfo>() == 88);

/// `struct ptrace_rseq_configuration`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoBytes, Immutable)]
pub struct PtraceRseqConfiguration {
    pub rseq_abi_pointer: u64,
    pub rseq_abi_size: u32,
    pub signature: u32,
    pub flags: u32,
    pub pad: u32,
}

const _: () = assert!(size_of::<PtraceRseqConfiguration>() == 24);
