//! inotify: `inotify_init1`, `inotify_add_watch`, `inotify_rm_watch`.

use super::Entry;
use super::files::inode_at;
use crate::convert::{low_i32, low_u32, sign_extended};
use crate::file::inotify::Inotify;
use crate::fs::inode::MAY_READ;
use crate::fs::types::Ino;
use crate::kernel::Kernel;
use alloc::rc::Rc;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, O_CLOEXEC, O_NONBLOCK, O_RDONLY};
use hartline_linux::inotify::{
    IN_ALL_EVENTS, IN_DONT_FOLLOW, IN_EXCL_UNLINK, IN_MASK_ADD, IN_MASK_CREATE, IN_ONESHOT,
    IN_ONLYDIR,
};
use hartline_linux::syscall::nr;

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::inotify_init1, inotify_init1),
    (nr::inotify_add_watch, inotify_add_watch),
    (nr::inotify_rm_watch, inotify_rm_watch),
];

fn inotify_init1(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let flags = low_u32(a[0]);
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let (mut io, process) = kernel.io();
    let fd = io.open_anonymous(process, Rc::new(Inotify), flags | O_RDONLY)?;
    let instance = process.fds.get(fd)?.ino;
    if let Err(error) = io.vfs.fs.notify.add_instance(instance) {
        io.close(process, fd)?;
        return Err(error);
    }
    Ok(u64::from(fd))
}

/// Returns the instance behind a descriptor.
fn instance(kernel: &Kernel, fd: u64) -> Result<Ino, Errno> {
    let file = kernel.file(fd)?;
    match file.object.is::<Inotify>() {
        true => Ok(file.ino),
        false => Err(Errno::EINVAL),
    }
}

fn inotify_add_watch(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    const OPTIONS: u32 =
        IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK | IN_MASK_CREATE | IN_MASK_ADD | IN_ONESHOT;
    const BOTH: u32 = IN_MASK_ADD | IN_MASK_CREATE;
    let wanted = low_u32(a[2]);
    if wanted & (IN_ALL_EVENTS | OPTIONS) == 0 {
        return Err(Errno::EINVAL);
    }
    kernel.file(a[0])?;
    if wanted & BOTH == BOTH {
        return Err(Errno::EINVAL);
    }
    let instance = instance(kernel, a[0])?;
    let nofollow = match wanted & IN_DONT_FOLLOW {
        0 => 0,
        _ => AT_SYMLINK_NOFOLLOW,
    };
    let ino = inode_at(kernel, sign_extended(AT_FDCWD), a[1], nofollow)?;
    let (vfs, process) = kernel.file_state();
    let attributes = vfs.fs.attributes(ino, process)?;
    if wanted & IN_ONLYDIR != 0 && !attributes.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    attributes.check(&process.cred, MAY_READ)?;
    let watch = vfs.fs.notify.add_watch(instance, ino, wanted)?;
    Ok(u64::from(watch.cast_unsigned()))
}

fn inotify_rm_watch(kernel: &mut Kernel, a: &[u64; 6]) -> Result<u64, Errno> {
    let instance = instance(kernel, a[0])?;
    kernel.vfs.fs.notify.remove_watch(instance, low_i32(a[1]))?;
    Ok(0)
}
