//! Drops the rights of a process before it reads untrusted data.

use super::violation::report_violations;
use super::{FilterError, Filters, Limits, Role};
use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Mount flags of everything that a jailed process may see.
const CLOSED: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;

/// The newest Landlock ABI whose rights are restricted, if the kernel supports them.
const LANDLOCK: ABI = ABI::V7;

/// What a process is to be locked into.
#[derive(Debug)]
pub struct Jail {
    /// The role of the process.
    pub role: Role,
    /// An empty directory of the host, which becomes its root directory.
    pub root: PathBuf,
    /// User and group of the process; not 0.
    pub uid: u32,
    /// Limits of the process.
    pub limits: Limits,
    /// Directories of the host that the process may use. It cannot reach their parents.
    pub volumes: Vec<OwnedFd>,
}

/// The reason why a process could not be locked in. The process must then end.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// A system call failed.
    #[error("{call}: {source}")]
    Call {
        /// The system call.
        call: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// User 0 is not allowed in a jail.
    #[error("a jailed process may not have user 0")]
    Root,
    /// The path of the root directory contains a NUL byte.
    #[error("the path of the root directory contains a NUL byte")]
    Path,
    /// Landlock refused its rules.
    #[error("Landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// The seccomp filters could not be installed.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

/// Locks the calling process in for good. The process must have one thread, be in its own mount,
/// PID and network namespaces, and have the capabilities `CAP_SYS_ADMIN`, `CAP_SETPCAP`,
/// `CAP_SETUID` and `CAP_SETGID`. Result, if it has volumes: the directory of its own descriptors
/// (`/proc/self/fd`). No path leads to that directory, and it has no parent.
///
/// # Errors
/// [`JailError`]; some rights may be lost by then.
pub fn enter(jail: &Jail, filters: &Filters) -> Result<Option<OwnedFd>, JailError> {
    if jail.uid == 0 {
        return Err(JailError::Root);
    }
    // The guest decides the permissions of files in volumes.
    // SAFETY: no memory is involved.
    unsafe { libc::umask(0) };
    let descriptors = empty_root(jail)?;
    limit(&jail.limits)?;
    drop_capabilities()?;
    become_user(jail.uid)?;
    // Landlock and seccomp need this, and nothing here is to be executed anyway.
    check("PR_SET_NO_NEW_PRIVS", prctl(libc::PR_SET_NO_NEW_PRIVS, 1))?;
    // After the change of the user, which would reset this signal. A VMM that shall outlive the
    // daemon resets it later.
    check("PR_SET_PDEATHSIG", set_parent_death_signal(libc::SIGKILL))?;
    restrict_paths(&jail.volumes)?;
    report_violations()?;
    filters.confine_process(jail.role)?;
    Ok(descriptors)
}

/// Has the kernel send this process a signal when the daemon ends; 0: none.
pub fn set_parent_death_signal(signal: i32) -> i32 {
    prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong)
}

/// Replaces the host's files by an empty, read-only root directory. Result, if there are volumes:
/// the directory of this process's descriptors.
fn empty_root(jail: &Jail) -> Result<Option<OwnedFd>, JailError> {
    let path = |path: &OsStr| CString::new(path.as_bytes()).map_err(|_| JailError::Path);
    let root = path(jail.root.as_os_str())?;
    mount(c"none", c"/", libc::MS_REC | libc::MS_PRIVATE)?;
    let mut descriptors = None;
    if !jail.volumes.is_empty() {
        mount_as(c"proc", &root, c"proc", CLOSED)?;
        let own = path(jail.root.join("self/fd").as_os_str())?;
        descriptors = Some(mount_of(&own)?);
        // SAFETY: a NUL-terminated path.
        check("umount2", unsafe {
            libc::umount2(root.as_ptr(), libc::MNT_DETACH)
        })?;
    }
    mount(&root, &root, libc::MS_BIND)?;
    let closed = libc::MS_RDONLY | CLOSED;
    mount(c"none", &root, libc::MS_BIND | libc::MS_REMOUNT | closed)?;
    // SAFETY: NUL-terminated paths. The old root ends up on top of the new one, at the same
    // location, and is unmounted.
    unsafe {
        check("chdir", libc::chdir(root.as_ptr()))?;
        let here = c".".as_ptr();
        let pivoted = libc::syscall(libc::SYS_pivot_root, here, here);
        check("pivot_root", pivoted as i32)?;
        check("umount2", libc::umount2(here, libc::MNT_DETACH))?;
        check("chdir", libc::chdir(c"/".as_ptr()))?;
        // uname(2) would report the host's name.
        check("sethostname", libc::sethostname(here, 0))?;
    }
    Ok(descriptors)
}

fn mount(source: &CStr, target: &CStr, flags: libc::c_ulong) -> Result<(), JailError> {
    mount_as(source, target, c"", flags)
}

/// Mounts a file system of type `kind`; an empty `kind` means none.
fn mount_as(
    source: &CStr,
    target: &CStr,
    kind: &CStr,
    flags: libc::c_ulong,
) -> Result<(), JailError> {
    let none = std::ptr::null();
    // SAFETY: NUL-terminated strings; no data are passed.
    let done = unsafe {
        let (source, target, kind) = (source.as_ptr(), target.as_ptr(), kind.as_ptr());
        libc::mount(source, target, kind, flags, none)
    };
    check("mount", done)
}

/// A mount of a directory that exists only as the descriptor, so its parent cannot be reached.
fn mount_of(directory: &CStr) -> Result<OwnedFd, JailError> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: a NUL-terminated path; a fresh descriptor or an error.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            libc::AT_FDCWD,
            directory.as_ptr(),
            flags,
        )
    };
    check("open_tree", fd as i32)?;
    // SAFETY: fresh, with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

fn limit(limits: &Limits) -> Result<(), JailError> {
    for (resource, most) in [
        (libc::RLIMIT_NOFILE, limits.descriptors),
        (libc::RLIMIT_NPROC, limits.threads),
        (libc::RLIMIT_AS, limits.address_space),
        (libc::RLIMIT_CPU, limits.processor_time),
        (libc::RLIMIT_FSIZE, limits.file_length),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_MEMLOCK, 0),
        (libc::RLIMIT_MSGQUEUE, 0),
    ] {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        // SAFETY: a valid structure.
        check("setrlimit", unsafe { libc::setrlimit(resource, &limit) })?;
    }
    // A write beyond the limit must fail, not end the process.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    Ok(())
}

/// Removes all capabilities from the bounding set, also for programs that would gain them. The
/// process's own capabilities are lost when it changes its user.
pub(crate) fn drop_capabilities() -> Result<(), JailError> {
    for capability in 0..libc::c_ulong::from(u64::BITS) {
        if prctl(libc::PR_CAPBSET_DROP, capability) != 0 {
            let source = io::Error::last_os_error();
            // The last capability has been dropped.
            if capability > 0 && source.raw_os_error() == Some(libc::EINVAL) {
                break;
            }
            let call = "PR_CAPBSET_DROP";
            return Err(JailError::Call { call, source });
        }
    }
    let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
    check("PR_CAP_AMBIENT", prctl(libc::PR_CAP_AMBIENT, clear))
}

/// Changes user and group to `uid` for good.
pub(crate) fn become_user(uid: u32) -> Result<(), JailError> {
    // SAFETY: no groups are passed; integers.
    unsafe {
        check("setgroups", libc::setgroups(0, std::ptr::null()))?;
        check("setresgid", libc::setresgid(uid, uid, uid))?;
        check("setresuid", libc::setresuid(uid, uid, uid))
    }
}

/// Restricts the process with Landlock: paths only into volumes, no TCP, no signals and abstract
/// sockets to other processes. Older kernels restrict only what they support; seccomp denies all of
/// it too.
fn restrict_paths(volumes: &[OwnedFd]) -> Result<(), JailError> {
    let all = AccessFs::from_all(LANDLOCK);
    let mut rules = Ruleset::default()
        .handle_access(all)?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?;
    for volume in volumes {
        rules = rules.add_rule(PathBeneath::new(volume, all))?;
    }
    rules.restrict_self()?;
    Ok(())
}

fn prctl(operation: i32, argument: libc::c_ulong) -> i32 {
    let zero: libc::c_ulong = 0;
    // SAFETY: the operations used here take an integer.
    unsafe { libc::prctl(operation, argument, zero, zero, zero) }
}

fn check(call: &'static str, result: i32) -> Result<(), JailError> {
    match result {
        -1 => Err(JailError::Call {
            call,
            source: io::Error::last_os_error(),
        }),
        _ => Ok(()),
    }
}
