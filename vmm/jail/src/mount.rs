//! Directories of the host for a jailed process: mounts that exist only as descriptors.

use super::Child;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
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
    let flags =
        libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_EMPTY_PATH as libc::c_uint;
    // SAFETY: a NUL-terminated path; a fresh descriptor or an error.
    let mount = own(unsafe {
        let (directory, path) = (directory.as_raw_fd(), c"".as_ptr());
        libc::syscall(libc::SYS_open_tree, directory, path, flags)
    })?;
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
        userns_fd: users.as_raw_fd() as u64,
    };
    // SAFETY: a NUL-terminated path, and a structure of the length that is passed.
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
    let mut descriptor: RawFd = -1;
    let flags = libc::c_long::from(libc::CLONE_NEWUSER | libc::CLONE_PIDFD | libc::SIGCHLD);
    // SAFETY: as fork(2), without shared memory. The child makes two system calls and takes no
    // lock; the kernel writes a descriptor where the third argument points.
    let pid = unsafe {
        let (stack, child_tid, tls) = (0usize, 0usize, 0usize);
        let pidfd = &raw mut descriptor;
        let pid = libc::syscall(libc::SYS_clone, flags, stack, pidfd, child_tid, tls);
        if pid == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
            loop {
                libc::pause();
            }
        }
        pid
    };
    let pid = match libc::pid_t::try_from(pid) {
        Ok(pid) if pid > 0 => pid,
        _ => return Err(io::Error::last_os_error()),
    };
    // SAFETY: a fresh descriptor that has no other owner.
    let child = Child::new(pid, unsafe { OwnedFd::from_raw_fd(descriptor) });
    let made = map_user(pid, inside, outside);
    child.signal(libc::SIGKILL)?;
    // Dropping `child` reaps a process that has ended.
    let _ = child.wait(LAST_BREATH);
    Ok(made?.into())
}

/// Maps the user and group of the user namespace of a process. Result: the namespace.
fn map_user(pid: libc::pid_t, inside: u32, outside: u32) -> io::Result<File> {
    let process = Path::new("/proc").join(pid.to_string());
    let map = format!("{inside} {outside} 1\n");
    fs::write(process.join("uid_map"), &map)?;
    fs::write(process.join("gid_map"), &map)?;
    File::open(process.join("ns/user"))
}

/// The descriptor that a system call made.
fn own(result: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(result) {
        // SAFETY: fresh, with no other owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
