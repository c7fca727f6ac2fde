//! What a process takes away from itself before it looks at anything of a stranger's.

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

/// How everything is mounted that a jailed process may see.
const CLOSED: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;

/// The newest Landlock interface whose rights are taken away, where the kernel has them.
const LANDLOCK: ABI = ABI::V7;

/// What a process is to be locked into.
#[derive(Debug)]
pub struct Jail {
    /// What it is there for.
    pub role: Role,
    /// An empty directory of the host, which becomes its root directory.
    pub root: PathBuf,
    /// Its user and group; not 0.
    pub uid: u32,
    /// Its limits.
    pub limits: Limits,
    /// Directories of the host that it may use, nothing above them.
    pub volumes: Vec<OwnedFd>,
}

/// Why a process could not be locked in. It must end then.
#[derive(Debug, thiserror::Error)]
pub enum JailError {
    /// A system call failed.
    #[error("{call}: {source}")]
    Call {
        /// Which.
        call: &'static str,
        /// Why.
        source: io::Error,
    },
    /// User 0 is no user for a jail.
    #[error("a jailed process may not have user 0")]
    Root,
    /// The root directory's path.
    #[error("the path of the root directory contains a NUL byte")]
    Path,
    /// Landlock refused its rules.
    #[error("Landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// seccomp.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

/// Locks the calling process in for good. It must have one thread, be in mount, PID and
/// network namespaces of its own, and have the capabilities `CAP_SYS_ADMIN`, `CAP_SETPCAP`,
/// `CAP_SETUID` and `CAP_SETGID`. Result, if it has volumes: the directory of its own
/// descriptors (`/proc/self/fd`), to which no path leads and that has nothing above.
///
/// # Errors
/// [`JailError`]; some rights may be gone by then.
pub fn enter(jail: &Jail, filters: &Filters) -> Result<Option<OwnedFd>, JailError> {
    if jail.uid == 0 {
        return Err(JailError::Root);
    }
    // What files of volumes are to allow, the guest decides.
    // SAFETY: no memory is involved.
    unsafe { libc::umask(0) };
    let descriptors = empty_root(jail)?;
    limit(&jail.limits)?;
    drop_capabilities()?;
    become_user(jail.uid)?;
    // Landlock and seccomp need it, and nothing here is to be executed anyway.
    check("PR_SET_NO_NEW_PRIVS", prctl(libc::PR_SET_NO_NEW_PRIVS, 1))?;
    // After the user changed, which would forget it. The daemon decides otherwise for VMs
    // that shall outlive it.
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

/// Leaves nothing of the host's files but an empty, read-only directory. Result, if there
/// are volumes: the directory of this process's descriptors.
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
    // SAFETY: NUL-terminated paths. The old root ends up on top of the new one, at the
    // same place, and is taken off.
    unsafe {
        check("chdir", libc::chdir(root.as_ptr()))?;
        let here = c".".as_ptr();
        let pivoted = libc::syscall(libc::SYS_pivot_root, here, here);
        check("pivot_root", pivoted as i32)?;
        check("umount2", libc::umount2(here, libc::MNT_DETACH))?;
        check("chdir", libc::chdir(c"/".as_ptr()))?;
        // uname(2) tells it.
        check("sethostname", libc::sethostname(here, 0))?;
    }
    Ok(descriptors)
}

fn mount(source: &CStr, target: &CStr, flags: libc::c_ulong) -> Result<(), JailError> {
    mount_as(source, target, c"", flags)
}

/// Mounts a file system of a type; of none if that is empty.
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

/// A mount of a directory that is nowhere but in the descriptor: what is above is not there.
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
    // SAFETY: fresh, owned by nobody else.
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
    // Writing beyond the limit is to fail, not to end the process.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    Ok(())
}

/// Takes all capabilities out of reach, also of programs that would give them. Those that
/// the process has go with its user.
pub(crate) fn drop_capabilities() -> Result<(), JailError> {
    for capability in 0..libc::c_ulong::from(u64::BITS) {
        if prctl(libc::PR_CAPBSET_DROP, capability) != 0 {
            let source = io::Error::last_os_error();
            // There are no more.
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

/// Becomes a user, and its group, for good.
pub(crate) fn become_user(uid: u32) -> Result<(), JailError> {
    // SAFETY: no groups are passed; integers.
    unsafe {
        check("setgroups", libc::setgroups(0, std::ptr::null()))?;
        check("setresgid", libc::setresgid(uid, uid, uid))?;
        check("setresuid", libc::setresuid(uid, uid, uid))
    }
}

/// No path leads anywhere but into volumes, whatever the file system has; no TCP; no
/// signals and abstract sockets out of here. On older kernels only what they know: seccomp
/// denies it all too.
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
