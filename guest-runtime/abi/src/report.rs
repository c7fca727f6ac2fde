//! How the program ended: filled by the runtime before [`crate::port::EXIT`].

/// Kind of end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ExitKind {
    /// `exit_group`: `code` is the exit status, 0–255.
    Exited = 1,
    /// Killed by signal `code` (asm-generic number) that is no fault of an instruction.
    Signaled = 2,
    /// Killed by signal `code` because of a fault: `pc`, `cause`, `address`, `x`, `f` say where.
    Fault = 3,
    /// Guest memory is used up.
    OutOfMemory = 4,
    /// The runtime cannot go on: `message` says why. A bug, or an attack on it.
    RuntimeError = 5,
    /// The program cannot be executed: `message` says why.
    NotLoaded = 6,
}

/// Cause of a [`ExitKind::Fault`], numbered as RISC-V `scause` exception codes
/// (privileged specification, "Supervisor Cause Register").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Cause {
    /// Jump to memory that is not there or not executable, or to an odd place.
    InstructionPageFault = 12,
    /// Not an instruction.
    IllegalInstruction = 2,
    /// `ebreak`.
    Breakpoint = 3,
    /// `lr` from a misaligned address.
    LoadMisaligned = 4,
    /// `sc` or an AMO to a misaligned address.
    StoreMisaligned = 6,
    /// Load from memory that is not there.
    LoadPageFault = 13,
    /// Store to memory that is not there or read-only.
    StorePageFault = 15,
}

/// The report.
#[repr(C)]
#[derive(Debug, Clone)]
pub struct ExitReport {
    /// An [`ExitKind`]; 0 while running.
    pub kind: u32,
    /// Exit status or signal.
    pub code: u32,
    /// A [`Cause`], for `Fault`.
    pub cause: u32,
    /// 1 if `pc` is exact; 0 if the fault was in translated code and `pc` is that
    /// of its function: then `host_pc` tells more.
    pub pc_exact: u32,
    /// Guest pc.
    pub pc: u64,
    /// Faulting address, for `Fault`.
    pub address: u64,
    /// Host rip of a fault in translated code, otherwise 0.
    pub host_pc: u64,
    /// Its offset in the image file, bytes.
    pub image_offset: u64,
    /// Guest-physical address of that file.
    pub image: u64,
    /// Integer registers. After a fault in translated code: as in [`crate::hart::Hart`]
    /// for those that are not pinned.
    pub x: [u64; 32],
    /// Host registers at the fault: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8–r15.
    pub host_registers: [u64; 16],
    /// Length of `message`, bytes.
    pub message_length: u32,
    /// Not used.
    pub reserved: u32,
    /// UTF-8, one line.
    pub message: [u8; 256],
    /// System calls made.
    pub syscalls: u64,
    /// Bytes of RAM in use at most, without what was there when the VM started.
    pub peak_memory: u64,
    /// Times the interpreter was entered from translated code.
    pub interpreter_entries: u64,
    /// Instructions that the interpreter executed.
    pub interpreted: u64,
    /// Times that translated code was compared with the interpreter (`--check`).
    pub compared: u64,
    /// Times that it could not be compared.
    pub not_compared: u64,
    /// A digest of what chaos did, and where; 0: nothing.
    pub schedule: u64,
    /// System call numbers that were answered with `ENOSYS` (first 8), and how often.
    pub missing_syscalls: [[u32; 2]; 8],
}
