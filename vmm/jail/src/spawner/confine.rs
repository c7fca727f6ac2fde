//! Makes sure that the service has no privileges before it reads anything.

use super::reach::make_reachable;
use super::service::CHANNEL_FD;
use crate::{Channel, JailError, become_user, drop_capabilities, failed};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    DumpableBehavior, Signal, getuid, set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitiesSecureBits, capabilities, set_capabilities_secure_bits, set_name, set_no_new_privs,
};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Programs get no capabilities by their user, and none can be kept (capabilities(7), "The
/// securebits flags").
const SECURE_BITS: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
    .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
    .union(CapabilitiesSecureBits::KEEP_CAPS_LOCKED)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);

/// The reason why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Neither the spawner nor a service manager started the process.
    #[error("usage: service UID DATA, by hartlined only; or service SOCKET, by a service manager")]
    Usage,
    /// The service manager gave the process privileges.
    #[error(
        "the service must have no privileges: start it as a user other than root, without \
         capabilities (systemd: User=, CapabilityBoundingSet=)"
    )]
    Privileged,
    /// The spawner cannot be reached.
    #[error("{}: cannot connect to the spawner: {source}", socket.display())]
    Connect {
        /// The spawner's socket.
        socket: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The data directory cannot be made reachable.
    #[error("{}: cannot give the service access to the data directory: {source}", path.display())]
    Reach {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A system call failed.
    #[error(transparent)]
    Jail(#[from] JailError),
}

/// Turns this process, which has one thread, into the service. `arguments` are its user and the
/// data directory if the spawner has started it, or the spawner's socket if a service manager has.
/// Result: the channel to the spawner.
///
/// # Errors
/// [`ConfineError`]; some rights may be lost by then.
pub fn enter(arguments: &[String]) -> Result<Channel, ConfineError> {
    match arguments {
        [uid, data] => confine(uid, Path::new(data)),
        [socket] => connect(Path::new(socket)),
        _ => Err(ConfineError::Usage),
    }
}

/// Gives up root's rights. The process is a child of the spawner.
fn confine(uid: &str, data: &Path) -> Result<Channel, ConfineError> {
    let uid: u32 = uid.parse().map_err(|_| ConfineError::Usage)?;
    let channel = channel().ok_or(ConfineError::Usage)?;
    if uid == 0 {
        return Err(ConfineError::Usage);
    }
    // The process was executed by a path without a useful name.
    let _ = set_name(c"hartlined");
    make_reachable(data).map_err(|source| ConfineError::Reach {
        path: data.to_path_buf(),
        source,
    })?;
    drop_capabilities()?;
    set_capabilities_secure_bits(SECURE_BITS).map_err(failed("PR_SET_SECUREBITS"))?;
    become_user(uid)?;
    seal()?;
    // After the change of the user, which would reset this signal. If the spawner has ended
    // already, the channel's end shows it.
    let ended = set_parent_process_death_signal(Some(Signal::KILL));
    ended.map_err(failed("PR_SET_PDEATHSIG"))?;
    Ok(channel)
}

/// Connects to the spawner. A service manager has started this process without privileges.
fn connect(socket: &Path) -> Result<Channel, ConfineError> {
    let own = capabilities(None).map_err(failed("capget"))?;
    if getuid().is_root() || !own.permitted.is_empty() {
        return Err(ConfineError::Privileged);
    }
    seal()?;
    Channel::connect(socket).map_err(|source| ConfineError::Connect {
        socket: socket.to_path_buf(),
        source,
    })
}

/// Keeps this process from gaining privileges, and other processes from reading its memory.
fn seal() -> Result<(), JailError> {
    set_no_new_privs(true).map_err(failed("PR_SET_NO_NEW_PRIVS"))?;
    // Other processes of the same user must not read its memory, which contains keys.
    let undumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    undumpable.map_err(failed("PR_SET_DUMPABLE"))
}

/// The channel that the spawner put at its number; `None` if nothing is open there. The process
/// must not have taken it before.
fn channel() -> Option<Channel> {
    // SAFETY: used for one call, which fails if the descriptor is not open.
    let passed = unsafe { BorrowedFd::borrow_raw(CHANNEL_FD) };
    fcntl_setfd(passed, FdFlags::CLOEXEC).ok()?;
    // SAFETY: the descriptor is open, and this process has opened nothing yet that owns it: it is
    // taken once, at the start.
    Some(Channel::from(unsafe { OwnedFd::from_raw_fd(CHANNEL_FD) }))
}
