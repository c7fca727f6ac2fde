//! System calls on the host's files: each on a descriptor and at most one path component. No call
//! follows a symbolic link in that component.

use hartline_abi::volume::NodeAttributes;
use rustix::fs::{
    self, AtFlags, FallocateFlags, MemfdFlags, Mode, OFlags, RenameFlags, ResolveFlags, SealFlags,
    SeekFrom, Statx, StatxFlags, Timespec, Timestamps, XattrFlags,
};
use rustix::process::{Gid, Uid};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use vm_memory::VolatileSlice;

/// A Linux error number. The numbers of x86-64 and of riscv64 are the same.
pub type Errno = i32;

/// Longest target of a symbolic link, with a NUL.
pub const PATH_MAX: usize = 4096;

fn errno(error: rustix::io::Errno) -> Errno {
    error.raw_os_error()
}

fn last_error() -> Errno {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

fn check_size(result: isize) -> Result<u64, Errno> {
    u64::try_from(result).map_err(|_| last_error())
}

/// A result in the form of answers: negative numbers are errors.
pub fn number(result: Result<u64, Errno>) -> i64 {
    match result {
        Ok(value) => i64::try_from(value).unwrap_or(i64::MAX),
        Err(errno) => -i64::from(errno),
    }
}

/// The directory of this process's descriptors (proc(5)).
const DESCRIPTORS: &str = "/proc/self/fd";

/// [`DESCRIPTORS`], opened.
static DIRECTORY: OnceLock<OwnedFd> = OnceLock::new();

/// Uses an open `/proc/self/fd` of this process instead of its path, in processes without paths.
/// The call must precede the first request.
pub fn use_descriptors(directory: OwnedFd) {
    // An earlier one is the same directory.
    let _ = DIRECTORY.set(directory);
}

/// The directory of this process's descriptors.
fn descriptors() -> Result<BorrowedFd<'static>, Errno> {
    if let Some(directory) = DIRECTORY.get() {
        return Ok(directory.as_fd());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = fs::open(DESCRIPTORS, flags, Mode::empty()).map_err(errno)?;
    Ok(DIRECTORY.get_or_init(|| directory).as_fd())
}

/// The name of a descriptor in [`descriptors`]. It leads to the descriptor's file without resolving
/// a name of the file.
fn descriptor_name(fd: BorrowedFd<'_>) -> CString {
    CString::new(fd.as_raw_fd().to_string()).unwrap_or_default()
}

/// The path of a descriptor, for calls that take no directory.
fn descriptor_path(fd: BorrowedFd<'_>) -> CString {
    CString::new(format!("{DESCRIPTORS}/{}", fd.as_raw_fd())).unwrap_or_default()
}

/// Opens `name`, a single component in a directory, with `O_PATH`.
pub fn find(directory: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    open_beneath(directory, name, OFlags::PATH | OFlags::NOFOLLOW, 0)
}

/// Creates a regular file and opens it for reading and writing.
pub fn create(directory: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR;
    open_beneath(directory, name, flags, mode)
}

/// Opens a directory, a single component in another one, for reading.
pub fn open_directory(directory: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    open_beneath(directory, name, flags, 0)
}

/// Opens the parent of a directory.
pub fn parent(directory: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    open_resolved(directory, c"..", flags | OFlags::DIRECTORY, 0, resolve)
}

fn open_beneath(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: OFlags,
    mode: u32,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    open_resolved(directory, name, flags, mode, resolve)
}

fn open_resolved(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: OFlags,
    mode: u32,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let (flags, mode) = (flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode));
    fs::openat2(directory, name, flags, mode, resolve).map_err(errno)
}

/// Opens the file of an `O_PATH` descriptor with other flags.
pub fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    fs::openat(descriptors()?, descriptor_name(fd), flags, Mode::empty()).map_err(errno)
}

/// Creates a regular file without a name.
pub fn create_unnamed(directory: BorrowedFd<'_>, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode);
    fs::openat(descriptors()?, descriptor_name(directory), flags, mode).map_err(errno)
}

/// Creates a directory.
pub fn make_directory(directory: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<(), Errno> {
    fs::mkdirat(directory, name, Mode::from_raw_mode(mode)).map_err(errno)
}

/// Creates a symbolic link.
pub fn symbolic_link(directory: BorrowedFd<'_>, name: &CStr, target: &CStr) -> Result<(), Errno> {
    fs::symlinkat(target, directory, name).map_err(errno)
}

/// Adds a name to a file.
pub fn link(fd: BorrowedFd<'_>, directory: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    // The link that is followed is the descriptor's, which leads to the file of `fd` itself.
    let flags = AtFlags::SYMLINK_FOLLOW;
    fs::linkat(descriptors()?, descriptor_name(fd), directory, name, flags).map_err(errno)
}

/// Removes a name. `flags` is empty or `AT_REMOVEDIR`.
pub fn unlink(directory: BorrowedFd<'_>, name: &CStr, flags: AtFlags) -> Result<(), Errno> {
    fs::unlinkat(directory, name, flags).map_err(errno)
}

/// Moves a name. The call is `renameat2` also without flags: the seccomp filter of a jailed VMM
/// refuses the system call that the C library's `renameat2` makes then.
pub fn rename(
    (from, old): (BorrowedFd<'_>, &CStr),
    (to, new): (BorrowedFd<'_>, &CStr),
    flags: RenameFlags,
) -> Result<(), Errno> {
    fs::renameat_with(from, old, to, new, flags).map_err(errno)
}

/// Attributes without the node number, and the device number of the file system.
pub fn attributes(fd: BorrowedFd<'_>) -> Result<(NodeAttributes, u64), Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
    let fields = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let status: Statx = fs::statx(fd, c"", flags, fields).map_err(errno)?;
    let times = [
        status.stx_atime,
        status.stx_mtime,
        status.stx_ctime,
        status.stx_btime,
    ];
    let attributes = NodeAttributes {
        node: 0,
        ino: status.stx_ino,
        size: status.stx_size,
        blocks: status.stx_blocks,
        rdev: fs::makedev(status.stx_rdev_major, status.stx_rdev_minor),
        mode: u32::from(status.stx_mode),
        nlink: status.stx_nlink,
        uid: status.stx_uid,
        gid: status.stx_gid,
        block_size: status.stx_blksize,
        nanoseconds: times.map(|time| time.tv_nsec),
        reserved: 0,
        seconds: times.map(|time| time.tv_sec),
    };
    let device = fs::makedev(status.stx_dev_major, status.stx_dev_minor);
    Ok((attributes, device))
}

/// Sets the permissions.
pub fn set_mode(fd: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode);
    fs::chmodat(descriptors()?, descriptor_name(fd), mode, AtFlags::empty()).map_err(errno)
}

/// Sets owner and group. `u32::MAX` keeps one.
pub fn set_owner(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> Result<(), Errno> {
    let uid = (uid != u32::MAX).then(|| Uid::from_raw(uid));
    let gid = (gid != u32::MAX).then(|| Gid::from_raw(gid));
    fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH).map_err(errno)
}

/// Sets access and modification time: seconds, and nanoseconds or `UTIME_NOW` and `UTIME_OMIT`.
pub fn set_times(fd: BorrowedFd<'_>, times: [(i64, i64); 2]) -> Result<(), Errno> {
    let [last_access, last_modification] =
        times.map(|(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec });
    let times = Timestamps {
        last_access,
        last_modification,
    };
    fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH).map_err(errno)
}

/// Sets the length.
pub fn truncate(fd: BorrowedFd<'_>, size: u64) -> Result<(), Errno> {
    fs::ftruncate(fd, size).map_err(errno)
}

/// Target of a symbolic link.
pub fn read_link(fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let mut target = vec![0_u8; PATH_MAX];
    let length = fs::readlinkat_raw(fd, c"", &mut target[..]).map_err(errno)?;
    target.truncate(length);
    Ok(target)
}

/// Directory entries from a cookie on, as `struct linux_dirent64`.
pub fn read_directory(fd: BorrowedFd<'_>, cookie: u64, length: usize) -> Result<Vec<u8>, Errno> {
    seek(fd, SeekFrom::Start(cookie))?;
    let mut entries = vec![0_u8; length];
    // SAFETY: the kernel writes at most `length` bytes, which `entries` has. `rustix` has no call
    // that returns the entries as bytes.
    let count = unsafe {
        libc::syscall(
            libc::SYS_getdents64,
            fd.as_raw_fd(),
            entries.as_mut_ptr(),
            length,
        )
    };
    entries.truncate(usize::try_from(count).map_err(|_| last_error())?);
    Ok(entries)
}

/// Reads into memory that the guest may change.
pub fn read(fd: BorrowedFd<'_>, offset: u64, to: &VolatileSlice<'_>) -> Result<u64, Errno> {
    let (offset, guard) = (offset.cast_signed(), to.ptr_guard_mut());
    let (at, length) = (guard.as_ptr().cast(), guard.len());
    // SAFETY: the kernel writes at most the length of the slice, which is mapped for writing as long
    // as `to`. The guest may write there meanwhile: no reference to these bytes exists.
    check_size(unsafe { libc::pread(fd.as_raw_fd(), at, length, offset) })
}

/// Reads as [`read`] if the read need not wait for storage. Returns the number of bytes. `None` if
/// the read must wait or fails: a later [`read`] reports the error.
pub fn try_read(fd: BorrowedFd<'_>, offset: u64, to: VolatileSlice<'_>) -> Option<u64> {
    let (length, mut rest) = (to.len(), to);
    loop {
        let done = length - rest.len();
        let guard = rest.ptr_guard_mut();
        let part = libc::iovec {
            iov_base: guard.as_ptr().cast(),
            iov_len: guard.len(),
        };
        let at = i64::try_from(offset)
            .ok()?
            .checked_add_unsigned(done as u64)?;
        // SAFETY: one vector, the rest of the slice, which is mapped for writing as long as `to`.
        // The guest may write there meanwhile: no reference to these bytes exists.
        let read =
            unsafe { libc::preadv2(fd.as_raw_fd(), &raw const part, 1, at, libc::RWF_NOWAIT) };
        rest = rest.offset(usize::try_from(read).ok()?).ok()?;
        // A short read does not mean the end of the file: the rest may not be in the page cache.
        if read == 0 || rest.is_empty() {
            return Some((length - rest.len()) as u64);
        }
    }
}

/// Writes from memory that the guest may change.
pub fn write(fd: BorrowedFd<'_>, offset: u64, from: &VolatileSlice<'_>) -> Result<u64, Errno> {
    let (offset, guard) = (offset.cast_signed(), from.ptr_guard());
    let (at, length) = (guard.as_ptr().cast(), guard.len());
    // SAFETY: the kernel reads the slice, which is mapped as long as `from`. The guest may change
    // the bytes meanwhile; the kernel copies each once.
    check_size(unsafe { libc::pwrite(fd.as_raw_fd(), at, length, offset) })
}

/// Writes at the end. Returns the number of bytes, and the position after them.
pub fn append(fd: BorrowedFd<'_>, from: &VolatileSlice<'_>) -> Result<(u64, u64), Errno> {
    let guard = from.ptr_guard();
    let vector = libc::iovec {
        iov_base: guard.as_ptr().cast_mut().cast(),
        iov_len: guard.len(),
    };
    // SAFETY: one vector, the slice, which is mapped as long as `from` and which the kernel only
    // reads. The guest may change the bytes meanwhile; the kernel copies each once. An offset of −1
    // means the descriptor's position, which moves.
    let count = check_size(unsafe {
        libc::pwritev2(fd.as_raw_fd(), &raw const vector, 1, -1, libc::RWF_APPEND)
    })?;
    Ok((count, seek(fd, SeekFrom::Current(0))?))
}

/// `lseek`.
pub fn seek(fd: BorrowedFd<'_>, position: SeekFrom) -> Result<u64, Errno> {
    fs::seek(fd, position).map_err(errno)
}

/// Writes all data of a file to storage, and its attributes unless `only_data`.
pub fn sync(fd: BorrowedFd<'_>, only_data: bool) -> Result<(), Errno> {
    let result = match only_data {
        true => fs::fdatasync(fd),
        false => fs::fsync(fd),
    };
    result.map_err(errno)
}

/// `fallocate`.
pub fn allocate(
    fd: BorrowedFd<'_>,
    mode: FallocateFlags,
    offset: u64,
    length: u64,
) -> Result<(), Errno> {
    fs::fallocate(fd, mode, offset, length).map_err(errno)
}

/// Block size, blocks, free blocks, free blocks for users, inodes, free inodes.
pub fn file_system(fd: BorrowedFd<'_>) -> Result<[u64; 6], Errno> {
    let status = fs::fstatfs(fd).map_err(errno)?;
    Ok([
        status.f_bsize.unsigned_abs(),
        status.f_blocks,
        status.f_bfree,
        status.f_bavail,
        status.f_files,
        status.f_ffree,
    ])
}

/// Reads a file from its start, up to `length` bytes.
pub fn read_all(fd: BorrowedFd<'_>, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| libc::ENOMEM)?;
    bytes.resize(length, 0);
    let mut done = 0;
    while done < length {
        match rustix::io::pread(fd, &mut bytes[done..], done as u64).map_err(errno)? {
            0 => break,
            count => done += count,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// A memory file with these contents that is sealed against all changes.
pub fn sealed_memory_file(bytes: &[u8]) -> Result<File, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(fs::memfd_create(c"hartline-copy", flags).map_err(errno)?);
    file.write_all(bytes)
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    fs::fcntl_add_seals(&file, seals).map_err(errno)?;
    Ok(file)
}

/// Namespace of the extended attributes that a guest may see.
pub const USER_NAMESPACE: &[u8] = b"user.";
/// Longest value of an extended attribute, and longest list of names, bytes.
pub const XATTR_SIZE_MAX: usize = 64 << 10;

/// The value of an extended attribute.
pub fn extended(fd: BorrowedFd<'_>, name: &CStr) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0_u8; XATTR_SIZE_MAX];
    let length = fs::getxattr(descriptor_path(fd), name, &mut value[..]).map_err(errno)?;
    value.truncate(length);
    Ok(value)
}

/// Sets an extended attribute. `flags` as in `setxattr`.
pub fn set_extended(
    fd: BorrowedFd<'_>,
    name: &CStr,
    value: &[u8],
    flags: XattrFlags,
) -> Result<(), Errno> {
    fs::setxattr(descriptor_path(fd), name, value, flags).map_err(errno)
}

/// Removes an extended attribute.
pub fn remove_extended(fd: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    fs::removexattr(descriptor_path(fd), name).map_err(errno)
}

/// Names of the extended attributes in [`USER_NAMESPACE`], each with its NUL.
pub fn list_extended(fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let mut names = vec![0_u8; XATTR_SIZE_MAX];
    let length = match fs::listxattr(descriptor_path(fd), &mut names[..]) {
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        length => length.map_err(errno)?,
    };
    names.truncate(length);
    let own = names.split_inclusive(|&byte| byte == 0);
    Ok(own
        .filter(|name| name.starts_with(USER_NAMESPACE))
        .flatten()
        .copied()
        .collect())
}
