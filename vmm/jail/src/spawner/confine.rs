//! Drops the service's privileges before it reads anything.

use super::reach::make_reachable;
use super::service::CHANNEL_FD;
use crate::{Channel, JailError, become_user, drop_capabilities, failed};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitiesSecureBits, set_capabilities_secure_bits, set_name, set_no_new_privs,
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
    /// The spawner did not start the process.
    #[error("usage: service UID DATA, by hartlined only")]
    Usage,
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
/// data directory. Result: the channel to the spawner, and that directory.
///
/// # Errors
/// [`ConfineError`]; some rights may be lost by then.
pub fn enter(arguments: &[String]) -> Result<(Channel, PathBuf), ConfineError> {
    let [uid, data] = arguments else {
        return Err(ConfineError::Usage);
    };
    let uid: u32 = uid.parse().map_err(|_| ConfineError::Usage)?;
    let data = Path::new(data);
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
    set_no_new_privs(true).map_err(failed("PR_SET_NO_NEW_PRIVS"))?;
    // Other processes of the same user must not read its memory, which contains keys.
    let undumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    undumpable.map_err(failed("PR_SET_DUMPABLE"))?;
    // After the change of the user, which would reset this signal. If the spawner has ended
    // already, the channel's end shows it.
    let ended = set_parent_process_death_signal(Some(Signal::KILL));
    ended.map_err(failed("PR_SET_PDEATHSIG"))?;
    Ok((channel, data.to_path_buf()))
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
