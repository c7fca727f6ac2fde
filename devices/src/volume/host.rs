//! System calls on the host's files: each on a descriptor and at most one path component,
//! which is never followed if it is a symbolic link.

use hartline_abi::volume::NodeAttributes;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// A Linux error number (those of x86-64 and of riscv64 are the same).
pub type Errno = i32;

/// Longest target of a symbolic link, with a NUL.
pub const PATH_MAX: usize = 4096;

fn last_error() -> Errno {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

fn check(result: i32) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

fn check_size(result: isize) -> Result<u64, Errno> {
    u64::try_from(result).map_err(|_| last_error())
}

/// A result as answers have it.
pub fn number(result: Result<u64, Errno>) -> i64 {
    match result {
        Ok(value) => i64::try_from(value).unwrap_or(i64::MAX),
        Err(errno) => -i64::from(errno),
    }
}

fn check_descriptor(result: libc::c_long) -> Result<OwnedFd, Errno> {
    match i32::try_from(result) {
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(last_error()),
    }
}

/// Where this process's descriptors are files (proc(5)).
const DESCRIPTORS: &str = "/proc/self/fd";

/// That directory, opened.
static DIRECTORY: OnceLock<OwnedFd> = OnceLock::new();

/// Uses this directory, `/proc/self/fd` of this process, instead of its path: for processes
/// that have no paths. Only before the first volume is served.
pub fn use_descriptors(directory: OwnedFd) {
    // One that is there is the same.
    let _ = DIRECTORY.set(directory);
}

/// The directory with this process's descriptors.
fn descriptors() -> Result<BorrowedFd<'static>, Errno> {
    if let Some(directory) = DIRECTORY.get() {
        return Ok(directory.as_fd());
    }
    let path = CString::new(DESCRIPTORS).unwrap_or_default();
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a valid path.
    let directory = check_descriptor(unsafe { libc::open(path.as_ptr(), flags) }.into())?;
    Ok(DIRECTORY.get_or_init(|| directory).as_fd())
}

/// The name of a descriptor in [`descriptors`]. It leads to that very file, whatever names it
/// has, so that nothing is resolved.
fn descriptor_name(fd: BorrowedFd<'_>) -> CString {
    CString::new(fd.as_raw_fd().to_string()).unwrap_or_default()
}

/// The path of that name, for calls that take no directory.
fn descriptor_path(fd: BorrowedFd<'_>) -> CString {
    CString::new(format!("{DESCRIPTORS}/{}", fd.as_raw_fd())).unwrap_or_default()
}

/// Finds `name`, a single component, in a directory, without following it.
pub fn find(directory: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    open_beneath(directory, name, libc::O_PATH | libc::O_NOFOLLOW, 0)
}

/// Makes a regular file and opens it for reading and writing.
pub fn create(directory: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_RDWR;
    open_beneath(directory, name, flags, mode)
}

/// Opens a directory, a single component in another one, for reading.
pub fn open_directory(directory: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    open_beneath(directory, name, flags, 0)
}

/// Opens the directory that a directory is in.
pub fn parent(directory: BorrowedFd<'_>, flags: i32) -> Result<OwnedFd, Errno> {
    let resolve = libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_NO_SYMLINKS;
    open_resolved(directory, c"..", flags | libc::O_DIRECTORY, 0, resolve)
}

fn open_beneath(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: i32,
    mode: u32,
) -> Result<OwnedFd, Errno> {
    let resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_NO_SYMLINKS;
    open_resolved(directory, name, flags, mode, resolve)
}

fn open_resolved(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: i32,
    mode: u32,
    resolve: u64,
) -> Result<OwnedFd, Errno> {
    // SAFETY: all zeros are a valid structure.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.mode = u64::from(mode);
    how.resolve = resolve;
    // SAFETY: a valid path and structure.
    let result = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            directory.as_raw_fd(),
            name.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    check_descriptor(result)
}

/// Opens the file of an `O_PATH` descriptor anew, with other flags.
pub fn reopen(fd: BorrowedFd<'_>, flags: i32) -> Result<OwnedFd, Errno> {
    let (directory, name) = (descriptors()?.as_raw_fd(), descriptor_name(fd));
    // SAFETY: a valid path.
    let result = unsafe { libc::openat(directory, name.as_ptr(), flags | libc::O_CLOEXEC) };
    check_descriptor(result.into())
}

/// A regular file without a name.
pub fn create_unnamed(directory: BorrowedFd<'_>, mode: u32) -> Result<OwnedFd, Errno> {
    let (descriptors, name) = (descriptors()?.as_raw_fd(), descriptor_name(directory));
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: a valid path.
    let result = unsafe { libc::openat(descriptors, name.as_ptr(), flags, mode) };
    check_descriptor(result.into())
}

/// Makes a directory.
pub fn make_directory(directory: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<(), Errno> {
    // SAFETY: a valid path; mkdirat does not follow what has the name.
    check(unsafe { libc::mkdirat(directory.as_raw_fd(), name.as_ptr(), mode) })
}

/// Makes a symbolic link.
pub fn symbolic_link(directory: BorrowedFd<'_>, name: &CStr, target: &CStr) -> Result<(), Errno> {
    // SAFETY: valid paths.
    check(unsafe { libc::symlinkat(target.as_ptr(), directory.as_raw_fd(), name.as_ptr()) })
}

/// Gives a file a further name.
pub fn link(fd: BorrowedFd<'_>, directory: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let (descriptors, own) = (descriptors()?.as_raw_fd(), descriptor_name(fd));
    // SAFETY: valid paths; the first leads to the file of `fd` itself.
    check(unsafe {
        libc::linkat(
            descriptors,
            own.as_ptr(),
            directory.as_raw_fd(),
            name.as_ptr(),
            libc::AT_SYMLINK_FOLLOW,
        )
    })
}

/// Removes a name; `flags` is 0 or `AT_REMOVEDIR`.
pub fn unlink(directory: BorrowedFd<'_>, name: &CStr, flags: i32) -> Result<(), Errno> {
    // SAFETY: a valid path.
    check(unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), flags) })
}

/// Moves a name. The C library's `renameat2` makes another system call if `flags` is 0, which the
/// filter of a jailed VMM refuses.
pub fn rename(
    (from, old): (BorrowedFd<'_>, &CStr),
    (to, new): (BorrowedFd<'_>, &CStr),
    flags: u32,
) -> Result<(), Errno> {
    // SAFETY: valid paths.
    let result = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            from.as_raw_fd(),
            old.as_ptr(),
            to.as_raw_fd(),
            new.as_ptr(),
            flags,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Attributes, without the node; and the device of the file system.
pub fn attributes(fd: BorrowedFd<'_>) -> Result<(NodeAttributes, u64), Errno> {
    let mut buffer = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: a valid path and buffer.
    check(unsafe {
        libc::statx(
            fd.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW,
            libc::STATX_BASIC_STATS | libc::STATX_BTIME,
            buffer.as_mut_ptr(),
        )
    })?;
    // SAFETY: zeroed before and filled now.
    let status = unsafe { buffer.assume_init() };
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
        rdev: libc::makedev(status.stx_rdev_major, status.stx_rdev_minor),
        mode: u32::from(status.stx_mode),
        nlink: status.stx_nlink,
        uid: status.stx_uid,
        gid: status.stx_gid,
        block_size: status.stx_blksize,
        nanoseconds: times.map(|time| time.tv_nsec),
        reserved: 0,
        seconds: times.map(|time| time.tv_sec),
    };
    let device = libc::makedev(status.stx_dev_major, status.stx_dev_minor);
    Ok((attributes, device))
}

/// Sets the permissions.
pub fn set_mode(fd: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    let (descriptors, name) = (descriptors()?.as_raw_fd(), descriptor_name(fd));
    // SAFETY: a valid path.
    check(unsafe { libc::fchmodat(descriptors, name.as_ptr(), mode, 0) })
}

/// Sets owner and group; `u32::MAX` keeps one.
pub fn set_owner(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> Result<(), Errno> {
    // SAFETY: a valid path.
    check(unsafe { libc::fchownat(fd.as_raw_fd(), c"".as_ptr(), uid, gid, libc::AT_EMPTY_PATH) })
}

/// Sets access and modification time: seconds and nanoseconds, or `UTIME_NOW` and its like.
pub fn set_times(fd: BorrowedFd<'_>, times: [(i64, i64); 2]) -> Result<(), Errno> {
    let times = times.map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec });
    // SAFETY: a valid path and two times.
    check(unsafe {
        libc::utimensat(
            fd.as_raw_fd(),
            c"".as_ptr(),
            times.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    })
}

/// Sets the length.
pub fn truncate(fd: BorrowedFd<'_>, size: i64) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), size) })
}

/// Target of a symbolic link.
pub fn read_link(fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let mut target = vec![0_u8; PATH_MAX];
    // SAFETY: a valid path and buffer.
    let length = check_size(unsafe {
        libc::readlinkat(
            fd.as_raw_fd(),
            c"".as_ptr(),
            target.as_mut_ptr().cast(),
            target.len(),
        )
    })?;
    target.truncate(length as usize);
    Ok(target)
}

/// Directory entries from a cookie on, as `struct linux_dirent64`.
pub fn read_directory(fd: BorrowedFd<'_>, cookie: i64, length: usize) -> Result<Vec<u8>, Errno> {
    // SAFETY: no memory is involved.
    if unsafe { libc::lseek(fd.as_raw_fd(), cookie, libc::SEEK_SET) } < 0 {
        return Err(last_error());
    }
    let mut entries = vec![0_u8; length];
    // SAFETY: a valid buffer of that length.
    let count = unsafe {
        libc::syscall(
            libc::SYS_getdents64,
            fd.as_raw_fd(),
            entries.as_mut_ptr(),
            length,
        )
    };
    entries.truncate(check_size(count as isize)? as usize);
    Ok(entries)
}

/// Reads into memory that others may change.
///
/// # Safety
/// `to` is writable for `length` bytes.
pub unsafe fn read(
    fd: BorrowedFd<'_>,
    offset: i64,
    to: NonNull<u8>,
    length: usize,
) -> Result<u64, Errno> {
    // SAFETY: the caller's promise.
    check_size(unsafe { libc::pread(fd.as_raw_fd(), to.as_ptr().cast(), length, offset) })
}

/// Reads as [`read`] if storage need not be waited for. Result: bytes read; none if it has to be,
/// or something is wrong, which who waits finds out.
///
/// # Safety
/// As [`read`].
pub unsafe fn read_now(
    fd: BorrowedFd<'_>,
    offset: i64,
    to: NonNull<u8>,
    length: usize,
) -> Option<u64> {
    let mut done = 0;
    loop {
        let part = libc::iovec {
            iov_base: to.as_ptr().wrapping_add(done).cast(),
            iov_len: length - done,
        };
        let at = offset.checked_add(done as i64)?;
        // SAFETY: the caller's promise; the rest of the memory.
        let read =
            unsafe { libc::preadv2(fd.as_raw_fd(), &raw const part, 1, at, libc::RWF_NOWAIT) };
        done += usize::try_from(read).ok()?;
        // Fewer than asked for may be there though the file is longer.
        if read == 0 || done == length {
            return Some(done as u64);
        }
    }
}

/// Writes from memory that others may change.
///
/// # Safety
/// `from` is readable for `length` bytes.
pub unsafe fn write(
    fd: BorrowedFd<'_>,
    offset: i64,
    from: NonNull<u8>,
    length: usize,
) -> Result<u64, Errno> {
    // SAFETY: the caller's promise.
    check_size(unsafe { libc::pwrite(fd.as_raw_fd(), from.as_ptr().cast(), length, offset) })
}

/// Writes at the end. Result: bytes written, and the position after them.
///
/// # Safety
/// As [`write()`].
pub unsafe fn append(
    fd: BorrowedFd<'_>,
    from: NonNull<u8>,
    length: usize,
) -> Result<(u64, u64), Errno> {
    let vector = libc::iovec {
        iov_base: from.as_ptr().cast(),
        iov_len: length,
    };
    // SAFETY: one valid vector. An offset of −1 is the descriptor's position, which moves.
    let count = check_size(unsafe {
        libc::pwritev2(fd.as_raw_fd(), &raw const vector, 1, -1, libc::RWF_APPEND)
    })?;
    Ok((count, seek(fd, 0, libc::SEEK_CUR)?))
}

/// `lseek`.
pub fn seek(fd: BorrowedFd<'_>, offset: i64, whence: i32) -> Result<u64, Errno> {
    // SAFETY: no memory is involved.
    let position = unsafe { libc::lseek(fd.as_raw_fd(), offset, whence) };
    u64::try_from(position).map_err(|_| last_error())
}

/// Writes to storage.
pub fn sync(fd: BorrowedFd<'_>, only_data: bool) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    check(unsafe {
        match only_data {
            true => libc::fdatasync(fd.as_raw_fd()),
            false => libc::fsync(fd.as_raw_fd()),
        }
    })
}

/// `fallocate`.
pub fn allocate(fd: BorrowedFd<'_>, mode: i32, offset: i64, length: i64) -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::fallocate(fd.as_raw_fd(), mode, offset, length) })
}

/// Block size, blocks, free blocks, free blocks for users, inodes, free inodes.
pub fn file_system(fd: BorrowedFd<'_>) -> Result<[u64; 6], Errno> {
    let mut buffer = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a valid buffer.
    check(unsafe { libc::fstatfs(fd.as_raw_fd(), buffer.as_mut_ptr()) })?;
    // SAFETY: zeroed before and filled now.
    let s = unsafe { buffer.assume_init() };
    Ok([
        s.f_bsize.unsigned_abs(),
        s.f_blocks,
        s.f_bfree,
        s.f_bavail,
        s.f_files,
        s.f_ffree,
    ])
}

/// Reads a file from its start, up to `length` bytes.
pub fn read_all(fd: BorrowedFd<'_>, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| libc::ENOMEM)?;
    bytes.resize(length, 0);
    let mut done = 0;
    while done < length {
        let rest = NonNull::from(&mut bytes[done..]).cast();
        // SAFETY: the rest of the bytes.
        match unsafe { read(fd, done as i64, rest, length - done)? } {
            0 => break,
            count => done += count as usize,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

/// A memory file with these contents that nobody can change any more.
pub fn sealed_memory_file(bytes: &[u8]) -> Result<File, Errno> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a valid name.
    let fd = unsafe { libc::memfd_create(c"hartline-copy".as_ptr(), flags) };
    let mut file = File::from(check_descriptor(fd.into())?);
    file.write_all(bytes)
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
    // SAFETY: no memory is involved.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(file)
}

/// Namespace of the extended attributes that a guest may see.
pub const USER_NAMESPACE: &[u8] = b"user.";
/// Longest value of an extended attribute, and list of names, bytes.
pub const XATTR_SIZE_MAX: u64 = 64 << 10;

/// An extended attribute.
pub fn extended(fd: BorrowedFd<'_>, name: &CStr) -> Result<Vec<u8>, Errno> {
    let path = descriptor_path(fd);
    let mut value = vec![0_u8; XATTR_SIZE_MAX as usize];
    // SAFETY: a valid path, name and buffer.
    let length = check_size(unsafe {
        libc::getxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    })?;
    value.truncate(length as usize);
    Ok(value)
}

/// Sets an extended attribute; `flags` as in `setxattr`.
pub fn set_extended(
    fd: BorrowedFd<'_>,
    name: &CStr,
    value: &[u8],
    flags: i32,
) -> Result<(), Errno> {
    let path = descriptor_path(fd);
    // SAFETY: a valid path, name and value.
    check(unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            flags,
        )
    })
}

/// Removes an extended attribute.
pub fn remove_extended(fd: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let path = descriptor_path(fd);
    // SAFETY: a valid path and name.
    check(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) })
}

/// Names of the extended attributes in [`USER_NAMESPACE`], each with its NUL.
pub fn list_extended(fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let path = descriptor_path(fd);
    let mut names = vec![0_u8; XATTR_SIZE_MAX as usize];
    // SAFETY: a valid path and buffer.
    let result = unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    let length = match check_size(result) {
        Err(libc::EOPNOTSUPP) => 0,
        length => length?,
    };
    names.truncate(length as usize);
    let own = names.split_inclusive(|&byte| byte == 0);
    Ok(own
        .filter(|name| name.starts_with(USER_NAMESPACE))
        .flatten()
        .copied()
        .collect())
}
