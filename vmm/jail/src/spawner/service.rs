//! Starting the service: this program again, which drops all privileges.

use super::network::Unavailable;
use super::{SpawnerError, Unenforced, host};
use crate::{Channel, Child};
use hartline_vmm::platform::NoCoreScheduling;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{self, Command};

/// The first argument of the service, before its user and the data directory.
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
    process: process::Child,
    child: Child,
    /// The spawner's end of the channel.
    pub channel: Channel,
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
            let hello = serde_json::to_vec(hello)?;
            channel.send(&hello, descriptors).map_err(|error| {
                let text = format!("the configuration has {} bytes: {error}", hello.len());
                io::Error::new(error.kind(), text)
            })?;
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
            Ok(Self {
                process,
                child,
                channel,
            })
        };
        start().map_err(host("the service"))
    }

    /// A descriptor that is readable once the service has ended.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.child.descriptor()
    }

    /// Sends a signal to the service.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        self.child.signal(signal)
    }

    /// The service's exit code. It must have ended.
    ///
    /// # Errors
    /// A signal has ended the service.
    pub(super) fn exit_code(&mut self) -> Result<u8, SpawnerError> {
        let status = self.process.wait().map_err(host("the service"))?;
        match (status.code(), status.signal()) {
            (Some(code), _) => Ok(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, signal) => Err(SpawnerError::Killed(signal.unwrap_or(0))),
        }
    }
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
