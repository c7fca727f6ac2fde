//! Volumes: files of the host that the guest reads and writes through the VMM.
//!
//! There are [`VOLUME_SLOTS`] slots ([`Slot`]), with one request at a time each. The guest fills
//! [`Request`] and the data, sets [`Slot::state`] to [`SUBMITTED`], and waits for [`ANSWERED`]. A
//! thread of the VMM that polls these words serves the request, without an exit. Before this thread
//! sleeps, it sets `server_waits` to 1 (sequentially consistent) and checks the words once more. A
//! guest that has submitted a request swaps `server_waits` to 0, and writes [`crate::port::VOLUME`]
//! if it was 1.
//!
//! The first slot is for synchronous requests. A guest that has waited long for one calls
//! [`crate::call::Operation::Volume`]. Requests in the other slots are [`Operation::Read`] and
//! [`Operation::Sync`], for which tasks wait while others run: they do not delay the first slot,
//! and complete in any order. A guest that wants an interrupt at the next completion in one of
//! these slots sets `guest_waits` to 1 (sequentially consistent) and checks their words once more.
//! A server that has answered swaps it to 0, and sets the bit [`VOLUME_DEVICE`] of
//! [`crate::boot::Shared::interrupts`] if it was 1.
//!
//! Files are identified by *nodes*: numbers that the host assigns to directory entries. A node is
//! the same file whatever its names become. Names in requests are single components: the host
//! follows neither `..` nor symbolic links, which the guest resolves itself. Results are not
//! negative, or negated Linux error numbers.

use core::sync::atomic::AtomicU32;

/// Most volumes of one VM.
pub const MAX_VOLUMES: usize = 64;
/// Size of the data buffer of one request, bytes.
pub const VOLUME_DATA: usize = 256 << 10;
/// Number of slots: most requests in flight.
pub const VOLUME_SLOTS: usize = 5;
/// Number of the volumes as a device ([`crate::virtio`]). They have no registers.
pub const VOLUME_DEVICE: u64 = crate::virtio::VSOCK_DEVICE + 1;

/// [`Slot::state`]: no request.
pub const IDLE: u32 = 0;
/// [`Slot::state`]: the request waits for an answer.
pub const SUBMITTED: u32 = 1;
/// [`Slot::state`]: the answer is complete.
pub const ANSWERED: u32 = 2;

/// Flag in the answer to [`Operation::Root`]: the volume is read-only.
pub const ROOT_READ_ONLY: u64 = 1;
/// Flag of [`Operation::Open`]: open the file for writing too.
pub const OPEN_WRITE: u64 = 1;
/// Flag of [`Operation::Write`]: write at the end of the file, whatever the offset.
pub const WRITE_APPEND: u64 = 1;
/// Flag of [`Operation::SetExtended`]: fail if the attribute exists (`XATTR_CREATE`).
pub const SET_CREATE: u64 = 1;
/// Flag of [`Operation::SetExtended`]: fail if the attribute does not exist (`XATTR_REPLACE`).
pub const SET_REPLACE: u64 = 2;
/// Time of [`Operation::SetTimes`], in place of nanoseconds: now (`UTIME_NOW`).
pub const TIME_NOW: u64 = (1 << 30) - 1;
/// Time of [`Operation::SetTimes`], in place of nanoseconds: unchanged (`UTIME_OMIT`).
pub const TIME_KEEP: u64 = (1 << 30) - 2;
/// Owner or group of [`Operation::SetOwner`]: unchanged.
pub const OWNER_KEEP: u64 = u32::MAX as u64;

/// The operations of a request. "Attributes": [`Answer::attributes`] describes the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// Root of volume `args[0]`. Attributes; the data is its path in the guest, and the result the
    /// length of the path. `args[0]` of the answer: [`ROOT_READ_ONLY`] or 0. Changes to a read-only
    /// volume return `EROFS`.
    Root = 1,
    /// The file in directory `args[0]` with the name in the data, of `args[1]` bytes. Attributes.
    Lookup = 2,
    /// The guest no longer uses node `args[0]`.
    Forget = 3,
    /// Attributes of node `args[0]`.
    Attributes = 4,
    /// Sets permissions of node `args[0]` to `args[1]`. Set-user-ID is never set, and set-group-ID
    /// only on directories. Attributes.
    SetMode = 5,
    /// Sets owner `args[1]` and group `args[2]` of node `args[0]`. Attributes.
    SetOwner = 6,
    /// Sets access time `args[1]` s `args[2]` ns and modification time `args[3]` s
    /// `args[4]` ns of node `args[0]`. Attributes.
    SetTimes = 7,
    /// Sets the length of file `args[0]` to `args[1]` bytes. Attributes.
    Truncate = 8,
    /// Reads the target of symbolic link `args[0]` into the data. Result: its length.
    ReadLink = 9,
    /// Reads entries of directory `args[0]` from cookie `args[1]` (0: the first) into the data, as
    /// `struct linux_dirent64`. Result: their length, 0 at the end.
    ReadDirectory = 10,
    /// Creates a regular file in directory `args[0]` with permissions `args[2]`, owner `args[3]`
    /// and group `args[4]`, under the name in the data, of `args[1]` bytes, which must not exist.
    /// Attributes.
    Create = 11,
    /// As [`Operation::Create`], for a directory.
    MakeDirectory = 12,
    /// As [`Operation::Create`], for a file without a name; `args[1]` is 0.
    CreateUnnamed = 13,
    /// Creates a symbolic link in directory `args[0]`. The data contains the name (`args[1]`
    /// bytes), then the target (`args[2]` bytes); `args[3]` and `args[4]` are as in
    /// [`Operation::Create`]. Attributes.
    SymbolicLink = 14,
    /// Links node `args[2]` in directory `args[0]` to the name in the data, of `args[1]` bytes.
    /// Attributes.
    Link = 15,
    /// Removes the name in the data, of `args[1]` bytes, from directory `args[0]`. It must not be a
    /// directory.
    Unlink = 16,
    /// As [`Operation::Unlink`], for an empty directory.
    RemoveDirectory = 17,
    /// Moves a name (`args[1]` bytes) in directory `args[0]` to a name (`args[3]` bytes)
    /// in directory `args[2]`; both are in the data. `args[4]`: flags of `renameat2`
    /// (`RENAME_NOREPLACE`, `RENAME_EXCHANGE`).
    Rename = 18,
    /// Checks that file `args[0]` can be read, and with [`OPEN_WRITE`] in `args[1]` written.
    Open = 19,
    /// Reads up to `args[2]` bytes of file `args[0]` at `args[1]` into the data. Result: bytes
    /// read.
    Read = 20,
    /// Writes the data, of `args[2]` bytes, to file `args[0]` at `args[1]`; flags in
    /// `args[3]`. Result: bytes written; `args[0]` of the answer is the position after them.
    Write = 21,
    /// Makes file or directory `args[0]` durable; with 1 in `args[1]` only its data.
    Sync = 22,
    /// `fallocate` of file `args[0]`: mode `args[1]`, offset `args[2]`, length `args[3]`.
    /// Attributes.
    Allocate = 23,
    /// Next data (`args[2]` 0) or hole (1) of file `args[0]` at or after `args[1]`. Result:
    /// its offset.
    Seek = 24,
    /// The file system of node `args[0]`: `args` of the answer are block size, blocks, free blocks,
    /// blocks available to users, inodes, free inodes.
    FileSystem = 25,
    /// Copies the current contents of file `args[0]` for execution. Result: the number of the copy,
    /// for [`crate::call::Operation::Copy`]; `args[0]` of the answer is its length, bytes. Unless
    /// the file changes, the result is the same copy.
    Copy = 26,
    /// Reads an extended attribute of node `args[0]`, a regular file or directory, into the data.
    /// The data contains its name of `args[1]` bytes. Result: the length of the value. Only `user.`
    /// attributes are supported, also by the next three operations.
    GetExtended = 27,
    /// Sets an extended attribute to the value of `args[2]` bytes that follows the name in the
    /// data; flags [`SET_CREATE`] and [`SET_REPLACE`] are in `args[3]`.
    SetExtended = 28,
    /// Reads the names of the extended attributes of node `args[0]`, each with a NUL, into the
    /// data. Result: their length.
    ListExtended = 29,
    /// Removes an extended attribute, with arguments as for [`Operation::GetExtended`].
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
    /// Unused.
    pub reserved: u32,
    /// Arguments.
    pub args: [u64; 6],
}

/// Attributes of a node, as in `statx(2)`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeAttributes {
    /// The node.
    pub node: u64,
    /// Inode number on the host.
    pub ino: u64,
    /// Length, bytes.
    pub size: u64,
    /// Space in use, in units of 512 bytes.
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
    /// Unused.
    pub reserved: u32,
    /// Seconds of last access, last change of the contents, last change of the inode,
    /// creation.
    pub seconds: [i64; 4],
}

/// An answer.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Answer {
    /// The result: not negative, or a negated Linux error number.
    pub result: i64,
    /// Further results.
    pub args: [u64; 6],
    /// See [`Operation`].
    pub attributes: NodeAttributes,
}

/// A slot for one request.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Slot {
    /// [`IDLE`], [`SUBMITTED`] or [`ANSWERED`].
    pub state: AtomicU32,
    /// Unused.
    pub reserved: u32,
    /// The request.
    pub request: Request,
    /// The answer.
    pub answer: Answer,
    /// Unused.
    pub padding: [u64; 480],
    /// Data in either direction.
    pub data: [u8; VOLUME_DATA],
}

/// The channel of all volumes of a VM.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Channel {
    /// 1 while the server sleeps and wants a notification.
    pub server_waits: AtomicU32,
    /// 1 while the guest wants an interrupt for answers to tasks.
    pub guest_waits: AtomicU32,
    /// The slots.
    pub slots: [Slot; VOLUME_SLOTS],
}

const _: () = assert!(core::mem::size_of::<Channel>().is_multiple_of(4096));
