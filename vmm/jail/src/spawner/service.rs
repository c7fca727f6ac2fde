//! The connection to the service. The spawner starts the service, this program again, which drops
//! all privileges; or a service manager has started it, with none, and it connects.

use super::network::Unavailable;
use super::{SpawnerError, Unenforced, host};
use crate::{Channel, Child};
use hartline_vmm::platform::NoCoreScheduling;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, Command};

/// The first argument of the service. The spawner adds the service's user and the data directory; a
/// service manager adds the path of the spawner's socket.
pub const ARGUMENT: &str = "service";
/// Descriptor of the service's end of the channel.
pub(super) const CHANNEL_FD: RawFd = 3;
/// systemd's variable has the spawner's number, and the service is another process.
const WATCHDOG_PID: &str = "WATCHDOG_PID";

/// The first message to the service. Its descriptors: `/dev/kvm`, the lock of the data directory,
/// and, if `has_tls`, the files of the certificates and the private key.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The configuration, which the spawner does not read.
    pub configuration: String,
    /// The data directory, an absolute path without symbolic links.
    pub data: PathBuf,
    /// The reason why cgroups enforce no limits; `None` if they do.
    pub unenforced: Option<Unenforced>,
    /// The reason why tenants may share cores; `None` if they do not.
    pub no_cores: Option<NoCoreScheduling>,
    /// Whether there are networks.
    pub networks: Result<(), Unavailable>,
    /// Two more descriptors come with this.
    pub has_tls: bool,
}

/// The running service.
#[derive(Debug)]
pub(super) struct Service {
    /// The service's process; `None` if the spawner has not started it.
    started: Option<Started>,
    /// The spawner's end of the channel.
    pub channel: Channel,
}

/// A child process of the spawner.
#[derive(Debug)]
struct Started {
    process: process::Child,
    child: Child,
}

impl Service {
    /// Starts the service as a user.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub(super) fn start(
        uid: u32,
        data: &Path,
        hello: &Hello,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Self, SpawnerError> {
        let start = || -> io::Result<Self> {
            let (channel, theirs) = Channel::pair()?;
            greet(&channel, hello, descriptors)?;
            let mut command = Command::new("/proc/self/exe");
            command
                .arg0("hartlined")
                .args([ARGUMENT, &uid.to_string()])
                .arg(data)
                .env_remove(WATCHDOG_PID);
            let fd = theirs.as_fd().as_raw_fd();
            // SAFETY: `pass` runs in the forked child. It only makes system calls, so it needs no lock
            // that another thread may have held, and `theirs` is open until `spawn` returns.
            unsafe { command.pre_exec(move || pass(fd)) };
            let process = command.spawn()?;
            let pid = i32::try_from(process.id()).map_err(io::Error::other)?;
            let child = Child::find(pid)?.ok_or(io::ErrorKind::NotFound)?;
            let started = Some(Started { process, child });
            Ok(Self { started, channel })
        };
        start().map_err(host("the service"))
    }

    /// Accepts a connected process as the service, if it has the user `uid`.
    ///
    /// # Errors
    /// [`SpawnerError::Stranger`], or any I/O error of the host.
    pub(super) fn accept(
        channel: Channel,
        uid: u32,
        hello: &Hello,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Self, SpawnerError> {
        let peer = channel.peer_user().map_err(host("the service"))?;
        if peer != uid {
            return Err(SpawnerError::Stranger { peer, uid });
        }
        greet(&channel, hello, descriptors).map_err(host("the service"))?;
        let started = None;
        Ok(Self { started, channel })
    }

    /// A descriptor that is readable once the service has ended; `None` if only its end of the
    /// channel shows that.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let started = self.started.as_ref()?;
        Some(started.child.descriptor())
    }

    /// Sends a signal to the service. Result: whether it was sent: a service manager sends signals
    /// to the service that it has started.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        match &self.started {
            Some(started) => started.child.signal(signal).map(|()| true),
            None => Ok(false),
        }
    }

    /// The service's exit code; 0 if the spawner has not started it. It must have ended.
    ///
    /// # Errors
    /// A signal has ended the service.
    pub(super) fn exit_code(&mut self) -> Result<u8, SpawnerError> {
        let Some(started) = &mut self.started else {
            return Ok(0);
        };
        let status = started.process.wait().map_err(host("the service"))?;
        match (status.code(), status.signal()) {
            (Some(code), _) => Ok(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, signal) => Err(SpawnerError::Killed(signal.unwrap_or(0))),
        }
    }
}

/// Sends the service its first message.
fn greet(channel: &Channel, hello: &Hello, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let hello = serde_json::to_vec(hello)?;
    channel.send(&hello, descriptors).map_err(|error| {
        let text = format!("the configuration has {} bytes: {error}", hello.len());
        io::Error::new(error.kind(), text)
    })
}

/// Puts the channel at the service's number, closes all other descriptors except the standard ones,
/// and unblocks signals. Runs in a newly forked process.
fn pass(channel: RawFd) -> io::Result<()> {
    // SAFETY: this process is newly forked and executes a program next: nothing in it uses the
    // descriptors that are replaced or closed by that. The set of signals is on the stack, and is
    // emptied before it is read.
    unsafe {
        let after = CHANNEL_FD + 1;
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        let passed = match channel == CHANNEL_FD {
            // dup2 to the same number would keep the close-on-exec flag.
            true => libc::fcntl(channel, libc::F_SETFD, 0),
            false => libc::dup2(channel, CHANNEL_FD),
        };
        if passed == -1 || libc::syscall(libc::SYS_close_range, after, u32::MAX, flags) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
    Ok(())
}
