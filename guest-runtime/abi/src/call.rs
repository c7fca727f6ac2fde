//! Synchronous calls from the runtime to the VMM, for rare operations that need the host (reading
//! standard input, terminal settings, waiting). The guest fills [`HostCall`] and writes
//! [`crate::port::CALL`]; the VMM answers before the instruction completes. Each call is one exit.

/// Size of the data buffer, bytes.
pub const CALL_DATA: usize = 64 << 10;

/// First inode number of copies of files of volumes.
pub const COPY_INODES: u32 = 1 << 31;

/// The operations of a call. Arguments and results are words of [`HostCall::args`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// Read up to `args[1]` bytes (at most [`CALL_DATA`]) from host descriptor
    /// `args[0]` (0 only) into `data`. Result: bytes read, 0 at end of file.
    Read = 1,
    /// Wait until descriptors are ready or `args[1]` ns have passed (`u64::MAX`:
    /// for ever) or a device has done something ([`crate::boot::Shared::interrupts`] is
    /// not 0) or a signal arrives (`-EINTR`). `args[0]` is a set: bit 0 standard input
    /// readable. Result: the ready set.
    Wait = 2,
    /// Wait until all output of the console has been written.
    Flush = 3,
    /// Terminal request on descriptor `args[0]` (0, 1 or 2): `args[1]` is the Linux
    /// asm-generic ioctl number (`TCGETS`, `TCSETS`, `TCSETSW`, `TCSETSF`,
    /// `TIOCGWINSZ`, `TIOCGPGRP`); the structure of `args[2]` bytes is in `data`.
    /// Result: 0, or `-ENOTTY` if the descriptor is no terminal.
    Ioctl = 4,
    /// File status of descriptor `args[0]` (0, 1 or 2). Results in `args`: `st_mode`, `st_size`,
    /// `st_rdev`, and whether reading is at the end of file (unused: 0).
    Status = 5,
    /// Translation images of a file of the root file system tree, or of a copy of a file of a
    /// volume. `args[0]` is the file's inode ([`crate::tree`]), or [`COPY_INODES`] plus the number
    /// of the copy; `args[1]` is a [variant](crate::image::variant), `args[2]` the load bias of the
    /// file's code, `args[3]` the runtime's number for the file and variant
    /// ([`crate::image::NewerImages`]). Results in `args`: guest-physical address of the next image file
    /// that the runtime has not received, or else of the last one, a multiple of 2 MiB, in a
    /// read-only slot that is never removed; its length, bytes; and a set of [`image_answer`].
    /// `-EAGAIN`: there is no image yet, but there may be one. `-ENOENT`: there will be no image.
    /// `-EINTR`: a signal arrived before the answer was known: repeat the call.
    Image = 6,
    /// The group of the first process stops (by `SIGTSTP` or a similar signal): the VMM restores
    /// the terminal and stops itself until it is continued. Nothing happens without a terminal, or
    /// if no process could continue the VMM.
    Stop = 7,
    /// From now on, raise `poll_limit` every few milliseconds while the guest is not in
    /// [`Operation::Wait`] or [`Operation::Read`], because there is more than one task.
    Tick = 8,
    /// Wait until the request in [`crate::boot::Shared::volumes`] is answered, or a
    /// signal from outside ends the VM.
    Volume = 9,
    /// Map copy `args[0]` of a file of a volume into the guest
    /// ([`crate::volume::Operation::Copy`]). Results in `args`: guest-physical address of its
    /// contents, a multiple of 2 MiB, in a read-only slot that is never removed; and its length,
    /// bytes.
    Copy = 10,
    /// Use the gates of the VM's devices in the [`crate::interrupt::Table`] at the guest-physical
    /// address `args[0]`, in private RAM, a multiple of 4 KiB. `-EOPNOTSUPP`: this VM's devices
    /// have no vectors. A table with a gate that the runtime may not have ends the VM.
    Vectors = 11,
    /// Access registers of virtio devices, as single accesses of the guest would: the first
    /// `args[0]` [`RegisterAccess`]es in `data`, at most [`MAX_REGISTER_ACCESSES`], in order.
    /// Values that are read are stored in `data`.
    Registers = 12,
    /// Translate code that the program made at run time. `args[0]` is its guest address, even;
    /// `args[1]` its length in bytes, at most [`MAX_JIT_CODE`]; `args[2]` the number of entries, at
    /// most [`MAX_JIT_ENTRIES`]; `args[3]` a [variant](crate::image::variant) of the baseline translator's
    /// code; `args[4]` bits of [`jit_request`], which has other kinds of requests. In `data` are the code,
    /// and at [`MAX_JIT_CODE`] the entries: offsets in the code (`u32`).
    /// Results in `args`: the guest-physical address of a read-only slot of
    /// [`JIT_LENGTH`](crate::layout::JIT_LENGTH) bytes; the offset of the [translation](crate::jit) in it;
    /// the length of the host code, bytes; the number of functions; and the number of accesses. A
    /// translation does not change before a request with [`jit_request::REUSE`]. `-ENOENT`: such code is
    /// not translated here. `-ENOSPC`: the slot is full. `-EINVAL`: the arguments are not valid.
    Jit = 13,
    /// A [call about a process of the host](crate::spawn::Call). `-ENOSYS`: the host starts none here.
    /// `-EBADF`: there is no such process or stream. `-EINVAL`: the arguments are not valid.
    Spawn = 14,
    /// Write a snapshot: all state of the VM is in private RAM. Every task has its registers in RAM,
    /// and no vCPU runs a task. `args[0]` is the time of
    /// `CLOCK_MONOTONIC`, ns; `args[2]` is the offset in RAM of the [frames' state](crate::frames::Chunk), by which the
    /// VMM leaves out frames that are free. Errors are reported by the VMM; the program continues in any case. A VM
    /// that starts with this RAM starts at the ELF entry point too ([`crate::checkpoint`]). A VM can also be
    /// reset to the state of this call: it then returns again, with 1 in `args[1]`, and
    /// [`crate::checkpoint::SEED`] new random bytes in `data`. Otherwise `args[1]` is 0.
    Checkpoint = 15,
    /// Append the first `args[0]` bytes of `data`, at most [`CALL_DATA`], and then a hole of `args[1]`
    /// bytes to the core dump. `-ENOSYS`: the host has no file for one. `-EFBIG`: it would become too
    /// long. `-EIO`: it cannot be written; the VMM reports why.
    Core = 16,
    /// Find or write the call stack of a task, for the trace ([`crate::boot::strace::STACKS`]) or for a
    /// profile. `args[0]`
    /// is the task's number, `args[1]` one of [`stack_request`]. To find it, `args[2]` is the task's pc,
    /// `args[3]` the guest-physical address of the top-level page table of its memory, `args[4]` the
    /// address of the code to which its signal handlers return; [`crate::boot::Shared::mappings`] has its
    /// code, and `data` its integer registers (`u64`). `-ENOSYS`: the host shows no stacks. `-EINVAL`: the
    /// request is not valid.
    Stack = 17,
    /// Fill RAM with bytes of the root file system tree. `args[0]` is their address in the mapping of the tree
    /// ([`crate::boot::BootInfo::files`]), `args[1]` the guest-physical address in private RAM, `args[2]` the
    /// length in bytes, at most [`HUGE_PAGE_SIZE`](crate::layout::HUGE_PAGE_SIZE). `-ENOENT`: the tree is in
    /// memory with large pages, which the guest copies faster itself. `-EINVAL`: the arguments are not valid.
    /// `-EIO`: the host cannot read the bytes; RAM has some of them.
    ReadTree = 18,
    /// Call a function of the host ([`crate::exports`]). `data` has its name, of `args[0]` bytes, and its input, of
    /// `args[1]` bytes. Result: the length of the output, which is in `data`. `-ENOENT`: there is no such
    /// function. `-EINVAL`: a length is too large. Or a negated error of the function.
    HostFunction = 19,
    /// Find the registers of a program at a fault in translated code, for a debugger. `args[0]` is rip, `args[1]`
    /// its offset in the image file, bytes, `args[2]` the guest-physical address of that file, and `args[3]` the
    /// address of the function's guest code. `data` has the host registers as
    /// [`ExitReport::host_registers`](crate::report::ExitReport::host_registers), and then the integer registers of
    /// the [`Hart`](crate::hart::Hart) (`u64`). Results: pc in `args[0]`, a set of the integer registers that are
    /// known in `args[1]`, and their values in `data` (32 times `u64`). `-ENOENT`: the host does not find them.
    /// `-ENOSYS`: it does not look for them.
    Locate = 20,
}

/// Requests of [`Operation::Stack`].
pub mod stack_request {
    /// Find the call stack, and keep it for the next [`WRITE`] of the task.
    pub const FIND: u64 = 1;
    /// Write the kept call stack behind all earlier output.
    pub const WRITE: u64 = 2;
    /// Find the call stack of the sample that is being taken ([`crate::profile::Sample::finds_stack`]).
    pub const SAMPLE: u64 = 3;
}

/// The longest code of [`Operation::Jit`], bytes.
pub const MAX_JIT_CODE: usize = 32 << 10;

/// Most entries of [`Operation::Jit`].
pub const MAX_JIT_ENTRIES: usize = 1024;

const _: () = assert!(MAX_JIT_CODE + 4 * MAX_JIT_ENTRIES <= CALL_DATA);

/// Bits of a request of [`Operation::Jit`].
pub mod jit_request {
    /// No vCPU uses an earlier translation any more: the slot is filled from its start again.
    pub const REUSE: u64 = 1;
    /// LLVM translates the code, of a variant of its own, after the call. The result is the number of the
    /// request. [`Shared::images`](crate::boot::Shared::images) announces the translation. `-EAGAIN`: too
    /// many translations were requested and not taken. `-ENOENT`: LLVM does not translate such code here.
    pub const OPTIMISE: u64 = 2;
    /// Place the oldest of LLVM's translations in the slot. The results are as for other requests, and the
    /// number of the request in `args[5]`. Translations come in the order of their requests, but LLVM may
    /// fail for some. `-EAGAIN`: there is none.
    pub const TAKE: u64 = 4;
}

/// Bits of the answer to [`Operation::Image`].
pub mod image_answer {
    /// There may be newer images, which [`crate::boot::Shared::images`] announces.
    pub const GROWS: u64 = 1;
    /// There is a newer image already: repeat the call.
    pub const IS_FOLLOWED: u64 = 2;
    /// The image adds to the earlier ones of the file and variant. Otherwise it contains all of their
    /// code, and replaces them.
    pub const ADDS: u64 = 4;
}

/// Most accesses of [`Operation::Registers`].
pub const MAX_REGISTER_ACCESSES: usize = 256;

/// An access to a 32-bit register.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegisterAccess {
    /// Offset from [`DEVICE_GPA`](crate::layout::DEVICE_GPA), bytes.
    pub offset: u32,
    /// Whether the access is a write.
    pub is_write: bool,
    /// The value to write, or the value that was read.
    pub value: u32,
}

impl RegisterAccess {
    /// Length, bytes.
    pub const LENGTH: usize = 12;

    /// Encodes the access for memory.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&self.offset.to_le_bytes());
        bytes[4] = self.is_write.into();
        bytes[8..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    /// Decodes an access from memory.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let [o0, o1, o2, o3, is_write, _, _, _, value @ ..] = bytes;
        Self {
            offset: u32::from_le_bytes([o0, o1, o2, o3]),
            is_write: is_write != 0,
            value: u32::from_le_bytes(value),
        }
    }
}

const _: () = assert!(MAX_REGISTER_ACCESSES * RegisterAccess::LENGTH <= CALL_DATA);

/// The mailbox of host calls.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct HostCall {
    /// An [`Operation`].
    pub operation: u32,
    /// Unused.
    pub reserved: u32,
    /// Arguments, and further results.
    pub args: [u64; 6],
    /// Result: not negative, or a negated Linux (asm-generic) errno.
    pub result: i64,
    /// Unused.
    pub padding: [u64; 504],
    /// Data in either direction.
    pub data: [u8; CALL_DATA],
}

const _: () = assert!(core::mem::size_of::<HostCall>() == 4096 + CALL_DATA);
