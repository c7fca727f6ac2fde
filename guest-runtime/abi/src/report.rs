//! The exit report of the program, which the runtime fills before [`crate::port::EXIT`].

/// The kind of the program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ExitKind {
    /// `exit_group`: `code` is the exit status, 0–255.
    Exited = 1,
    /// Killed by signal `code` (asm-generic number) that is not a fault of an instruction.
    Signaled = 2,
    /// Killed by signal `code` because of a fault at `pc`, `cause`, `address`, `x`, `f`.
    Fault = 3,
    /// Guest memory is used up.
    OutOfMemory = 4,
    /// The runtime cannot continue, for the reason in `message`: a bug, or an attack on it.
    RuntimeError = 5,
    /// The program cannot be executed, for the reason in `message`.
    NotLoaded = 6,
}

/// Cause of a [`ExitKind::Fault`], numbered as RISC-V `scause` exception codes
/// (privileged specification, "Supervisor Cause Register").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Cause {
    /// Jump to unmapped or non-executable memory, or to an odd address.
    InstructionPageFault = 12,
    /// Illegal instruction.
    IllegalInstruction = 2,
    /// `ebreak`.
    Breakpoint = 3,
    /// `lr` from a misaligned address.
    LoadMisaligned = 4,
    /// `sc` or an AMO to a misaligned address.
    StoreMisaligned = 6,
    /// Load from unmapped memory.
    LoadPageFault = 13,
    /// Store to unmapped or read-only memory.
    StorePageFault = 15,
}

/// Most mappings in [`FileMappings`].
pub const MAX_FILE_MAPPINGS: usize = 512;

/// A range of the program's memory that shows executable contents of a file.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FileMapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Inode of the file in the root file system tree.
    pub inode: u64,
}

/// The code that a program has mapped, for call stacks. The runtime fills it before the report of a
/// [`ExitKind::Fault`], and of a signal with [`ExitReport::page_table`]; and before a request for a call
/// stack ([`crate::call::Operation::Stack`]).
#[repr(C)]
#[derive(Debug, Clone)]
pub struct FileMappings {
    /// Number of valid entries.
    pub count: u64,
    /// The mappings, in the order of their addresses.
    pub entries: [FileMapping; MAX_FILE_MAPPINGS],
}

/// The exit report.
#[repr(C)]
#[derive(Debug, Clone)]
pub struct ExitReport {
    /// An [`ExitKind`]; 0 while running.
    pub kind: u32,
    /// Exit status or signal.
    pub code: u32,
    /// A [`Cause`], for `Fault`.
    pub cause: u32,
    /// 1 if `pc` is exact; 0 if the fault was in translated code and `pc` is the address of its
    /// function: `host_pc` is the host instruction then.
    pub pc_exact: u32,
    /// Guest pc, for `Fault` and for signals with a page table.
    pub pc: u64,
    /// Faulting address, for `Fault`.
    pub address: u64,
    /// Host rip of a fault in translated code, otherwise 0.
    pub host_pc: u64,
    /// Guest-physical address of the top-level page table of the program's memory, for `Fault` and
    /// for signals that are errors of the program, otherwise 0.
    pub page_table: u64,
    /// Address of the code to which signal handlers return, if there is a page table.
    pub trampoline: u64,
    /// Offset of `host_pc` in the image file, bytes.
    pub image_offset: u64,
    /// Guest-physical address of the image file.
    pub image: u64,
    /// Integer registers. After a fault in translated code, the registers that are not pinned are
    /// as in [`crate::hart::Hart`].
    pub x: [u64; 32],
    /// Host registers at the fault: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8–r15.
    pub host_registers: [u64; 16],
    /// Length of `message`, bytes.
    pub message_length: u32,
    /// Unused.
    pub reserved: u32,
    /// UTF-8, one line.
    pub message: [u8; 256],
    /// Number of system calls.
    pub syscalls: u64,
    /// Peak of RAM in use, without the memory in use when the VM started, bytes.
    pub peak_memory: u64,
    /// Number of times that translated code entered the interpreter.
    pub interpreter_entries: u64,
    /// Number of interpreted instructions.
    pub interpreted: u64,
    /// Number of comparisons of translated code with the interpreter (`--check`).
    pub compared: u64,
    /// Number of comparisons that were not possible.
    pub not_compared: u64,
    /// A digest of chaos's decisions and their locations; 0: none.
    pub schedule: u64,
    /// Numbers of system calls that returned `ENOSYS` (first 8), and how often.
    pub missing_syscalls: [[u32; 2]; 8],
}
