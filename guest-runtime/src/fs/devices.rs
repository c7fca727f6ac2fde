//! `/dev`: its contents. [`crate::file`] has the devices behind its nodes.

use super::disks;
use super::filesystem::{DEV_DEVICE, Dentry, FileSystem, NewInode};
use super::types::{Ino, device_number};
use crate::credentials::Credentials;
use hartline_linux::errno::Errno;
use hartline_linux::stat::{S_IFBLK, S_IFCHR, S_ISVTX};

/// Name, major, minor, permissions.
const NODES: &[(&[u8], u64, u64, u32)] = &[
    (b"console", 5, 1, 0o600),
    (b"full", 1, 7, 0o666),
    (b"hwrng", 10, 183, 0o600),
    (b"null", 1, 3, 0o666),
    (b"ptmx", 5, 2, 0o666),
    (b"random", 1, 8, 0o666),
    (b"tty", 5, 0, 0o666),
    (b"urandom", 1, 9, 0o666),
    (b"vsock", 10, 122, 0o666),
    (b"zero", 1, 5, 0o666),
];

const LINKS: &[(&[u8], &[u8])] = &[
    (b"fd", b"/proc/self/fd"),
    (b"stderr", b"/proc/self/fd/2"),
    (b"stdin", b"/proc/self/fd/0"),
    (b"stdout", b"/proc/self/fd/1"),
];

/// Creates the tree of `/dev`; returns its root.
///
/// # Errors
/// `ENOSPC`.
pub fn populate(fs: &mut FileSystem) -> Result<Ino, Errno> {
    let cred = &Credentials::root();
    let root = fs.add_unnamed(NewInode::directory(0o755), cred, DEV_DEVICE)?;
    fs.retain(root);
    fs.make_root(root)?;
    let dentry = |name| Dentry {
        directory: root,
        name,
    };
    for &(name, major, minor, permissions) in NODES {
        let node = NewInode::node(S_IFCHR | permissions, device_number(major, minor));
        fs.create(dentry(name), node, cred)?;
    }
    for &(name, target) in LINKS {
        fs.create(dentry(name), NewInode::link(target), cred)?;
    }
    fs.create(dentry(b"pts"), NewInode::directory(0o755), cred)?;
    let shm = NewInode::directory(S_ISVTX | 0o777);
    fs.create(dentry(b"shm"), shm, cred)?;
    fs.release(root);
    Ok(root)
}

/// Creates the device node of disk `number` with owner `cred` in the directory `root` of `/dev`.
///
/// # Errors
/// `EEXIST`, `ENOSPC`.
pub fn add_disk(
    fs: &mut FileSystem,
    root: Ino,
    name: &[u8],
    number: u32,
    cred: &Credentials,
) -> Result<(), Errno> {
    let dentry = Dentry {
        directory: root,
        name,
    };
    let rdev = device_number(disks::MAJOR, u64::from(number) * disks::MINORS);
    fs.create(dentry, NewInode::node(S_IFBLK | 0o660, rdev), cred)?;
    Ok(())
}
