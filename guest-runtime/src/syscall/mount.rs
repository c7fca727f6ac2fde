//! `mount`, `umount2` and `pivot_root`.

use super::Entry;
use super::files::inode_at;
use crate::convert::{low_u32, sign_extended};
use crate::fs::mounts::{Mount, SuperBlock};
use crate::fs::overlay::{self, Directories};
use crate::fs::tmpfs::Options;
use crate::fs::types::{Ino, MountId};
use crate::fs::walk;
use crate::kernel::Kernel;
use crate::mm::user;
use alloc::rc::Rc;
use alloc::vec::Vec;
use hartline_linux::capability::CAP_SYS_ADMIN;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{AT_FDCWD, AT_SYMLINK_NOFOLLOW};
use hartline_linux::limits::PATH_MAX;
use hartline_linux::mount::{
    MNT_DETACH, MNT_EXPIRE, MNT_FORCE, MS_BIND, MS_DIRSYNC, MS_LAZYTIME, MS_MANDLOCK, MS_MGC_MSK,
    MS_MGC_VAL, MS_MOVE, MS_NOATIME, MS_NODIRATIME, MS_NOUSER, MS_PRIVATE, MS_RDONLY, MS_REC,
    MS_RELATIME, MS_REMOUNT, MS_SHARED, MS_SILENT, MS_SLAVE, MS_STRICTATIME, MS_SYNCHRONOUS,
    MS_UNBINDABLE, UMOUNT_NOFOLLOW,
};
use hartline_linux::syscall::nr;

/// The calls of this area.
pub const CALLS: &[Entry] = &[
    (nr::umount2, umount2),
    (nr::mount, mount),
    (nr::pivot_root, pivot_root),
];

/// Kinds of propagation. There is one tree of mounts, in which nothing is propagated.
const PROPAGATION: u64 = MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE;
/// Flags about times of access.
const ATIME: u64 = MS_NOATIME | MS_NODIRATIME | MS_RELATIME | MS_STRICTATIME;
/// Flags without effect: nothing is written to a device, and there are no mandatory locks.
const HARMLESS: u64 = MS_SYNCHRONOUS | MS_DIRSYNC | MS_MANDLOCK | MS_SILENT | MS_LAZYTIME;
/// Longest options (`PAGE_SIZE`).
const MAX_OPTIONS: usize = 4096;

/// Reads an optional string.
fn string(kernel: &mut Kernel, address: u64, limit: usize) -> Result<Option<Vec<u8>>, Errno> {
    match address {
        0 => Ok(None),
        _ => match user::cstr(kernel.memory_mut(), address, limit) {
            Err(Errno::ENAMETOOLONG) => Err(Errno::EINVAL),
            string => string.map(Some),
        },
    }
}

fn check_rights(kernel: &Kernel) -> Result<(), Errno> {
    match kernel.process().has(CAP_SYS_ADMIN) {
        true => Ok(()),
        false => Err(Errno::EPERM),
    }
}

fn is_directory(kernel: &Kernel, ino: Ino) -> Result<bool, Errno> {
    let attributes = kernel.vfs.fs.attributes(ino, &kernel.process().files)?;
    Ok(attributes.is_directory())
}

/// Checks that both places are directories, or neither is.
fn check_kinds(kernel: &Kernel, root: Ino, point: Ino) -> Result<(), Errno> {
    match is_directory(kernel, root)? == is_directory(kernel, point)? {
        true => Ok(()),
        false => Err(Errno::ENOTDIR),
    }
}

fn mount(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let [source, target, kind, mut flags, options, _] = *a;
    let kind = string(kernel, kind, PATH_MAX)?;
    let name = string(kernel, source, PATH_MAX)?;
    let options = string(kernel, options, MAX_OPTIONS)?.unwrap_or_default();
    let location = inode_at(kernel, sign_extended(AT_FDCWD), target, 0)?;
    if flags & MS_MGC_MSK == MS_MGC_VAL {
        flags &= !MS_MGC_MSK;
    }
    if flags & MS_NOUSER != 0 {
        return Err(Errno::EINVAL);
    }
    check_rights(kernel)?;
    sweep(kernel);
    // What was detached is outside the tree.
    if !kernel.vfs.fs.mounts().is_attached(location.1) {
        return Err(Errno::EINVAL);
    }
    match () {
        () if flags & MS_REMOUNT != 0 => remount(kernel, location, flags, &options)?,
        () if flags & MS_BIND != 0 => bind(kernel, source, location, flags & MS_REC != 0)?,
        () if flags & PROPAGATION != 0 => propagate(kernel, location, flags)?,
        () if flags & MS_MOVE != 0 => move_mount(kernel, source, location)?,
        () => {
            let kind = kind.ok_or(Errno::EINVAL)?;
            let name = name.unwrap_or_else(|| b"none".to_vec());
            new_mount(kernel, (&kind, name), location, flags, &options)?;
        }
    }
    Ok(0)
}

/// The number of the mount whose root is `location`.
fn mount_at(kernel: &Kernel, location: Ino) -> Result<MountId, Errno> {
    match kernel.vfs.fs.is_mount_root(location) {
        true => Ok(location.1),
        false => Err(Errno::EINVAL),
    }
}

/// Checks that the flags are known; returns those that a mount keeps.
fn mount_flags(flags: u64) -> Result<u64, Errno> {
    match flags & !(Mount::FLAGS | HARMLESS | MS_RELATIME) {
        0 => Ok(flags & Mount::FLAGS),
        _ => Err(Errno::EINVAL),
    }
}

fn new_mount(
    kernel: &mut Kernel,
    (kind, source): (&[u8], Vec<u8>),
    location: Ino,
    flags: u64,
    options: &[u8],
) -> Result<(), Errno> {
    let flags = mount_flags(flags)?;
    let fs = &mut kernel.vfs.fs;
    let location = fs.covered(location);
    // A new file system without a mount would stay for ever.
    fs.mounts().free_slot()?;
    let super_block = match kind {
        b"tmpfs" => {
            let options = Options::parse(options, fs.budget().limit())?;
            if !is_directory(kernel, location)? {
                return Err(Errno::ENOTDIR);
            }
            let cred = Rc::clone(&kernel.process().files.cred);
            kernel.vfs.fs.make_tmpfs(&options, &cred)?
        }
        b"overlay" => {
            let options = overlay::Options::parse(options)?;
            if !is_directory(kernel, location)? {
                return Err(Errno::ENOTDIR);
            }
            let directories = overlay_directories(kernel, options.paths)?;
            let cred = Rc::clone(&kernel.process().files.cred);
            let fs = &mut kernel.vfs.fs;
            fs.make_overlay(&directories, options.shown, &cred)?
        }
        _ => {
            let super_block = fs.system_file_system(kind).ok_or(Errno::ENODEV)?;
            let is_there = fs.is_mount_root(location)
                && (fs.mount_of(location))
                    .is_some_and(|mount| Rc::ptr_eq(&mount.super_block, &super_block));
            if is_there {
                return Err(Errno::EBUSY);
            }
            check_kinds(kernel, super_block.root, location)?;
            super_block
        }
    };
    let root = super_block.root;
    let mount = Mount {
        super_block,
        root,
        point: Some(location),
        source: source.into(),
        flags,
    };
    kernel.vfs.fs.attach(mount).map(|_| ())
}

/// Resolves the paths of an overlay's directories.
fn overlay_directories(kernel: &mut Kernel, paths: overlay::Paths) -> Result<Directories, Errno> {
    let (vfs, process) = kernel.file_state();
    let mut directory = |path: Vec<u8>| {
        let found = vfs.resolve(process, AT_FDCWD, &path, walk::Options::following(true))?;
        found.existing()
    };
    let upper = match paths.upper {
        Some([upper, work]) => Some([directory(upper)?, directory(work)?]),
        None => None,
    };
    let lower = paths.lower.into_iter().map(directory);
    Ok(Directories {
        lower: lower.collect::<Result<_, _>>()?,
        upper,
    })
}

/// The number of open file descriptions that write files for which `is_meant` holds.
fn has_writers(kernel: &Kernel, is_meant: impl Fn(MountId, &SuperBlock) -> bool) -> bool {
    let fs = &kernel.vfs.fs;
    kernel.vfs.files.iter().any(|file| {
        let mount = fs.mount_of(file.ino);
        file.check_writable().is_ok()
            && mount.is_some_and(|mount| is_meant(file.ino.1, &mount.super_block))
    })
}

/// Changes the flags of a mount; without `MS_BIND` also whether its file system is read-only.
fn remount(kernel: &mut Kernel, location: Ino, flags: u64, options: &[u8]) -> Result<(), Errno> {
    let id = mount_at(kernel, location)?;
    let is_bind = flags & MS_BIND != 0;
    let mut kept = mount_flags(flags & !(MS_REMOUNT | MS_BIND | MS_REC))?;
    let mount = kernel.vfs.fs.mounts().get(id).ok_or(Errno::EINVAL)?;
    if flags & ATIME == 0 {
        kept |= mount.flags & ATIME;
    }
    let super_block = Rc::clone(&mount.super_block);
    if flags & MS_RDONLY != 0 && !mount.is_read_only() {
        let device = super_block.device;
        let is_busy = match is_bind {
            true => has_writers(kernel, |of, _| of == id),
            false => has_writers(kernel, |_, of| of.device == device),
        };
        if is_busy {
            return Err(Errno::EBUSY);
        }
    }
    if !is_bind {
        if super_block.kind == "overlay"
            && flags & MS_RDONLY == 0
            && !kernel.vfs.fs.has_upper(location)
        {
            return Err(Errno::EROFS);
        }
        if super_block.kind == "tmpfs" && super_block.is_temporary {
            let limit = kernel.vfs.fs.budget().limit();
            let options = Options::parse(options, limit)?;
            kernel.vfs.fs.resize_tmpfs(super_block.device, &options)?;
        }
        super_block.read_only.set(flags & MS_RDONLY != 0);
    }
    if let Some(mount) = kernel.vfs.fs.mount_mut(id) {
        mount.flags = kept;
    }
    Ok(())
}

/// Resolves the first argument of `mount`.
fn source_at(kernel: &mut Kernel, source: u64) -> Result<Ino, Errno> {
    if source == 0 {
        return Err(Errno::EINVAL);
    }
    match inode_at(kernel, sign_extended(AT_FDCWD), source, 0) {
        Err(Errno::ENOENT) if string(kernel, source, 1).is_ok() => Err(Errno::EINVAL),
        found => found,
    }
}

/// Mounts what is at `source` also at `location`; with `all`, the mounts below it too.
fn bind(kernel: &mut Kernel, source: u64, location: Ino, all: bool) -> Result<(), Errno> {
    let root = source_at(kernel, source)?;
    check_kinds(kernel, root, location)?;
    let process = &kernel.processes[kernel.current].files;
    let fs = &mut kernel.vfs.fs;
    let location = fs.covered(location);
    let below = match all {
        true => fs.mounts_below(root, process),
        false => Vec::new(),
    };
    let top = fs.attach(fs.copy_of_mount(root, location).ok_or(Errno::EINVAL)?)?;
    // The copy of each mount, by the number of the original.
    let mut copies = Vec::from([(root.1, top.1)]);
    for (id, parent) in below {
        let to = copies.iter().find(|(original, _)| *original == parent);
        let mount = fs.mounts().get(id);
        let (Some(&(_, to)), Some(mount)) = (to, mount) else {
            continue;
        };
        let Some(point) = mount.point.map(|point| point.on(to)) else {
            continue;
        };
        let Some(copy) = fs.copy_of_mount(mount.root, point) else {
            continue;
        };
        copies.push((id, fs.attach(copy)?.1));
    }
    Ok(())
}

/// Accepts a kind of propagation.
fn propagate(kernel: &Kernel, location: Ino, flags: u64) -> Result<(), Errno> {
    let kind = flags & !(MS_REC | MS_SILENT);
    if !kind.is_power_of_two() {
        return Err(Errno::EINVAL);
    }
    mount_at(kernel, location).map(|_| ())
}

fn move_mount(kernel: &mut Kernel, source: u64, location: Ino) -> Result<(), Errno> {
    let from = source_at(kernel, source)?;
    let id = mount_at(kernel, from)?;
    let fs = &kernel.vfs.fs;
    let has_point = (fs.mounts().get(id)).is_some_and(|mount| mount.point.is_some());
    let location = fs.covered(location);
    if !has_point || is_directory(kernel, from)? != is_directory(kernel, location)? {
        return Err(Errno::EINVAL);
    }
    let process = &kernel.process().files;
    if fs.is_place_below(location, from, process) {
        return Err(Errno::ELOOP);
    }
    kernel.vfs.fs.set_point(id, Some(location));
    Ok(())
}

/// Whether a file is open in a mount, or a process is in it or executes a file of it.
fn is_used(kernel: &Kernel, id: MountId) -> bool {
    let fs = &kernel.vfs.fs;
    let is_there = |ino: Ino| ino.1 == id && fs.mount_of(ino).is_some();
    let mut processes = kernel.processes().filter(|process| !process.is_zombie());
    processes.any(|process| process.files.inodes().any(is_there))
        || kernel.vfs.files.iter().any(|file| is_there(file.ino))
}

/// Removes the mounts that were detached and are not used any more.
fn sweep(kernel: &mut Kernel) {
    let fs = &kernel.vfs.fs;
    let top = fs.mounts().top();
    let detached = |mount: &Mount| mount.point.is_none();
    let idle: Vec<MountId> = (fs.mounts().iter())
        .filter(|&(id, mount)| id != top && detached(mount) && !is_used(kernel, id))
        .filter(|&(id, _)| fs.mounts().children(id).next().is_none())
        .map(|(id, _)| id)
        .collect();
    for id in idle {
        kernel.vfs.fs.remove_mount(id);
    }
}

fn umount2(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[1]);
    if flags & !(MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let nofollow = match flags & UMOUNT_NOFOLLOW {
        0 => 0,
        _ => AT_SYMLINK_NOFOLLOW,
    };
    // The path of this call is no use of the mount.
    let marks = kernel.vfs.fs.mounts_mut().take_expiring();
    let location = inode_at(kernel, sign_extended(AT_FDCWD), a[0], nofollow);
    kernel.vfs.fs.mounts_mut().set_expiring(marks);
    let location = location?;
    check_rights(kernel)?;
    sweep(kernel);
    let location = kernel.vfs.fs.covered(location);
    let id = mount_at(kernel, location)?;
    let mounts = kernel.vfs.fs.mounts();
    let is_attached = mounts.get(id).is_some_and(|mount| mount.point.is_some());
    if !is_attached && id != mounts.top() {
        return Err(Errno::EINVAL);
    }
    if flags & MNT_EXPIRE != 0 {
        let is_root = location.is_at(kernel.process().files.root);
        if is_root || flags & (MNT_FORCE | MNT_DETACH) != 0 {
            return Err(Errno::EINVAL);
        }
        if mounts.children(id).next().is_some() || is_used(kernel, id) {
            return Err(Errno::EBUSY);
        }
        if !kernel.vfs.fs.mounts_mut().expire(id) {
            return Err(Errno::EAGAIN);
        }
    }
    let mounts = kernel.vfs.fs.mounts();
    if id == mounts.top() {
        return Err(Errno::EBUSY);
    }
    if flags & MNT_DETACH == 0 {
        if mounts.children(id).next().is_some() || is_used(kernel, id) {
            return Err(Errno::EBUSY);
        }
        kernel.vfs.fs.remove_mount(id);
        return Ok(0);
    }
    let process = &kernel.processes[kernel.current].files;
    let below = kernel.vfs.fs.mounts_below(location, process);
    for id in below.into_iter().map(|(id, _)| id).chain([id]) {
        kernel.vfs.fs.set_point(id, None);
    }
    sweep(kernel);
    Ok(0)
}

/// Resolves the path of a directory.
fn directory_at(kernel: &mut Kernel, address: u64) -> Result<Ino, Errno> {
    let ino = inode_at(kernel, sign_extended(AT_FDCWD), address, 0)?;
    match is_directory(kernel, ino)? {
        true => Ok(ino),
        false => Err(Errno::ENOTDIR),
    }
}

fn pivot_root(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    check_rights(kernel)?;
    let new = directory_at(kernel, a[0])?;
    let old = directory_at(kernel, a[1])?;
    let process = &kernel.process().files;
    let root = process.root;
    let fs = &kernel.vfs.fs;
    if new.1 == root.1 || old.1 == root.1 {
        return Err(Errno::EBUSY);
    }
    let has_point = (fs.mounts().get(new.1)).is_some_and(|mount| mount.point.is_some());
    let is_good = fs.is_mount_root(root)
        && fs.is_mount_root(new)
        && has_point
        && fs.is_place_below(old, new, process)
        && fs.is_place_below(new, root, process);
    if !is_good {
        return Err(Errno::EINVAL);
    }
    let old = fs.covered(old);
    let location = fs.mounts().get(root.1).and_then(|mount| mount.point);
    let fs = &mut kernel.vfs.fs;
    fs.set_point(new.1, location);
    fs.set_point(root.1, Some(old));
    if location.is_none() {
        fs.set_top(new.1);
    }
    move_processes(kernel, root, new);
    Ok(0)
}

/// Gives the processes whose root or working directory is `from` the directory `to` instead.
fn move_processes(kernel: &mut Kernel, from: Ino, to: Ino) {
    let pids: Vec<u32> = kernel.processes().map(|process| process.pid).collect();
    for pid in pids {
        let Some(process) = kernel.processes.get_mut(pid) else {
            continue;
        };
        if process.is_zombie() {
            continue;
        }
        let (files, fs) = (&mut process.files, &mut kernel.vfs.fs);
        if files.root.is_at(from) {
            fs.retain(to);
            fs.release(files.set_root(to));
        }
        if files.cwd.is_at(from) {
            fs.retain(to);
            fs.release(files.set_cwd(to));
        }
    }
}
