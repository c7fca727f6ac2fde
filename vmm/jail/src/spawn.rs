//! Starting a jailed process: this program again, in its own namespaces.

use super::{Channel, Role};
use hartline_vmm::platform::CounterFile;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Descriptor of the jailed process's end of the channel.
pub const CHANNEL_FD: RawFd = 3;
/// Descriptor of `/dev/kvm` in a VMM.
pub const DEVICE_FD: RawFd = 4;
/// First of the descriptors of volumes in a VMM that has them, one after the other.
pub const VOLUME_FD: RawFd = 5;

/// Descriptor of an interactive VMM that keeps its program's standard input open: the other
/// end of the socket that the program reads. The daemon takes a duplicate when somebody
/// attaches, also one that was started later. Above all that a VMM opens itself.
pub const INPUT_FD: RawFd = 1000;
/// Descriptor of a VMM that is open on its network interface, by which a daemon that was
/// started later finds the network.
pub const NETWORK_FD: RawFd = INPUT_FD + 1;
/// Descriptor of a VMM that is open on its [counters](hartline_vmm::live), by which any daemon reads
/// them while the VM runs.
pub const COUNTERS_FD: RawFd = INPUT_FD + 2;
/// Descriptor of a VMM that is open on the file for its result, from when it has that: there it
/// reports a [violation](super::Violation).
pub const RESULT_FD: RawFd = INPUT_FD + 3;

/// Number of `/dev/net/tun` (the kernel's Documentation/admin-guide/devices.txt).
const TUN_DEVICE: libc::dev_t = libc::makedev(10, 200);

/// Namespaces that a jailed process gets.
const NAMESPACES: i32 = libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// A process that this daemon started, or found again.
#[derive(Debug)]
pub struct Child {
    /// Its number in the daemon's PID namespace.
    pid: libc::pid_t,
    /// Refers to the process even if another process has got its number.
    descriptor: OwnedFd,
}

impl Child {
    /// The process with a number, if there is one.
    ///
    /// # Errors
    /// Any I/O error of the host except [`io::ErrorKind::NotFound`], which is `None`.
    pub fn find(pid: libc::pid_t) -> io::Result<Option<Self>> {
        // SAFETY: integers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if fd < 0 {
            return match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
                error => Err(error),
            };
        }
        // SAFETY: a fresh descriptor that has no other owner.
        let descriptor = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        Ok(Some(Self::new(pid, descriptor)))
    }

    /// The process with this number, which the descriptor names.
    #[must_use]
    pub fn new(pid: libc::pid_t, descriptor: OwnedFd) -> Self {
        Self { pid, descriptor }
    }

    /// Its number in the daemon's PID namespace.
    #[must_use]
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Start time in clock ticks since the host's boot (proc(5), `starttime`). Together with the
    /// number it identifies a process until the host reboots.
    ///
    /// # Errors
    /// The process is gone.
    pub fn start_time(&self) -> io::Result<u64> {
        self.stat_fields(19).map(|[time]| time)
    }

    /// Processor time that all its threads have used so far (proc(5), `utime` and `stime`).
    ///
    /// # Errors
    /// The process is gone.
    pub fn processor_time(&self) -> io::Result<Duration> {
        let [user, system] = self.stat_fields(11)?;
        // SAFETY: no memory is involved.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        let ticks = u64::try_from(ticks).ok().filter(|&ticks| ticks > 0);
        let ticks = ticks.ok_or(io::ErrorKind::Unsupported)?;
        let used = user.saturating_add(system);
        Ok(Duration::from_millis(used.saturating_mul(1000) / ticks))
    }

    /// Consecutive fields of `/proc/PID/stat`, from the field `first` on; field 0 is the first one
    /// after the name.
    fn stat_fields<const N: usize>(&self, first: usize) -> io::Result<[u64; N]> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        // The name in parentheses may contain anything.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut fields = rest.split_whitespace().skip(first).map(str::parse);
        let mut found = [0; N];
        for field in &mut found {
            let next = fields.next().and_then(Result::ok);
            *field = next.ok_or(io::ErrorKind::InvalidData)?;
        }
        Ok(found)
    }

    /// A descriptor that is readable once the process has ended.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.descriptor.as_fd()
    }

    /// Sends the process a signal. A process that has ended is no error.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let none = std::ptr::null::<libc::siginfo_t>();
        let fd = self.descriptor.as_raw_fd();
        // SAFETY: no signal information is passed.
        let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, 0) };
        match io::Error::last_os_error() {
            _ if sent == 0 => Ok(()),
            error if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            error => Err(error),
        }
    }

    /// A duplicate of one of the process's descriptors, which must be a stream socket. With other
    /// descriptors a compromised process could make this process write to a target of its choice.
    ///
    /// # Errors
    /// The process has ended, the descriptor is closed or of another kind, or permission is denied.
    pub fn take_socket(&self, number: RawFd) -> io::Result<UnixStream> {
        let socket = self.duplicate(number)?;
        let fd = socket.as_raw_fd();
        let option = |name| {
            let mut value: libc::c_int = 0;
            let mut length = size_of_val(&value) as libc::socklen_t;
            let to = (&raw mut value).cast();
            // SAFETY: the kernel writes an integer, whose length is given.
            match unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, to, &mut length) } {
                0 => Ok(value),
                _ => Err(io::Error::last_os_error()),
            }
        };
        let (domain, kind) = (option(libc::SO_DOMAIN)?, option(libc::SO_TYPE)?);
        match (domain, kind) {
            (libc::AF_UNIX, libc::SOCK_STREAM) => Ok(socket.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// A duplicate of one of the process's descriptors, which must be of the device of TAP
    /// interfaces. The process cannot have such a descriptor unless it was passed one.
    ///
    /// # Errors
    /// As [`take_socket`](Self::take_socket).
    pub fn take_tap(&self, number: RawFd) -> io::Result<File> {
        let file = File::from(self.duplicate(number)?);
        let metadata = file.metadata()?;
        match metadata.file_type().is_char_device() && metadata.rdev() == TUN_DEVICE {
            true => Ok(file),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// A duplicate of one of the process's descriptors, which must be of a regular file or memory:
    /// reading others may block for ever.
    ///
    /// # Errors
    /// As [`take_socket`](Self::take_socket).
    pub fn take_file(&self, number: RawFd) -> io::Result<File> {
        let file = File::from(self.duplicate(number)?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// A duplicate of one of the process's descriptors, which must be of KVM's counters of a vCPU.
    ///
    /// # Errors
    /// As [`take_socket`](Self::take_socket).
    pub fn take_counters(&self, number: RawFd) -> io::Result<CounterFile> {
        CounterFile::from_descriptor(self.duplicate(number)?)
    }

    /// A duplicate of one of the process's descriptors, of any kind.
    fn duplicate(&self, number: RawFd) -> io::Result<OwnedFd> {
        let own = self.descriptor.as_raw_fd();
        // SAFETY: integers; a fresh descriptor or an error.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, own, number, 0) };
        match fd {
            ..0 => Err(io::Error::last_os_error()),
            // SAFETY: a fresh descriptor that has no other owner.
            fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }),
        }
    }

    /// The signal that has ended the process, if one has. `None` too if the process runs, or is not
    /// a child of this process.
    #[must_use]
    pub fn ended_by(&self) -> Option<i32> {
        let id = self.descriptor.as_raw_fd() as libc::id_t;
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: a valid structure for the answer; all zeros are one. The kernel sets the fields
        // that describe a child's end.
        unsafe {
            if libc::waitid(libc::P_PIDFD, id, info.as_mut_ptr(), options) != 0 {
                return None;
            }
            let info = info.assume_init();
            let by_signal = matches!(info.si_code, libc::CLD_KILLED | libc::CLD_DUMPED);
            (info.si_signo == libc::SIGCHLD && by_signal).then(|| info.si_status())
        }
    }

    /// Waits until the process has ended; `false` if it has not within `time`.
    #[must_use]
    pub fn wait(&self, time: Duration) -> bool {
        let mut poll = libc::pollfd {
            fd: self.descriptor.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let time = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one valid entry.
        unsafe { libc::poll(&mut poll, 1, time) == 1 }
    }

    /// Reaps a child that has ended. Does nothing to a process that runs, or is not a child of this
    /// process.
    pub fn reap(&self) {
        let id = self.descriptor.as_raw_fd() as libc::id_t;
        let options = libc::WEXITED | libc::WNOHANG;
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: a valid structure for the answer, which is not read.
        unsafe { libc::waitid(libc::P_PIDFD, id, info.as_mut_ptr(), options) };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.reap();
    }
}

/// Starts `program` (an open executable file) as a jailed process. `root` is an empty directory
/// that becomes its root directory, `uid` its user and group. It gets one end of a channel as
/// [`CHANNEL_FD`], `device` as [`DEVICE_FD`] and `volumes`, directories, from [`VOLUME_FD`] on. The
/// other end of the channel is the result. Standard error stays this process's: errors of locking
/// itself in appear there.
///
/// # Errors
/// Any I/O error of the host. A later failure shows as the end of the channel.
pub fn spawn(
    program: &File,
    role: Role,
    root: &Path,
    uid: u32,
    device: Option<BorrowedFd<'_>>,
    volumes: &[OwnedFd],
) -> io::Result<(Child, Channel)> {
    let text = |text: &str| CString::new(text).map_err(io::Error::from);
    let root = root.to_str().ok_or(io::ErrorKind::InvalidInput)?;
    let arguments = [
        text("hartlined")?,
        text("jailed")?,
        text(role.name())?,
        text(root)?,
        text(&uid.to_string())?,
    ];
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|a| a.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let (here, there) = Channel::pair()?;
    // Above all numbers that the child's own descriptors are put at.
    let end = RawFd::try_from(volumes.len()).map_err(io::Error::other)? + VOLUME_FD;
    let above = |fd: RawFd| above(fd, end);
    let there = above(there.as_raw_fd())?;
    let null = above(null.as_raw_fd())?;
    let device = device.map(|device| above(device.as_raw_fd())).transpose()?;
    let program = above(program.as_raw_fd())?;
    let volumes = volumes.iter().map(|volume| above(volume.as_raw_fd()));
    let volumes = volumes.collect::<io::Result<Vec<_>>>()?;

    let mut descriptor: RawFd = -1;
    // Not clone3: a service manager's seccomp filter around the daemon cannot check its flags.
    let flags = libc::c_long::from(NAMESPACES | libc::CLONE_PIDFD | libc::SIGCHLD);
    let (stack, child_tid, tls) = (0usize, 0usize, 0usize);
    // SAFETY: without CLONE_VM this is fork(2): the child has a copy of this thread and of all
    // memory. Other threads may have held locks, so the child makes nothing but system calls. The
    // kernel writes a descriptor where the third argument points.
    let pid = unsafe {
        let pidfd = &raw mut descriptor;
        libc::syscall(libc::SYS_clone, flags, stack, pidfd, child_tid, tls)
    };
    match pid {
        0 => {
            let environment: [*const libc::c_char; 1] = [std::ptr::null()];
            // SAFETY: the descriptors are open, the strings end with NUL and the lists with
            // a null pointer; nothing here allocates or takes a lock.
            unsafe {
                for standard in 0..2 {
                    libc::dup2(null.as_raw_fd(), standard);
                }
                libc::dup2(there.as_raw_fd(), CHANNEL_FD);
                match &device {
                    Some(device) => libc::dup2(device.as_raw_fd(), DEVICE_FD),
                    None => libc::close(DEVICE_FD),
                };
                for (volume, number) in volumes.iter().zip(VOLUME_FD..) {
                    libc::dup2(volume.as_raw_fd(), number);
                }
                // The child must not inherit descriptors that this process inherited.
                let (first, last) = (end as u32, u32::MAX);
                let flags = libc::CLOSE_RANGE_CLOEXEC;
                if libc::syscall(libc::SYS_close_range, first, last, flags) != 0 {
                    libc::_exit(127);
                }
                let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
                libc::sigemptyset(none.as_mut_ptr());
                libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
                libc::syscall(
                    libc::SYS_execveat,
                    program.as_raw_fd(),
                    c"".as_ptr(),
                    pointers.as_ptr(),
                    environment.as_ptr(),
                    libc::AT_EMPTY_PATH,
                );
                libc::_exit(127)
            }
        }
        -1 => Err(io::Error::last_os_error()),
        pid => {
            let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
            // SAFETY: a fresh descriptor that has no other owner.
            let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
            Ok((Child::new(pid, descriptor), here))
        }
    }
}

/// A duplicate of a descriptor with a number of at least `least`, closed by `exec`.
fn above(fd: RawFd, least: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved; a fresh descriptor or an error.
    let fd = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, least) };
    match fd {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: fresh, with no other owner.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}
