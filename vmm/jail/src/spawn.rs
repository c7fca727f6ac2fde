//! Starting a jailed process: this program again, in its own namespaces.

use super::fork::fork;
use super::{Channel, Role};
use hartline_vmm::platform::CounterFile;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::makedev;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_getfd,
    pidfd_open, pidfd_send_signal, waitid,
};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
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
/// end of the socket that the program reads. The daemon takes a duplicate when a client
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
/// Descriptor of a VMM that takes requests for processes in its VM: the other end of the
/// [`Channel`] that it listens to. The daemon takes a duplicate for each request, also one that was
/// started later.
pub const REQUESTS_FD: RawFd = INPUT_FD + 4;

/// Number of `/dev/net/tun` (the kernel's Documentation/admin-guide/devices.txt).
const TUN_DEVICE: (u32, u32) = (10, 200);

/// Clock ticks per second in the kernel's interfaces, on x86-64 always the same number (time(7),
/// "The software clock, HZ, and jiffies").
pub const USER_HZ: u64 = 100;

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
    pid: i32,
    /// Refers to the process even if another process has got its number.
    descriptor: OwnedFd,
}

impl Child {
    /// The process with a number, if there is one.
    ///
    /// # Errors
    /// Any I/O error of the host except [`io::ErrorKind::NotFound`], which is `None`.
    pub fn find(pid: i32) -> io::Result<Option<Self>> {
        let named = Pid::from_raw(pid.max(0)).ok_or(Errno::INVAL)?;
        match pidfd_open(named, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Some(Self::new(pid, descriptor))),
            Err(Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The process with this number, which the descriptor names.
    #[must_use]
    pub fn new(pid: i32, descriptor: OwnedFd) -> Self {
        Self { pid, descriptor }
    }

    /// Its number in the daemon's PID namespace.
    #[must_use]
    pub fn pid(&self) -> i32 {
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
        let used = user.saturating_add(system);
        Ok(Duration::from_millis(used.saturating_mul(1000) / USER_HZ))
    }

    /// Consecutive fields of `/proc/PID/stat`, from the field `first` on; field 0 is the first one
    /// after the name.
    fn stat_fields<const N: usize>(&self, first: usize) -> io::Result<[u64; N]> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
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
        self.descriptor.as_fd()
    }

    /// Sends the process a signal. A process that has ended is no error.
    ///
    /// # Errors
    /// Any I/O error of the host.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.descriptor, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A duplicate of one of the process's descriptors, which must be a stream socket. With other
    /// descriptors a compromised process could make this process write to a target of its choice.
    ///
    /// # Errors
    /// The process has ended, the descriptor is closed or of another kind, or permission is denied.
    pub fn take_socket(&self, number: RawFd) -> io::Result<UnixStream> {
        let socket = self.duplicate(number)?;
        match (socket_domain(&socket)?, socket_type(&socket)?) {
            (AddressFamily::UNIX, SocketType::STREAM) => Ok(socket.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// A duplicate of one of the process's descriptors, which must be a [`Channel`], as in
    /// [`take_socket`](Self::take_socket).
    ///
    /// # Errors
    /// As [`take_socket`](Self::take_socket).
    pub fn take_channel(&self, number: RawFd) -> io::Result<Channel> {
        let socket = self.duplicate(number)?;
        match (socket_domain(&socket)?, socket_type(&socket)?) {
            (AddressFamily::UNIX, SocketType::SEQPACKET) => Ok(socket.into()),
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
        let (major, minor) = TUN_DEVICE;
        match metadata.file_type().is_char_device() && metadata.rdev() == makedev(major, minor) {
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
        let flags = PidfdGetfdFlags::empty();
        Ok(pidfd_getfd(&self.descriptor, number, flags)?)
    }

    /// The signal that has ended the process, if one has. `None` too if the process runs, or is not
    /// a child of this process.
    #[must_use]
    pub fn ended_by(&self) -> Option<i32> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = waitid(WaitId::PidFd(self.descriptor()), options);
        ended.ok().flatten()?.terminating_signal()
    }

    /// Waits until the process has ended; `false` if it has not within `time`.
    #[must_use]
    pub fn wait(&self, time: Duration) -> bool {
        let mut entry = [PollFd::new(&self.descriptor, PollFlags::IN)];
        // `None`, a time that the kernel cannot express, waits for ever.
        let time = Timespec::try_from(time).ok();
        poll(&mut entry, time.as_ref()) == Ok(1)
    }

    /// Reaps a child that has ended. Does nothing to a process that runs, or is not a child of this
    /// process.
    pub fn reap(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // An error: it is not a child.
        let _ = waitid(WaitId::PidFd(self.descriptor()), options);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.reap();
    }
}

/// Starts `program` (an open executable file) as a jailed process. `root` is an empty directory
/// that becomes its root directory, `uid` its user and group. Until it is in its jail, its standard
/// input refers to this process. It gets one end of a channel as [`CHANNEL_FD`], `device` as [`DEVICE_FD`] and `volumes`, directories, from [`VOLUME_FD`] on. The
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
    let parent = pidfd_open(getpid(), PidfdFlags::empty())?;
    let (here, there) = Channel::pair()?;
    // Above all numbers that the child's own descriptors are put at.
    let end = RawFd::try_from(volumes.len()).map_err(io::Error::other)? + VOLUME_FD;
    let above = |fd: BorrowedFd<'_>| fcntl_dupfd_cloexec(fd, end).map_err(io::Error::from);
    let volumes = volumes.iter().map(|volume| above(volume.as_fd()));
    let passed = Passed {
        program: above(program.as_fd())?,
        null: above(null.as_fd())?,
        parent: above(parent.as_fd())?,
        channel: above(there.as_fd())?,
        device: device.map(above).transpose()?,
        volumes: volumes.collect::<io::Result<Vec<_>>>()?,
        end: end.unsigned_abs(),
    };
    // SAFETY: the child calls `execute` alone, which only makes system calls.
    match unsafe { fork(NAMESPACES) }? {
        Some(child) => Ok((child, here)),
        // SAFETY: this is the child of a fork. The list points at `arguments`, strings that end with
        // NUL, and ends with a null pointer.
        None => unsafe { execute(&passed, &pointers) },
    }
}

/// Descriptors for a new process, all with numbers of at least `end`.
struct Passed {
    program: OwnedFd,
    null: OwnedFd,
    /// Refers to this process.
    parent: OwnedFd,
    channel: OwnedFd,
    device: Option<OwnedFd>,
    volumes: Vec<OwnedFd>,
    /// The number after those of the descriptors that the process keeps.
    end: libc::c_uint,
}

/// Puts the descriptors at their numbers, and executes the program with the arguments. Does not
/// allocate and takes no lock: another thread may have held it when this process was forked.
///
/// # Safety
/// The calling process must be a newly forked one, whose descriptors below `passed.end` nothing
/// uses any more. `arguments` must be pointers to strings that end with NUL, and a null pointer.
unsafe fn execute(passed: &Passed, arguments: &[*const libc::c_char]) -> ! {
    let environment: [*const libc::c_char; 1] = [std::ptr::null()];
    // SAFETY: the sources are open, and nothing uses the descriptors that are replaced or closed, as
    // the caller guarantees. The set of signals is on the stack and is emptied before it is read.
    // `arguments` and `environment` are lists as execve(2) reads them, alive until it replaces the
    // process.
    unsafe {
        libc::dup2(passed.parent.as_raw_fd(), libc::STDIN_FILENO);
        libc::dup2(passed.null.as_raw_fd(), libc::STDOUT_FILENO);
        libc::dup2(passed.channel.as_raw_fd(), CHANNEL_FD);
        match &passed.device {
            Some(device) => libc::dup2(device.as_raw_fd(), DEVICE_FD),
            None => libc::close(DEVICE_FD),
        };
        for (volume, number) in passed.volumes.iter().zip(VOLUME_FD..) {
            libc::dup2(volume.as_raw_fd(), number);
        }
        // The child must not inherit descriptors that this process inherited.
        let (first, last) = (passed.end, libc::c_uint::MAX);
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        if libc::syscall(libc::SYS_close_range, first, last, flags) != 0 {
            libc::_exit(127);
        }
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        libc::syscall(
            libc::SYS_execveat,
            passed.program.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
        libc::_exit(127)
    }
}
