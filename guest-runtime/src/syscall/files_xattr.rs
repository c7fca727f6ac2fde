//! Extended attributes: `setxattr` and its like.

use super::Entry;
use super::files::inode_at;
use crate::convert::{low_u32, sign_extended};
use crate::fs::types::Ino;
use crate::fs::xattr::When;
use crate::kernel::Kernel;
use crate::mm::user;
use alloc::vec::Vec;
use hartline_linux::errno::Errno;
use hartline_linux::fcntl::{AT_FDCWD, AT_SYMLINK_NOFOLLOW};
use hartline_linux::limits::{XATTR_NAME_MAX, XATTR_SIZE_MAX};
use hartline_linux::syscall::nr;
use hartline_linux::xattr::{XATTR_CREATE, XATTR_REPLACE};

/// The calls of this file.
pub const CALLS: &[Entry] = &[
    (nr::setxattr, |kernel, a| set(kernel, a, Target::Path)),
    (nr::lsetxattr, |kernel, a| set(kernel, a, Target::Link)),
    (nr::fsetxattr, |kernel, a| {
        set(kernel, a, Target::Descriptor)
    }),
    (nr::getxattr, |kernel, a| get(kernel, a, Target::Path)),
    (nr::lgetxattr, |kernel, a| get(kernel, a, Target::Link)),
    (nr::fgetxattr, |kernel, a| {
        get(kernel, a, Target::Descriptor)
    }),
    (nr::listxattr, |kernel, a| list(kernel, a, Target::Path)),
    (nr::llistxattr, |kernel, a| list(kernel, a, Target::Link)),
    (nr::flistxattr, |kernel, a| {
        list(kernel, a, Target::Descriptor)
    }),
    (nr::removexattr, |kernel, a| remove(kernel, a, Target::Path)),
    (nr::lremovexattr, |kernel, a| {
        remove(kernel, a, Target::Link)
    }),
    (nr::fremovexattr, |kernel, a| {
        remove(kernel, a, Target::Descriptor)
    }),
];

/// The kind of the first argument.
#[derive(Debug, Clone, Copy)]
enum Target {
    /// A path.
    Path,
    /// A path; a symbolic link as its last component is not followed.
    Link,
    /// A descriptor.
    Descriptor,
}

/// Resolves the first argument to an inode.
fn inode(kernel: &mut Kernel, argument: u64, target: Target) -> Result<Ino, Errno> {
    let here = sign_extended(AT_FDCWD);
    match target {
        Target::Path => inode_at(kernel, here, argument, 0),
        Target::Link => inode_at(kernel, here, argument, AT_SYMLINK_NOFOLLOW),
        Target::Descriptor => Ok(kernel.file(argument)?.ino),
    }
}

/// Reads the name of an attribute.
fn name(kernel: &mut Kernel, address: u64) -> Result<Vec<u8>, Errno> {
    match user::cstr(kernel.memory_mut(), address, XATTR_NAME_MAX + 1) {
        Ok(name) if name.is_empty() => Err(Errno::ERANGE),
        Err(Errno::ENAMETOOLONG) => Err(Errno::ERANGE),
        name => name,
    }
}

/// Copies `bytes` to the program, or only returns their number if `size` is 0.
fn give(kernel: &mut Kernel, bytes: &[u8], address: u64, size: u64) -> Result<u64, Errno> {
    let length = bytes.len() as u64;
    match size {
        0 => {}
        _ if size < length => return Err(Errno::ERANGE),
        _ => user::write_bytes(kernel.memory_mut(), address, bytes)?,
    }
    Ok(length)
}

fn set(kernel: &mut Kernel, a: &[u64; 6], target: Target) -> Result<u64, Errno> {
    const BOTH: u32 = XATTR_CREATE | XATTR_REPLACE;
    let when = match low_u32(a[4]) {
        0 => When::Always,
        XATTR_CREATE => When::Missing,
        XATTR_REPLACE => When::Present,
        BOTH => When::Never,
        _ => return Err(Errno::EINVAL),
    };
    let ino = inode(kernel, a[0], target)?;
    let name = name(kernel, a[1])?;
    if a[3] > XATTR_SIZE_MAX as u64 {
        return Err(Errno::E2BIG);
    }
    let value = user::slice(kernel.memory_mut(), a[2], a[3])?.to_vec();
    let (vfs, process) = kernel.file_state();
    vfs.fs
        .set_extended(ino, &name, &value, when, &process.cred)?;
    Ok(0)
}

fn get(kernel: &mut Kernel, a: &[u64; 6], target: Target) -> Result<u64, Errno> {
    let ino = inode(kernel, a[0], target)?;
    let name = name(kernel, a[1])?;
    let (vfs, process) = (&kernel.vfs, &kernel.process().files);
    let value = vfs.fs.extended(ino, &name, &process.cred)?;
    give(kernel, &value, a[2], a[3])
}

fn list(kernel: &mut Kernel, a: &[u64; 6], target: Target) -> Result<u64, Errno> {
    let ino = inode(kernel, a[0], target)?;
    let (vfs, process) = (&kernel.vfs, &kernel.process().files);
    let names = vfs.fs.extended_names(ino, &process.cred)?;
    give(kernel, &names, a[1], a[2])
}

fn remove(kernel: &mut Kernel, a: &[u64; 6], target: Target) -> Result<u64, Errno> {
    let ino = inode(kernel, a[0], target)?;
    let name = name(kernel, a[1])?;
    let (vfs, process) = kernel.file_state();
    vfs.fs.remove_extended(ino, &name, &process.cred)?;
    Ok(0)
}
