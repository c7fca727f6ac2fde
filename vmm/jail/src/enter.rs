//! Drops the rights of a process before it reads untrusted data.

use super::violation::report_violations;
use super::{FilterError, Filters, Limits, Role};
use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind,
    mount_change, mount_remount, open_tree, unmount,
};
use rustix::process::{
    Gid, Resource, Rlimit, Signal, Uid, chdir, pivot_root, set_parent_process_death_signal,
    setrlimit, umask,
};
use rustix::stdio::{dup2_stdin, stdin, stdout};
use rustix::system::sethostname;
use rustix::thread::{
    CapabilitySet, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Mount flags of everything that a jailed process may see.
const CLOSED: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);

/// The newest Landlock ABI whose rights are restricted, if the kernel supports them.
const LANDLOCK: ABI = ABI::V7;

/// The jail of a process.
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

/// The reason why a process could not enter its jail. The process must then end.
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
    /// The process that started this one has ended.
    #[error("hartlined has ended meanwhile")]
    Orphan,
    /// Landlock refused its rules.
    #[error("Landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// The seccomp filters could not be installed.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

/// Moves the calling process into its jail permanently. The process must be one that
/// [`spawn`](super::spawn()) has started. It must have one thread, be in its own mount, PID and
/// network namespaces, and have the capabilities `CAP_SYS_ADMIN`, `CAP_SETPCAP`, `CAP_SETUID` and
/// `CAP_SETGID`. Result, if the process has volumes: the directory
/// of its descriptors (`/proc/self/fd`). No path leads to that directory, and it has no parent.
///
/// # Errors
/// [`JailError`]; some rights may be lost by then.
pub fn enter(jail: &Jail) -> Result<Option<OwnedFd>, JailError> {
    if jail.uid == 0 {
        return Err(JailError::Root);
    }
    // The guest decides the permissions of files in volumes.
    umask(Mode::empty());
    let descriptors = empty_root(jail)?;
    limit(&jail.limits)?;
    drop_capabilities()?;
    become_user(jail.uid)?;
    // Landlock and seccomp need this. The process executes no programs.
    set_no_new_privs(true).map_err(failed("PR_SET_NO_NEW_PRIVS"))?;
    // After the change of the user, which would reset this signal. A VMM that shall outlive the
    // daemon resets it later.
    let ended = set_parent_process_death_signal(Some(Signal::KILL));
    ended.map_err(failed("PR_SET_PDEATHSIG"))?;
    check_parent()?;
    restrict_paths(&jail.volumes)?;
    report_violations()?;
    Filters.confine_process(jail.role)?;
    Ok(descriptors)
}

/// Fails if the parent has ended already: then its end sends no signal. Standard input, which refers to the parent
/// until now, becomes what standard output is.
fn check_parent() -> Result<(), JailError> {
    let input = stdin();
    let mut parent = [PollFd::new(&input, PollFlags::IN)];
    let ended = poll(&mut parent, Some(&Timespec::default())).map_err(failed("poll"))?;
    dup2_stdin(stdout()).map_err(failed("dup2"))?;
    match ended {
        0 => Ok(()),
        _ => Err(JailError::Orphan),
    }
}

/// Replaces the host's files by an empty, read-only root directory. Result, if there are volumes:
/// the directory of this process's descriptors.
fn empty_root(jail: &Jail) -> Result<Option<OwnedFd>, JailError> {
    let root = jail.root.as_path();
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private).map_err(failed("mount"))?;
    let mut descriptors = None;
    if !jail.volumes.is_empty() {
        mount("proc", root, "proc", CLOSED, None).map_err(failed("mount"))?;
        // A mount that exists only as the descriptor, so its parent cannot be reached.
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let own = open_tree(CWD, root.join("self/fd"), flags);
        descriptors = Some(own.map_err(failed("open_tree"))?);
        unmount(root, UnmountFlags::DETACH).map_err(failed("umount2"))?;
    }
    mount_bind(root, root).map_err(failed("mount"))?;
    let closed = MountFlags::BIND | MountFlags::RDONLY | CLOSED;
    mount_remount(root, closed, "").map_err(failed("mount"))?;
    chdir(root).map_err(failed("chdir"))?;
    // The old root ends up on top of the new one, at the same location, and is unmounted.
    pivot_root(".", ".").map_err(failed("pivot_root"))?;
    unmount(".", UnmountFlags::DETACH).map_err(failed("umount2"))?;
    chdir("/").map_err(failed("chdir"))?;
    // uname(2) would report the host's name.
    sethostname(b"").map_err(failed("sethostname"))?;
    Ok(descriptors)
}

fn limit(limits: &Limits) -> Result<(), JailError> {
    for (resource, most) in [
        (Resource::Nofile, limits.descriptors),
        (Resource::Nproc, limits.threads),
        (Resource::As, limits.address_space),
        (Resource::Cpu, limits.processor_time),
        (Resource::Fsize, limits.file_length),
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
    ] {
        // `RLIM_INFINITY` is a number here, and none in `Rlimit`.
        let most = (most != libc::RLIM_INFINITY).then_some(most);
        let limit = Rlimit {
            current: most,
            maximum: most,
        };
        setrlimit(resource, limit).map_err(failed("setrlimit"))?;
    }
    // A write beyond the limit must fail, not end the process.
    // SAFETY: the signal is ignored from now on: no handler runs, and nothing in this process relies
    // on the default action, which would end it. `rustix` leaves signal actions to the C library.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    Ok(())
}

/// Removes all capabilities from the bounding set, also for programs that would gain them. The
/// process's own capabilities are lost when it changes its user.
pub(crate) fn drop_capabilities() -> Result<(), JailError> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The last capability has been dropped.
            Err(Errno::INVAL) if number > 0 => break,
            Err(error) => return Err(failed("PR_CAPBSET_DROP")(error)),
        }
    }
    clear_ambient_capability_set().map_err(failed("PR_CAP_AMBIENT"))
}

/// Changes user and group to `uid` permanently. The process must have one thread.
pub(crate) fn become_user(uid: u32) -> Result<(), JailError> {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
    set_thread_groups(&[]).map_err(failed("setgroups"))?;
    set_thread_res_gid(group, group, group).map_err(failed("setresgid"))?;
    set_thread_res_uid(user, user, user).map_err(failed("setresuid"))
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

/// The error of a system call.
pub(crate) fn failed(call: &'static str) -> impl FnOnce(Errno) -> JailError {
    move |error| JailError::Call {
        call,
        source: error.into(),
    }
}
