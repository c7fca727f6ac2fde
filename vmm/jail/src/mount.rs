//! Directories of the host for a jailed process: mounts that exist only as descriptors.

use super::fork::fork;
use rustix::event::pause;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The maximum time that the kernel takes to end a process.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// Makes a mount of an open directory in which the directory's owner appears as the user and group
/// `uid`. No other user is mapped. The host cannot execute programs in it, nor open devices.
///
/// # Errors
/// Any I/O error of the host: its file system, or kernel, may not support such mounts
/// (mount_setattr(2), `MOUNT_ATTR_IDMAP`).
pub fn mount(directory: &File, uid: u32, read_only: bool) -> io::Result<OwnedFd> {
    let owner = directory.metadata()?.uid();
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(directory, c"", flags | OpenTreeFlags::AT_EMPTY_PATH)?;
    let users = user_namespace(owner, uid)?;
    let closed = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP
            | closed
            | if read_only {
                libc::MOUNT_ATTR_RDONLY
            } else {
                0
            },
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::from(users.as_raw_fd().unsigned_abs()),
    };
    // SAFETY: the path ends with NUL, and the kernel only reads the structure, of the length that is
    // passed. Both outlive the call, and no other thread has them. `rustix` lacks this call.
    let set = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of_val(&attributes),
        )
    };
    match set {
        0 => Ok(mount),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A user namespace with one user and group: `inside` in it, `outside` in the host.
fn user_namespace(inside: u32, outside: u32) -> io::Result<OwnedFd> {
    // SAFETY: the child makes nothing but two system calls.
    let Some(child) = unsafe { fork(libc::CLONE_NEWUSER) }? else {
        // If this fails, the kill below ends the process too.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        loop {
            pause();
        }
    };
    let made = map_user(child.pid(), inside, outside);
    child.signal(Signal::KILL)?;
    // Dropping `child` reaps a process that has ended.
    let _ = child.wait(LAST_BREATH);
    Ok(made?.into())
}

/// Maps the user and group of the user namespace of a process. Result: the namespace.
fn map_user(pid: i32, inside: u32, outside: u32) -> io::Result<File> {
    let process = Path::new("/proc").join(pid.to_string());
    let map = format!("{inside} {outside} 1\n");
    fs::write(process.join("uid_map"), &map)?;
    fs::write(process.join("gid_map"), &map)?;
    File::open(process.join("ns/user"))
}
