//! Calls that take paths: opening, creating, linking, removing and renaming, and the
//! working directory.

use super::Entry;
use super::files::{inode_at, read_path};
use super::leases::{WAITS_FOR_LEASE, await_lease};
use crate::convert::{low_i32, low_u32, sign_extended, to_usize};
use crate::file::open::{OtherEnd, Request};
use crate::fs::filesystem::NewInode;
use crate::fs::inode::{Kind, MAY_EXEC};
use crate::fs::names::Rename;
use crate::fs::pipe::OPENED;
use crate::fs::types::Ino;
use crate::fs::types::VALID_OPEN_FLAGS;
use crate::fs::walk::{Last, Options, Resolved};
use crate::kernel::Kernel;
use crate::kernel::task::Retry;
use crate::mm::user;
use crate::wait::Registration;
use crate::wait::time::NEVER;
use alloc::vec::Vec;
use hartline_linux::capability::{CAP_MKNOD, CAP_SYS_CHROOT};
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{
    __O_TMPFILE, AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW,
    O_CREAT,
};
use hartline_linux::fs::{RENAME_EXCHANGE, RENAME_NOREPLACE};
use hartline_linux::limits::PATH_MAX;
use hartline_linux::openat2::{
    OpenHow, RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS,
    RESOLVE_NO_XDEV,
};
use hartline_linux::stat::{
    S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK, S_ISVTX,
};
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::getcwd, getcwd),
    (nr::mknodat, mknodat),
    (nr::mkdirat, mkdirat),
    (nr::unlinkat, unlinkat),
    (nr::symlinkat, symlinkat),
    (nr::linkat, linkat),
    (nr::chdir, chdir),
    (nr::fchdir, fchdir),
    (nr::chroot, chroot),
    (nr::openat, openat),
    (nr::readlinkat, readlinkat),
    (nr::name_to_handle_at, name_to_handle_at),
    (nr::renameat2, renameat2),
    (nr::openat2, openat2),
];

fn open(kernel: &mut Kernel, request: Request<'_>) -> Result<u64, Errno> {
    // A FIFO is open while the call waits for the other end, so that the other side sees it.
    let (fd, opens) = match kernel.task().retry {
        Some(Retry { progress, .. }) if progress != WAITS_FOR_LEASE => {
            (low_u32(progress), (progress >> 32) as u32)
        }
        _ => {
            let (mut io, process) = kernel.io();
            let fd = match io.open(process, request) {
                Err(Errno::ERESTARTSYS) => {
                    let leased = io.vfs.leased.take().ok_or(Errno::EAGAIN)?;
                    return Err(await_lease(kernel, leased));
                }
                fd => fd?,
            };
            match io.vfs.other_end(process, fd) {
                Some(OtherEnd { open: false, opens }) => (fd, opens),
                _ => return Ok(u64::from(fd)),
            }
        }
    };
    let (vfs, process) = kernel.file_state();
    match vfs.other_end(process, fd) {
        Some(end) if !end.open && end.opens == opens => {}
        _ => return Ok(u64::from(fd)),
    }
    let ino = process.fds.get(fd)?.ino;
    let progress = u64::from(fd) | u64::from(opens) << 32;
    let Kind::Fifo(pipe) = &kernel.vfs.fs.inode(ino)?.kind else {
        return Ok(u64::from(fd));
    };
    let registration = Registration::new(&pipe.read_waiters, OPENED);
    let error = kernel.block_at(registration, NEVER, progress);
    if error != Errno::ERESTARTSYS {
        let (mut io, process) = kernel.io();
        io.close(process, fd)?;
    }
    Err(error)
}

fn openat(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let path = read_path(kernel, a[1])?;
    let request = Request {
        dirfd: low_i32(a[0]),
        path: &path,
        flags: low_u32(a[2]),
        mode: low_u32(a[3]),
        options: Options::default(),
    };
    open(kernel, request)
}

/// Reads a `struct open_how`, whose size the program passes.
fn open_how(kernel: &mut Kernel, address: u64, size: u64) -> Result<OpenHow, Errno> {
    const KNOWN: u64 = size_of::<OpenHow>() as u64;
    if size < KNOWN {
        return Err(Errno::EINVAL);
    }
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    let more = address.checked_add(KNOWN).ok_or(Errno::EFAULT)?;
    let rest = user::slice(kernel.memory_mut(), more, size - KNOWN)?;
    if rest.to_vec().iter().any(|&byte| byte != 0) {
        return Err(Errno::E2BIG);
    }
    user::read(kernel.memory_mut(), address)
}

fn openat2(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    const RESOLVE_ALL: u64 = RESOLVE_NO_XDEV
        | RESOLVE_NO_MAGICLINKS
        | RESOLVE_NO_SYMLINKS
        | RESOLVE_BENEATH
        | RESOLVE_IN_ROOT;
    let how = open_how(kernel, a[2], a[3])?;
    let flags = u32::try_from(how.flags).map_err(|_| Errno::EINVAL)?;
    let creates = flags & (O_CREAT | __O_TMPFILE) != 0;
    let both = RESOLVE_BENEATH | RESOLVE_IN_ROOT;
    if flags & !VALID_OPEN_FLAGS != 0
        || how.mode & !0o7777 != 0
        || (how.mode != 0 && !creates)
        || how.resolve & !RESOLVE_ALL != 0
        || how.resolve & both == both
    {
        return Err(Errno::EINVAL);
    }
    let has = |bit| how.resolve & bit != 0;
    let path = read_path(kernel, a[1])?;
    let request = Request {
        dirfd: low_i32(a[0]),
        path: &path,
        flags,
        mode: low_u32(how.mode),
        options: Options {
            follow: false,
            no_symlinks: has(RESOLVE_NO_SYMLINKS),
            no_magic_links: has(RESOLVE_NO_MAGICLINKS),
            one_device: has(RESOLVE_NO_XDEV),
            beneath: has(RESOLVE_BENEATH),
            in_root: has(RESOLVE_IN_ROOT),
        },
    };
    open(kernel, request)
}

/// Resolves the path of a new directory entry; `EEXIST` if it exists.
fn resolve_new(kernel: &mut Kernel, dirfd: u64, address: u64) -> Result<Resolved, Errno> {
    let path = read_path(kernel, address)?;
    let (vfs, process) = kernel.file_state();
    let options = Options::following(false);
    let resolved = vfs.resolve(process, low_i32(dirfd), &path, options)?;
    match resolved.target {
        Some(_) => Err(Errno::EEXIST),
        None => Ok(resolved),
    }
}

/// As [`resolve_new`], for an entry that is not a directory: a trailing `/` is refused.
fn resolve_new_file(kernel: &mut Kernel, dirfd: u64, address: u64) -> Result<Resolved, Errno> {
    let resolved = resolve_new(kernel, dirfd, address)?;
    match resolved.trailing_slash {
        true => Err(Errno::ENOENT),
        false => Ok(resolved),
    }
}

fn create(kernel: &mut Kernel, resolved: &Resolved, new: NewInode) -> Result<Ino, Errno> {
    let dentry = resolved.dentry(Errno::EEXIST)?;
    let (vfs, process) = kernel.file_state();
    vfs.fs.create(dentry, new, &process.cred)
}

fn mkdirat(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let resolved = resolve_new(kernel, a[0], a[1])?;
    let permissions = low_u32(a[2]) & (0o777 | S_ISVTX) & !kernel.process().files.umask;
    create(kernel, &resolved, NewInode::directory(permissions))?;
    Ok(0)
}

fn mknodat(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let mode = low_u32(a[2]);
    let permissions = mode & 0o7777 & !kernel.process().files.umask;
    let kind = mode & S_IFMT;
    let new = match kind {
        0 | S_IFREG => NewInode::file(permissions),
        S_IFIFO => NewInode::fifo(permissions),
        S_IFSOCK => NewInode::node(kind | permissions, 0),
        S_IFCHR | S_IFBLK if kernel.process().has(CAP_MKNOD) => {
            NewInode::node(kind | permissions, u64::from(low_u32(a[3])))
        }
        S_IFCHR | S_IFBLK | S_IFDIR => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    };
    let resolved = resolve_new_file(kernel, a[0], a[1])?;
    create(kernel, &resolved, new)?;
    Ok(0)
}

fn symlinkat(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let target = read_path(kernel, a[0])?;
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    let resolved = resolve_new_file(kernel, a[1], a[2])?;
    create(kernel, &resolved, NewInode::link(&target))?;
    Ok(0)
}

fn linkat(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[4]);
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let nofollow = match flags & AT_SYMLINK_FOLLOW {
        0 => AT_SYMLINK_NOFOLLOW,
        _ => 0,
    };
    let ino = inode_at(kernel, a[0], a[1], flags & AT_EMPTY_PATH | nofollow)?;
    let resolved = resolve_new_file(kernel, a[2], a[3])?;
    let dentry = resolved.dentry(Errno::EEXIST)?;
    let (vfs, process) = kernel.file_state();
    let attributes = vfs.fs.attributes(ino, process)?;
    let device = vfs.fs.attributes(dentry.directory, process)?.device;
    if ino.1 != dentry.directory.1 || attributes.device != device {
        return Err(Errno::EXDEV);
    }
    // Only an unnamed file that was opened without O_EXCL may get its first name.
    if attributes.nlink == 0 && !vfs.fs.inode(ino)?.nameable {
        return Err(Errno::ENOENT);
    }
    vfs.fs.link(dentry, ino, &process.cred)?;
    Ok(0)
}

fn unlinkat(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[2]);
    if flags & !AT_REMOVEDIR != 0 {
        return Err(Errno::EINVAL);
    }
    let path = read_path(kernel, a[1])?;
    let (vfs, process) = kernel.file_state();
    let options = Options::following(false);
    let start = vfs.start(process, low_i32(a[0]), &path)?;
    // With a trailing slash the last component must be a directory, but a link to one is not
    // followed.
    let bare = path.iter().rposition(|&byte| byte != b'/');
    let slash = bare.is_some_and(|at| at + 1 < path.len());
    let bare = bare.map_or(path.as_slice(), |at| &path[..=at]);
    let resolved = crate::fs::walk::resolve(&mut vfs.fs, process, start, bare, options)?;
    let removes_directory = flags & AT_REMOVEDIR != 0;
    let dentry = resolved.dentry(match resolved.last {
        _ if !removes_directory => Errno::EISDIR,
        Last::Dot => Errno::EINVAL,
        Last::DotDot => Errno::ENOTEMPTY,
        _ => Errno::EBUSY,
    })?;
    let ino = resolved.existing()?;
    let is_directory = vfs.fs.attributes(ino, process)?.is_directory();
    if !is_directory && (removes_directory || slash) {
        return Err(Errno::ENOTDIR);
    }
    match removes_directory {
        true => vfs.fs.remove_directory(dentry, ino, &process.cred)?,
        false => vfs.fs.unlink(dentry, ino, &process.cred)?,
    }
    Ok(0)
}

fn renameat2(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let how = match u64::from(low_u32(a[4])) {
        0 => Rename::Replace,
        RENAME_NOREPLACE => Rename::NoReplace,
        RENAME_EXCHANGE => Rename::Exchange,
        _ => return Err(Errno::EINVAL),
    };
    let (from, to) = (read_path(kernel, a[1])?, read_path(kernel, a[3])?);
    let (vfs, process) = kernel.file_state();
    let options = Options::following(false);
    let source = vfs.resolve(process, low_i32(a[0]), &from, options)?;
    let target = vfs.resolve(process, low_i32(a[2]), &to, options)?;
    if source.parent.1 != target.parent.1 {
        return Err(Errno::EXDEV);
    }
    let (old, new) = (source.dentry(Errno::EBUSY)?, target.dentry(Errno::EBUSY)?);
    let ino = source.existing()?;
    let is_directory = vfs.fs.attributes(ino, process)?.is_directory();
    let slash = source.trailing_slash || target.trailing_slash && how != Rename::Exchange;
    if slash && !is_directory {
        return Err(Errno::ENOTDIR);
    }
    vfs.fs
        .rename((old, ino), (new, target.target), how, &process.cred)?;
    Ok(0)
}

fn readlinkat(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    if low_i32(a[3]) <= 0 {
        return Err(Errno::EINVAL);
    }
    let path = read_path(kernel, a[1])?;
    let (vfs, process) = kernel.file_state();
    let ino = if path.is_empty() && low_i32(a[0]) != AT_FDCWD {
        process.fds.get(low_u32(a[0]))?.ino
    } else {
        let options = Options::following(false);
        vfs.resolve(process, low_i32(a[0]), &path, options)?
            .existing()?
    };
    let target = vfs.read_link(ino, process)?;
    let length = target.len().min(to_usize(a[3]));
    user::write_bytes(kernel.memory_mut(), a[2], &target[..length])?;
    Ok(length as u64)
}

/// Refuses to make a handle, as for a file system that cannot be exported.
fn name_to_handle_at(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    /// Longest handle, bytes (`MAX_HANDLE_SZ`).
    const MOST: u32 = 128;
    let flags = low_u32(a[4]);
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let nofollow = match flags & AT_SYMLINK_FOLLOW {
        0 => AT_SYMLINK_NOFOLLOW,
        _ => 0,
    };
    inode_at(kernel, a[0], a[1], flags & AT_EMPTY_PATH | nofollow)?;
    match user::read::<u32>(kernel.memory_mut(), a[2])? {
        0..=MOST => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

fn getcwd(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (vfs, process) = (&kernel.vfs, &kernel.process().files);
    if !process.cwd.is_at(process.root) && vfs.fs.attributes(process.cwd, process)?.nlink == 0 {
        return Err(Errno::ENOENT);
    }
    let path = vfs.fs.path(process.cwd, process.root, process);
    // Linux shows a directory outside the root this way.
    let mut path = path.unwrap_or_else(|| b"(unreachable)/".to_vec());
    path.push(0);
    if path.len() > PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if path.len() as u64 > a[1] {
        return Err(Errno::ERANGE);
    }
    user::write_bytes(kernel.memory_mut(), a[0], &path)?;
    Ok(path.len() as u64)
}

/// Whether `ino` is a directory that may be entered.
fn check_enter(kernel: &Kernel, ino: Ino) -> Result<(), Errno> {
    let (vfs, process) = (&kernel.vfs, &kernel.process().files);
    let attributes = vfs.fs.attributes(ino, process)?;
    if !attributes.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    attributes.check(&process.cred, MAY_EXEC)
}

/// Gives the processes that share directories and umask with the running one (`CLONE_FS`) its
/// values.
pub(super) fn spread_directories(kernel: &mut Kernel) {
    let own = &kernel.process().files;
    if own.fs_sharers.get() == 0 {
        return;
    }
    let (pid, cwd, root, umask) = (own.pid, own.cwd, own.root, own.umask);
    let sharers: Vec<u32> = (kernel.processes())
        .filter(|process| process.pid != pid && process.files.shares_fs(own))
        .map(|process| process.pid)
        .collect();
    for pid in sharers {
        let Some(process) = kernel.processes.get_mut(pid) else {
            continue;
        };
        process.files.umask = umask;
        for ino in [cwd, root] {
            kernel.vfs.fs.retain(ino);
        }
        let old = [process.files.set_cwd(cwd), process.files.set_root(root)];
        for ino in old {
            kernel.vfs.fs.release(ino);
        }
    }
}

fn set_cwd(kernel: &mut Kernel, ino: Ino) -> Result<u64, Errno> {
    check_enter(kernel, ino)?;
    let (vfs, process) = kernel.file_state();
    vfs.fs.retain(ino);
    vfs.fs.release(process.set_cwd(ino));
    spread_directories(kernel);
    Ok(0)
}

fn chdir(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let ino = inode_at(kernel, sign_extended(AT_FDCWD), a[0], 0)?;
    set_cwd(kernel, ino)
}

fn fchdir(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let ino = kernel.process().files.fds.get(low_u32(a[0]))?.ino;
    set_cwd(kernel, ino)
}

fn chroot(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let ino = inode_at(kernel, sign_extended(AT_FDCWD), a[0], 0)?;
    check_enter(kernel, ino)?;
    if !kernel.process().has(CAP_SYS_CHROOT) {
        return Err(Errno::EPERM);
    }
    let (vfs, process) = kernel.file_state();
    vfs.fs.retain(ino);
    vfs.fs.release(process.set_root(ino));
    spread_directories(kernel);
    Ok(0)
}
