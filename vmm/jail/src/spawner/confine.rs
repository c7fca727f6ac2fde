//! Drops the service's privileges before it reads anything.

use super::reach::make_reachable;
use super::service::CHANNEL_FD;
use crate::{Channel, JailError, become_user, drop_capabilities, set_parent_death_signal};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Programs get no capabilities by their user, and none can be kept (capabilities(7), "The
/// securebits flags").
const SECURE_BITS: libc::c_ulong = SECBIT_NOROOT
    | SECBIT_NOROOT << 1
    | SECBIT_KEEP_CAPS << 1
    | SECBIT_NO_CAP_AMBIENT_RAISE
    | SECBIT_NO_CAP_AMBIENT_RAISE << 1;
const SECBIT_NOROOT: libc::c_ulong = 1 << 0;
const SECBIT_KEEP_CAPS: libc::c_ulong = 1 << 4;
const SECBIT_NO_CAP_AMBIENT_RAISE: libc::c_ulong = 1 << 6;

/// The reason why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The spawner did not start the process.
    #[error("usage: service UID DATA, by hartlined only")]
    Usage,
    /// The data directory cannot be made reachable.
    #[error("{}: the service cannot be let into the data directory: {source}", path.display())]
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
    // SAFETY: no memory is involved; fails if the descriptor is not open, and makes exec close it.
    if uid == 0 || unsafe { libc::fcntl(CHANNEL_FD, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(ConfineError::Usage);
    }
    // SAFETY: the descriptor is open, and nothing else in this process owns it.
    let channel = Channel::from(unsafe { OwnedFd::from_raw_fd(CHANNEL_FD) });
    // The process was executed by a path without a useful name.
    // SAFETY: a NUL-terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"hartlined".as_ptr()) };
    make_reachable(data).map_err(|source| ConfineError::Reach {
        path: data.to_path_buf(),
        source,
    })?;
    drop_capabilities()?;
    prctl("PR_SET_SECUREBITS", libc::PR_SET_SECUREBITS, SECURE_BITS)?;
    become_user(uid)?;
    prctl("PR_SET_NO_NEW_PRIVS", libc::PR_SET_NO_NEW_PRIVS, 1)?;
    // Other processes of the same user must not read its memory, which contains keys.
    prctl("PR_SET_DUMPABLE", libc::PR_SET_DUMPABLE, 0)?;
    // After the change of the user, which would reset this signal. If the spawner has ended
    // already, the channel's end shows it.
    check("PR_SET_PDEATHSIG", set_parent_death_signal(libc::SIGKILL))?;
    Ok((channel, data.to_path_buf()))
}

fn prctl(call: &'static str, operation: i32, argument: libc::c_ulong) -> Result<(), JailError> {
    let zero: libc::c_ulong = 0;
    // SAFETY: the operations used here take an integer.
    check(call, unsafe {
        libc::prctl(operation, argument, zero, zero, zero)
    })
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
