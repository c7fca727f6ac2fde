//! Volumes: files of the host that the guest reads and writes through the VMM.
//!
//! There are [`VOLUME_PLACES`] places, with one request at a time each. The guest fills
//! [`Request`] and the data, sets [`Place::state`] to [`SUBMITTED`], and waits for [`ANSWERED`];
//! a thread of the VMM that watches the words serves it, without an exit. Before that thread
//! sleeps it sets `server_waits` to 1 (sequentially consistent) and looks at the words once more;
//! a guest that submitted swaps `server_waits` to 0 and rings [`crate::port::VOLUME`] if it was 1.
//!
//! The first place is for what the guest cannot go on without. A guest that has waited long for
//! it calls [`crate::call::Operation::Volume`]. Requests in the others are [`Operation::Read`]
//! and [`Operation::Sync`], for which tasks wait while others run: the server does not keep the
//! first place waiting for them, and they are done in any order. A guest that wants to be told of
//! the next answer in one of them sets `guest_waits` to 1 (sequentially consistent) and looks at
//! their words once more; a server that answered swaps it to 0 and sets the bit
//! [`VOLUME_DEVICE`] of [`crate::boot::Shared::interrupts`] if it was 1.
//!
//! Files are named by *nodes*: numbers that the host gives for a directory entry, and that
//! stay the same file whatever its names become. Names in requests are single components:
//! the host follows neither `..` nor symbolic links, which the guest resolves itself.
//! Results are not negative, or negated Linux error numbers.

use core::sync::atomic::AtomicU32;

/// Most volumes of one VM.
pub const MAX_VOLUMES: usize = 64;
/// Size of the data of one request, bytes.
pub const VOLUME_DATA: usize = 256 << 10;
/// Requests at a time.
pub const VOLUME_PLACES: usize = 5;
/// Number of the volumes among the devices ([`crate::virtio`]). They have no registers.
pub const VOLUME_DEVICE: u64 = crate::virtio::VSOCK_DEVICE + 1;

/// [`Place::state`]: no request.
pub const IDLE: u32 = 0;
/// [`Place::state`]: the guest waits for an answer.
pub const SUBMITTED: u32 = 1;
/// [`Place::state`]: the answer is there.
pub const ANSWERED: u32 = 2;

/// Flag in the answer to [`Operation::Root`]: nothing in the volume can be changed.
pub const ROOT_READ_ONLY: u64 = 1;
/// Flag of [`Operation::Open`]: the file is to be written too.
pub const OPEN_WRITE: u64 = 1;
/// Flag of [`Operation::Write`]: at the end of the file, whatever the offset.
pub const WRITE_APPEND: u64 = 1;
/// Flag of [`Operation::SetExtended`]: only if there is none (`XATTR_CREATE`).
pub const SET_CREATE: u64 = 1;
/// Flag of [`Operation::SetExtended`]: only if there is one (`XATTR_REPLACE`).
pub const SET_REPLACE: u64 = 2;
/// Time of [`Operation::SetTimes`], in place of nanoseconds: now (`UTIME_NOW`).
pub const TIME_NOW: u64 = (1 << 30) - 1;
/// Time of [`Operation::SetTimes`], in place of nanoseconds: unchanged (`UTIME_OMIT`).
pub const TIME_KEEP: u64 = (1 << 30) - 2;
/// Owner or group of [`Operation::SetOwner`]: unchanged.
pub const OWNER_KEEP: u64 = u32::MAX as u64;

/// What is asked for. "Attributes": [`Answer::attributes`] describes the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// Root of volume `args[0]`. Attributes; the data is its path in the guest, and the
    /// result the length of that. `args[0]` of the answer: [`ROOT_READ_ONLY`] or 0. What
    /// would change something in a read-only volume is answered with `EROFS`.
    Root = 1,
    /// The file that directory `args[0]` has under the name in the data, of `args[1]`
    /// bytes. Attributes.
    Lookup = 2,
    /// The guest no longer uses node `args[0]`.
    Forget = 3,
    /// Attributes of node `args[0]`.
    Attributes = 4,
    /// Sets permissions of node `args[0]` to `args[1]`; set-user-ID, and set-group-ID of
    /// what is no directory, are never set. Attributes.
    SetMode = 5,
    /// Sets owner `args[1]` and group `args[2]` of node `args[0]`. Attributes.
    SetOwner = 6,
    /// Sets access time `args[1]` s `args[2]` ns and modification time `args[3]` s
    /// `args[4]` ns of node `args[0]`. Attributes.
    SetTimes = 7,
    /// Sets the length of file `args[0]` to `args[1]` bytes. Attributes.
    Truncate = 8,
    /// Target of symbolic link `args[0]`: into the data. Result: its length.
    ReadLink = 9,
    /// Entries of directory `args[0]` from cookie `args[1]` (0: the first): into the data,
    /// as `struct linux_dirent64`. Result: their length, 0 at the end.
    ReadDirectory = 10,
    /// Makes a regular file in directory `args[0]` with permissions `args[2]`, owner
    /// `args[3]` and group `args[4]` under the name in the data, of `args[1]` bytes, where
    /// there is none. Attributes.
    Create = 11,
    /// As [`Operation::Create`], a directory.
    MakeDirectory = 12,
    /// As [`Operation::Create`], a file without a name; `args[1]` is 0.
    CreateUnnamed = 13,
    /// Makes a symbolic link in directory `args[0]`; name (`args[1]` bytes), then target
    /// (`args[2]` bytes) are in the data; `args[3]` and `args[4]` as for
    /// [`Operation::Create`]. Attributes.
    SymbolicLink = 14,
    /// Gives node `args[2]` a further name in directory `args[0]`: in the data, of
    /// `args[1]` bytes. Attributes.
    Link = 15,
    /// Removes the name in the data, of `args[1]` bytes, of what is no directory from
    /// directory `args[0]`.
    Unlink = 16,
    /// The same for an empty directory.
    RemoveDirectory = 17,
    /// Moves a name (`args[1]` bytes) in directory `args[0]` to a name (`args[3]` bytes)
    /// in directory `args[2]`; both are in the data. `args[4]`: flags of `renameat2`
    /// (`RENAME_NOREPLACE`, `RENAME_EXCHANGE`).
    Rename = 18,
    /// Whether file `args[0]` can be read, and with [`OPEN_WRITE`] in `args[1]` written.
    Open = 19,
    /// Reads file `args[0]` at `args[1]`, up to `args[2]` bytes: into the data. Result:
    /// bytes read.
    Read = 20,
    /// Writes the data, of `args[2]` bytes, to file `args[0]` at `args[1]`; flags in
    /// `args[3]`. Result: bytes written; `args[0]` of the answer is the position after them.
    Write = 21,
    /// Writes file or directory `args[0]` to storage; with 1 in `args[1]` only its data.
    Sync = 22,
    /// `fallocate` of file `args[0]`: mode `args[1]`, offset `args[2]`, length `args[3]`.
    /// Attributes.
    Allocate = 23,
    /// Next data (`args[2]` 0) or hole (1) of file `args[0]` at or after `args[1]`. Result:
    /// its offset.
    Seek = 24,
    /// The file system of node `args[0]`: `args` of the answer are block size, blocks, free
    /// blocks, free blocks for users, inodes, free inodes.
    FileSystem = 25,
    /// Copies file `args[0]` as it is, for executing it. Result: the number of the copy, for
    /// [`crate::call::Operation::Copy`]; `args[0]` of the answer is its length, bytes. The
    /// copy of a file that has not changed is the same.
    Copy = 26,
    /// Extended attribute (`user.` only, as in the next three) of node `args[0]`, a regular
    /// file or directory, whose name of `args[1]` bytes is in the data: into the data.
    /// Result: its length.
    GetExtended = 27,
    /// Sets it to the value of `args[2]` bytes that follows the name in the data; flags
    /// [`SET_CREATE`] and [`SET_REPLACE`] in `args[3]`.
    SetExtended = 28,
    /// Names of the extended attributes of node `args[0]`, each with a NUL: into the data.
    /// Result: their length.
    ListExtended = 29,
    /// Removes one: as [`Operation::GetExtended`].
    RemoveExtended = 30,
}

impl Operation {
    /// The operation with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        const ALL: [Operation; 30] = [
            Operation::Root,
            Operation::Lookup,
            Operation::Forget,
            Operation::Attributes,
            Operation::SetMode,
            Operation::SetOwner,
            Operation::SetTimes,
            Operation::Truncate,
            Operation::ReadLink,
            Operation::ReadDirectory,
            Operation::Create,
            Operation::MakeDirectory,
            Operation::CreateUnnamed,
            Operation::SymbolicLink,
            Operation::Link,
            Operation::Unlink,
            Operation::RemoveDirectory,
            Operation::Rename,
            Operation::Open,
            Operation::Read,
            Operation::Write,
            Operation::Sync,
            Operation::Allocate,
            Operation::Seek,
            Operation::FileSystem,
            Operation::Copy,
            Operation::GetExtended,
            Operation::SetExtended,
            Operation::ListExtended,
            Operation::RemoveExtended,
        ];
        ALL.get(usize::try_from(number).ok()?.checked_sub(1)?)
            .copied()
    }
}

/// A request.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// An [`Operation`].
    pub operation: u32,
    /// Not used.
    pub reserved: u32,
    /// Arguments.
    pub args: [u64; 6],
}

/// Attributes of a node, as `statx(2)` has them.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeAttributes {
    /// The node.
    pub node: u64,
    /// Inode number on the host.
    pub ino: u64,
    /// Length, bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// Device number of a device node.
    pub rdev: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Preferred I/O size, bytes.
    pub block_size: u32,
    /// Nanoseconds of the four times below.
    pub nanoseconds: [u32; 4],
    /// Not used.
    pub reserved: u32,
    /// Seconds of last access, last change of the contents, last change of the inode,
    /// creation.
    pub seconds: [i64; 4],
}

/// An answer.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Answer {
    /// Not negative, or a negated Linux error number.
    pub result: i64,
    /// Further results.
    pub args: [u64; 6],
    /// See [`Operation`].
    pub attributes: NodeAttributes,
}

/// A place for one request.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Place {
    /// [`IDLE`], [`SUBMITTED`] or [`ANSWERED`].
    pub state: AtomicU32,
    /// Not used.
    pub reserved: u32,
    /// What is asked.
    pub request: Request,
    /// What was answered.
    pub answer: Answer,
    /// Not used.
    pub padding: [u64; 480],
    /// Data in either direction.
    pub data: [u8; VOLUME_DATA],
}

/// The channel of all volumes of a VM.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Channel {
    /// 1 while the server sleeps and wants the doorbell.
    pub server_waits: AtomicU32,
    /// 1 while the guest wants to be told of answers to tasks.
    pub guest_waits: AtomicU32,
    /// The requests.
    pub places: [Place; VOLUME_PLACES],
}

const _: () = assert!(core::mem::size_of::<Channel>().is_multiple_of(4096));
