//! Synchronous calls from the runtime to the VMM: for what is rare and needs the
//! host (reading standard input, terminal settings, waiting). The guest fills
//! [`HostCall`] and writes [`crate::port::CALL`]; the VMM answers before the
//! instruction completes. One exit each.

/// Size of the data buffer, bytes.
pub const CALL_DATA: usize = 64 << 10;

/// Copies of files of volumes have the inodes from here on.
pub const COPY_INODES: u32 = 1 << 31;

/// What is asked for. Arguments and results are words of [`HostCall::args`].
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
    /// Wait until all that the console was given has been written out.
    Flush = 3,
    /// Terminal request on descriptor `args[0]` (0, 1 or 2): `args[1]` is the Linux
    /// asm-generic ioctl number (`TCGETS`, `TCSETS`, `TCSETSW`, `TCSETSF`,
    /// `TIOCGWINSZ`, `TIOCGPGRP`); the structure of `args[2]` bytes is in `data`.
    /// Result: 0, or `-ENOTTY` if the descriptor is no terminal.
    Ioctl = 4,
    /// File status of descriptor `args[0]` (0, 1 or 2). Results in `args`: `st_mode`,
    /// `st_size`, `st_rdev`, and whether it is at its end for reading (unused: 0).
    Status = 5,
    /// Translation image of a file of the root file system tree, or of a copy of a file of a
    /// volume. `args[0]` is the file's inode ([`crate::tree`]), or [`COPY_INODES`] and the
    /// number of the copy; `args[1]` a [variant](crate::image::variant),
    /// `args[2]` the load bias of the file's code. Results in `args`: guest-physical
    /// address of the newest image file, a multiple of 2 MiB, in a read-only slot that
    /// stays; its length, bytes; and 1 if newer ones may come, which
    /// [`crate::boot::Shared::images`] will tell. Each has all code of the ones before.
    /// `-EAGAIN`: there is none yet, but one may come. `-ENOENT`: there is none and will
    /// be none. `-EINTR`: a signal came before the answer was known: ask again later.
    Image = 6,
    /// The first process's group stops (`SIGTSTP` and its like): the VMM puts the terminal
    /// back and stops itself, until somebody lets it go on. Nothing happens if it has no
    /// terminal, or nobody is there who could let it go on.
    Stop = 7,
    /// From now on, ask for attention (`poll_limit`) every few milliseconds while the
    /// guest is not in [`Operation::Wait`] or [`Operation::Read`]: there is more than one
    /// task.
    Tick = 8,
    /// Wait until the request in [`crate::boot::Shared::volumes`] is answered, or a
    /// signal from outside ends the VM.
    Volume = 9,
    /// Lets the guest see copy `args[0]` of a file of a volume
    /// ([`crate::volume::Operation::Copy`]). Results in `args`: guest-physical address of its
    /// contents, a multiple of 2 MiB, in a read-only slot that stays; and its length, bytes.
    Copy = 10,
    /// Use the gates of the VM's devices in the [`crate::interrupt::Table`] at the
    /// guest-physical address `args[0]`, in private RAM, a multiple of 4 KiB. `-EOPNOTSUPP`:
    /// this VM's devices have no vectors. A table with a gate that the runtime may not have
    /// ends the VM.
    Vectors = 11,
    /// Access registers of virtio devices, as the guest could one by one: the first `args[0]`
    /// [`RegisterAccess`]es in `data`, at most [`MAX_REGISTER_ACCESSES`], in their order. What
    /// is read is written there.
    Registers = 12,
}

/// Most accesses of [`Operation::Registers`].
pub const MAX_REGISTER_ACCESSES: usize = 256;

/// An access to a register of 32 bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegisterAccess {
    /// Where, from [`DEVICE_GPA`](crate::layout::DEVICE_GPA) on.
    pub offset: u32,
    /// It is written.
    pub is_write: bool,
    /// What is written, or was read.
    pub value: u32,
}

impl RegisterAccess {
    /// Length, bytes.
    pub const LENGTH: usize = 12;

    /// As it is in memory.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..4].copy_from_slice(&self.offset.to_le_bytes());
        bytes[4] = self.is_write.into();
        bytes[8..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    /// From memory.
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

/// The mailbox.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct HostCall {
    /// An [`Operation`].
    pub operation: u32,
    /// Not used.
    pub reserved: u32,
    /// Arguments, and further results.
    pub args: [u64; 6],
    /// Result: not negative, or a negated Linux (asm-generic) errno.
    pub result: i64,
    /// Not used.
    pub padding: [u64; 504],
    /// Data in either direction.
    pub data: [u8; CALL_DATA],
}

const _: () = assert!(core::mem::size_of::<HostCall>() == 4096 + CALL_DATA);
