//! Calls that show or change attributes.

use super::Entry;
use super::files::{check_file_size, inode_at, refresh};
use super::leases::end_leases;
use crate::convert::{low_i32, low_u32, sign_extended};
use crate::file::mount_text::shown_id;
use crate::file::operations::Mapped;
use crate::fs::attributes::NewTime;
use crate::fs::filesystem::{
    ANONYMOUS_DEVICE, CGROUP_DEVICE, DEV_DEVICE, PIPE_DEVICE, PROC_DEVICE, SOCKET_DEVICE,
    SYSFS_DEVICE,
};
use crate::fs::inode::{Attributes, MAY_EXEC, MAY_WRITE};
use crate::fs::mounts::Mount;
use crate::fs::types::{Ino, Timestamp};
use crate::fs::volume::is_volume_device;
use crate::kernel::Kernel;
use crate::mm::user;
use alloc::rc::Rc;
use hartline_linux::errno::Errno;
use hartline_linux::falloc::FALLOC_FL_KEEP_SIZE;
use hartline_linux::fcntl::{
    AT_EACCESS, AT_EMPTY_PATH, AT_FDCWD, AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, AT_SYMLINK_NOFOLLOW,
};
use hartline_linux::limits::NAME_MAX;
use hartline_linux::magic::{
    ANON_INODE_FS_MAGIC, CGROUP2_SUPER_MAGIC, DEVPTS_SUPER_MAGIC, FUSE_SUPER_MAGIC,
    OVERLAYFS_SUPER_MAGIC, PIPEFS_MAGIC, PROC_SUPER_MAGIC, SOCKFS_MAGIC, SYSFS_MAGIC, TMPFS_MAGIC,
};
use hartline_linux::mount::{
    MS_NOATIME, MS_NODEV, MS_NODIRATIME, MS_NOEXEC, MS_NOSUID, MS_NOSYMFOLLOW, MS_STRICTATIME,
};
use hartline_linux::stat::{STATX__RESERVED, STATX_MNT_ID, Stat, Statx, UTIME_NOW, UTIME_OMIT};
use hartline_linux::statfs::{ST_NOSYMFOLLOW, ST_RDONLY, ST_RELATIME, ST_VALID, Statfs};
use hartline_linux::syscall::nr;
use hartline_linux::time::Timespec;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::statfs, statfs),
    (nr::fstatfs, fstatfs),
    (nr::truncate, truncate),
    (nr::ftruncate, ftruncate),
    (nr::fallocate, fallocate),
    (nr::faccessat, faccessat),
    (nr::fchmod, fchmod),
    (nr::fchmodat, fchmodat),
    (nr::fchownat, fchownat),
    (nr::fchown, fchown),
    (nr::newfstatat, newfstatat),
    (nr::fstat, fstat),
    (nr::utimensat, utimensat),
    (nr::statx, statx),
    (nr::faccessat2, faccessat2),
    (nr::fchmodat2, fchmodat2),
];

fn attributes(kernel: &mut Kernel, ino: Ino) -> Result<Attributes, Errno> {
    refresh(kernel, ino)?;
    kernel.vfs.fs.attributes(ino, &kernel.process().files)
}

fn fstat(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let ino = kernel.process().files.fds.get(low_u32(a[0]))?.ino;
    let stat = Stat::from(&attributes(kernel, ino)?);
    user::write(kernel.memory_mut(), a[1], &stat)?;
    Ok(0)
}

fn newfstatat(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[3]);
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT) != 0 {
        return Err(Errno::EINVAL);
    }
    let ino = inode_at(kernel, a[0], a[1], flags)?;
    let stat = Stat::from(&attributes(kernel, ino)?);
    user::write(kernel.memory_mut(), a[2], &stat)?;
    Ok(0)
}

fn statx(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let known = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_STATX_SYNC_TYPE;
    let flags = low_u32(a[2]);
    if flags & !known != 0
        || flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE
        || low_u32(a[3]) & STATX__RESERVED != 0
    {
        return Err(Errno::EINVAL);
    }
    let ino = inode_at(kernel, a[0], a[1], flags)?;
    let mut statx = Statx::from(&attributes(kernel, ino)?);
    if kernel.vfs.fs.mount_of(ino).is_some() {
        statx.stx_mask |= STATX_MNT_ID;
        statx.stx_mnt_id = shown_id(ino.1).into();
    }
    user::write(kernel.memory_mut(), a[4], &statx)?;
    Ok(0)
}

/// The flags of a mount as `statfs` returns them.
fn statfs_flags(mount: &Mount) -> u64 {
    // These are the same numbers.
    const SAME: u64 = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME;
    let read_only = if mount.is_read_only() { ST_RDONLY } else { 0 };
    let no_links = match mount.flags & MS_NOSYMFOLLOW {
        0 => 0,
        _ => ST_NOSYMFOLLOW,
    };
    let relatime = match mount.flags & (MS_NOATIME | MS_STRICTATIME) {
        0 => ST_RELATIME,
        _ => 0,
    };
    mount.flags & SAME | read_only | no_links | relatime
}

fn write_statfs(kernel: &mut Kernel, ino: Ino, address: u64) -> Result<u64, Errno> {
    const BLOCK: u64 = 4096;
    let (vfs, process) = (&kernel.vfs, &kernel.process().files);
    let attributes = vfs.fs.attributes(ino, process)?;
    let device = attributes.device;
    let [all, free] = vfs.fs.space_of(device);
    let flags = match vfs.fs.mount_of(ino) {
        Some(mount) => statfs_flags(mount),
        None => ST_RELATIME,
    };
    let mut statfs = Statfs {
        f_type: TMPFS_MAGIC,
        f_bsize: BLOCK,
        f_namelen: NAME_MAX as u64,
        f_frsize: BLOCK,
        f_flags: ST_VALID | flags,
        f_fsid: [low_i32(device), 0],
        ..Statfs::default()
    };
    match device {
        PROC_DEVICE => statfs.f_type = PROC_SUPER_MAGIC,
        SYSFS_DEVICE => statfs.f_type = SYSFS_MAGIC,
        CGROUP_DEVICE => statfs.f_type = CGROUP2_SUPER_MAGIC,
        PIPE_DEVICE => statfs.f_type = PIPEFS_MAGIC,
        ANONYMOUS_DEVICE => statfs.f_type = ANON_INODE_FS_MAGIC,
        SOCKET_DEVICE => statfs.f_type = SOCKFS_MAGIC,
        DEV_DEVICE if vfs.is_in_devpts(ino, &attributes) => statfs.f_type = DEVPTS_SUPER_MAGIC,
        DEV_DEVICE => {}
        device if is_volume_device(device) => {
            let [size, blocks, free, available, files, free_files] =
                vfs.fs.volume_file_system(ino)?;
            // The host's files come over a separate protocol, as with FUSE.
            statfs.f_type = FUSE_SUPER_MAGIC;
            (statfs.f_bsize, statfs.f_frsize) = (size, size);
            (statfs.f_blocks, statfs.f_bfree, statfs.f_bavail) = (blocks, free, available);
            (statfs.f_files, statfs.f_ffree) = (files, free_files);
        }
        device => {
            if vfs.fs.is_overlay_device(device) {
                statfs.f_type = OVERLAYFS_SUPER_MAGIC;
            }
            statfs.f_blocks = all;
            statfs.f_bfree = free;
            statfs.f_bavail = free;
            statfs.f_files = vfs.fs.inode_count() + free;
            statfs.f_ffree = free;
        }
    }
    user::write(kernel.memory_mut(), address, &statfs)?;
    Ok(0)
}

fn statfs(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let ino = inode_at(kernel, sign_extended(AT_FDCWD), a[0], 0)?;
    write_statfs(kernel, ino, a[1])
}

fn fstatfs(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let ino = kernel.process().files.fds.get(low_u32(a[0]))?.ino;
    write_statfs(kernel, ino, a[1])
}

fn truncate(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let size = i64::try_from(a[1]).map_err(|_| Errno::EINVAL)?;
    let ino = inode_at(kernel, sign_extended(AT_FDCWD), a[0], 0)?;
    let (vfs, process) = kernel.file_state();
    let attributes = vfs.fs.attributes(ino, process)?;
    if attributes.is_directory() {
        return Err(Errno::EISDIR);
    }
    attributes.check(&process.cred, MAY_WRITE)?;
    vfs.fs.check_not_executed(ino)?;
    end_leases(kernel, ino)?;
    check_file_size(kernel, ino, size.cast_unsigned())?;
    truncate_mapped(kernel, ino, size.cast_unsigned())
}

/// Clears the set-ID bits of a file whose contents the running process has changed.
fn contents_changed(kernel: &mut Kernel, ino: Ino) {
    let (vfs, process) = kernel.file_state();
    vfs.fs.contents_changed_by(ino, &process.cred);
}

/// Sets the length of a file; the running process loses its pages beyond the new end.
fn truncate_mapped(kernel: &mut Kernel, ino: Ino, size: u64) -> Result<u64, Errno> {
    kernel.vfs.fs.truncate(ino, size)?;
    contents_changed(kernel, ino);
    if let Some(memory) = kernel.vfs.fs.shared(ino) {
        kernel.memory_mut().forget_beyond(&memory);
    }
    Ok(0)
}

fn ftruncate(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let size = i64::try_from(a[1]).map_err(|_| Errno::EINVAL)?;
    let file = kernel.file(a[0])?;
    // Linux returns EINVAL, not EBADF, for a descriptor not open for writing.
    file.check_writable().map_err(|_| Errno::EINVAL)?;
    let ino = file.ino;
    check_file_size(kernel, ino, size.cast_unsigned())?;
    truncate_mapped(kernel, ino, size.cast_unsigned())
}

fn fallocate(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let (offset, length) = (a[2].cast_signed(), a[3].cast_signed());
    if offset < 0 || length <= 0 {
        return Err(Errno::EINVAL);
    }
    let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
    let (from, to) = (offset.cast_unsigned(), end.cast_unsigned());
    let file = kernel.file(a[0])?;
    file.check_writable()?;
    let (object, ino) = (Rc::clone(&file.object), file.ino);
    if a[1] & FALLOC_FL_KEEP_SIZE == 0 {
        check_file_size(kernel, ino, to)?;
    }
    object.fallocate(&mut kernel.vfs, ino, a[1], from..to)?;
    contents_changed(kernel, ino);
    Ok(0)
}

/// Serves `faccessat2`: without `AT_EACCESS` with the real user and group.
fn access(kernel: &mut Kernel, a: &[u64; 6], flags: u32) -> Result<u64, Errno> {
    let mask = low_u32(a[2]);
    if mask & !7 != 0 || flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let process = &mut kernel.process_mut().files;
    let cred = Rc::clone(&process.cred);
    if flags & AT_EACCESS == 0
        && let Some(real) = cred.of_real_user()
    {
        process.cred = Rc::new(real);
    }
    let result = check_access(kernel, a, mask, flags);
    kernel.process_mut().files.cred = cred;
    result
}

fn check_access(kernel: &mut Kernel, a: &[u64; 6], mask: u32, flags: u32) -> Result<u64, Errno> {
    let ino = inode_at(kernel, a[0], a[1], flags)?;
    let (vfs, process) = (&kernel.vfs, &kernel.process().files);
    let attributes = vfs.fs.attributes(ino, process)?;
    let is_program = mask & MAY_EXEC != 0 && !attributes.is_directory();
    if is_program && vfs.fs.has_mount_flag(ino, MS_NOEXEC) {
        return Err(Errno::EACCES);
    }
    attributes.check(&process.cred, mask)?;
    Ok(0)
}

fn faccessat(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    access(kernel, a, 0)
}

fn faccessat2(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    access(kernel, a, low_u32(a[3]))
}

fn set_mode(kernel: &mut Kernel, ino: Ino, mode: u64) -> Result<u64, Errno> {
    let (vfs, process) = kernel.file_state();
    vfs.fs.set_mode(ino, low_u32(mode), &process.cred)?;
    Ok(0)
}

fn fchmod(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let ino = kernel.file(a[0])?.ino;
    set_mode(kernel, ino, a[1])
}

fn fchmodat(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let ino = inode_at(kernel, a[0], a[1], 0)?;
    set_mode(kernel, ino, a[2])
}

fn fchmodat2(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[3]);
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let ino = inode_at(kernel, a[0], a[1], flags)?;
    set_mode(kernel, ino, a[2])
}

fn set_owner(kernel: &mut Kernel, ino: Ino, uid: u64, gid: u64) -> Result<u64, Errno> {
    let id = |id: u64| Some(low_u32(id)).filter(|&id| id != u32::MAX);
    let (vfs, process) = kernel.file_state();
    vfs.fs.set_owner(ino, id(uid), id(gid), &process.cred)?;
    Ok(0)
}

fn fchownat(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[4]);
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let ino = inode_at(kernel, a[0], a[1], flags)?;
    set_owner(kernel, ino, a[2], a[3])
}

fn fchown(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let ino = kernel.file(a[0])?.ino;
    set_owner(kernel, ino, a[1], a[2])
}

fn new_time(time: Timespec) -> Result<NewTime, Errno> {
    match time.tv_nsec {
        UTIME_NOW => Ok(NewTime::Now),
        UTIME_OMIT => Ok(NewTime::Keep),
        ns @ 0..1_000_000_000 => Ok(NewTime::At(Timestamp {
            seconds: time.tv_sec,
            nanoseconds: low_u32(ns.cast_unsigned()),
        })),
        _ => Err(Errno::EINVAL),
    }
}

fn utimensat(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let times = match a[2] {
        0 => [NewTime::Now; 2],
        address => {
            let [access, modification]: [Timespec; 2] = user::read(kernel.memory_mut(), address)?;
            [new_time(access)?, new_time(modification)?]
        }
    };
    let flags = low_u32(a[3]);
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    if times == [NewTime::Keep; 2] {
        return Ok(0);
    }
    // Without a path the call changes the descriptor's file (`futimens`).
    let ino = match (a[1], low_i32(a[0])) {
        (0, AT_FDCWD) => return Err(Errno::EFAULT),
        (0, fd) => kernel.process().files.fds.get(fd.cast_unsigned())?.ino,
        _ => inode_at(kernel, a[0], a[1], flags)?,
    };
    let (vfs, process) = kernel.file_state();
    let attributes = vfs.fs.attributes(ino, process)?;
    let may_write = attributes.check(&process.cred, MAY_WRITE).is_ok();
    vfs.fs.set_times(ino, times, &process.cred, may_write)?;
    Ok(0)
}

/// Returns what a mapping of a descriptor shows. `code`: it is private and will be executed.
///
/// # Errors
/// `EBADF`, `EACCES` if the descriptor is not readable, `ENODEV` for an object without mappings.
pub(super) fn mapped(kernel: &mut Kernel, fd: u64, code: bool) -> Result<Mapped, Errno> {
    let file = kernel.file(fd)?;
    file.check_readable().map_err(|_| Errno::EACCES)?;
    let (object, ino, flags) = (Rc::clone(&file.object), file.ino, file.flags);
    object.mmap(&mut kernel.vfs, ino, flags, code)
}

/// Returns the path of a descriptor's file, for `/proc/self/maps`.
pub(super) fn path_of(kernel: &Kernel, fd: u64) -> Option<alloc::vec::Vec<u8>> {
    let process = &kernel.process().files;
    let ino = process.fds.get(low_u32(fd)).ok()?.ino;
    kernel.vfs.fs.path(ino, process.root, process)
}
