//! The system calls of riscv64 (`asm-generic/unistd.h`, Linux 6.12): number, name, arguments,
//! result, restart after signals, and Hartline's support.
//!
//! To add a call to the runtime, add its handler and set its [`Support`] here. `docs/syscalls.md`
//! is generated from this table.

use crate::futex::{FUTEX_CMD_MASK, FUTEX_LOCK_PI, FUTEX_LOCK_PI2, FUTEX_WAIT_REQUEUE_PI};
use crate::names::{
    ACCESS, AT, CLOCK, CLONE, EPOLL, FAMILY, FCNTL, FUTEX, IOCTL, LEVEL, MAPPING, MASK, MESSAGE,
    Names, OPEN, PROTECTION, RANDOM, SEEK, SHUTDOWN, SOCKET, STATUS, TIMER, WAIT,
};

/// A system call.
#[derive(Debug, Clone, Copy)]
pub struct SystemCall {
    /// Its number, less than [`LIMIT`].
    pub number: u64,
    /// Its name as in the manual pages.
    pub name: &'static str,
    /// Kinds of its arguments, at most 6.
    pub arguments: &'static [Argument],
    /// The kind of its result.
    pub outcome: Outcome,
    /// How it continues after a signal interrupts it.
    pub restart: Restart,
    /// Hartline's support.
    pub support: Support,
}

/// Hartline's support of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Complete.
    Supported,
    /// Complete except for what the text says.
    Partial(&'static str),
    /// None: the call returns `ENOSYS`.
    Missing,
}

/// How a call continues after a signal interrupts it (`signal(7)`). A call that does not wait has
/// [`SaRestart`](Self::SaRestart).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// It restarts after a handler with `SA_RESTART`, and when the stopped process continues.
    SaRestart,
    /// It restarts when the stopped process continues, but returns `EINTR` after any handler.
    AfterStop,
    /// It returns `EINTR` after any handler, and when the stopped process continues.
    Never,
    /// `futex`: an operation that takes a lock restarts after any handler, since the C library
    /// expects no interruption. The other operations are as [`SaRestart`](Self::SaRestart).
    Lock,
}

impl Restart {
    /// Whether a call with these arguments restarts after a handler with or without `SA_RESTART`.
    #[must_use]
    pub fn after_handler(self, arguments: &[u64; 6], sa_restart: bool) -> bool {
        match self {
            Self::SaRestart => sa_restart,
            Self::AfterStop | Self::Never => false,
            Self::Lock => {
                let command = arguments[1] & u64::from(FUTEX_CMD_MASK);
                let locks = [FUTEX_LOCK_PI, FUTEX_LOCK_PI2, FUTEX_WAIT_REQUEUE_PI];
                sa_restart || locks.map(u64::from).contains(&command)
            }
        }
    }

    /// Whether a call restarts when the stopped process continues.
    #[must_use]
    pub fn after_stop(self) -> bool {
        self != Self::Never
    }
}

/// The kind of a call's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A number.
    Number,
    /// An address.
    Address,
    /// Nothing: it does not return.
    Never,
}

/// The kind of an argument.
#[derive(Debug, Clone, Copy)]
pub enum Argument {
    /// A 32-bit number.
    Int,
    /// A signed 64-bit number.
    Long,
    /// A number of bytes or elements.
    Size,
    /// Permissions.
    Octal,
    /// An address.
    Pointer,
    /// A number other than an address, shown in hexadecimal.
    Hex,
    /// A descriptor.
    Fd,
    /// A directory's descriptor, or `AT_FDCWD`.
    DirFd,
    /// A string.
    Path,
    /// A vector of strings.
    Strings,
    /// A vector of strings; only their number is shown.
    Count,
    /// Input bytes; the next argument is their number.
    Bytes,
    /// Output bytes; the result is their number.
    OutBytes,
    /// Two output numbers.
    OutInts,
    /// A `struct timespec`.
    Time,
    /// A `struct timespec` as output.
    OutTime,
    /// A socket address; the next argument is its length.
    Address,
    /// The status that `wait4` stores.
    OutStatus,
    /// A signal.
    Signal,
    /// A set of signals.
    SignalSet,
    /// The mode after the flags of `open`.
    OpenMode,
    /// Flags.
    Flags(Names),
    /// One of several values.
    Choice(Names),
}

impl Argument {
    /// Whether the argument is known only after the call has returned.
    #[must_use]
    pub fn comes_out(self) -> bool {
        matches!(
            self,
            Self::OutBytes | Self::OutInts | Self::OutTime | Self::OutStatus
        )
    }
}

use Argument::{
    Address, Bytes, Choice, Count, DirFd, Fd, Flags, Hex, Int, Long, Octal, OpenMode, OutBytes,
    OutInts, OutStatus, OutTime, Path, Pointer, Signal, SignalSet, Size, Strings, Time,
};
use Support::{Missing, Partial, Supported};

/// System call numbers are less than this.
pub const LIMIT: usize = 463;

/// Returns the system call `number`, if riscv64 has it.
#[must_use]
pub fn find(number: u64) -> Option<&'static SystemCall> {
    let index = CALLS.binary_search_by_key(&number, |call| call.number);
    Some(&CALLS[index.ok()?])
}

/// Makes the constants in [`nr`] and the table [`CALLS`] from rows
/// `number name(arguments) -> outcome restart class: support;`. The outcome is a number and the
/// class `SaRestart` if a row does not say otherwise.
macro_rules! calls {
    ($($number:literal $name:ident($($argument:expr),*) $(-> $outcome:ident)?
        $(restart $restart:ident)?: $support:expr;)*) => {
        /// Numbers of the system calls, by the names in `asm-generic/unistd.h` without `__NR_`.
        #[allow(non_upper_case_globals, missing_docs, reason = "the names are Linux's")]
        pub mod nr {
            $(pub const $name: u64 = $number;)*
        }

        /// The system calls, in the order of their numbers.
        pub const CALLS: &[SystemCall] = &[$(SystemCall {
            number: $number,
            name: stringify!($name),
            arguments: &[$($argument),*],
            outcome: or!(Outcome::Number $(, Outcome::$outcome)?),
            restart: or!(Restart::SaRestart $(, Restart::$restart)?),
            support: $support,
        }),*];
    };
}

/// Picks the second of two values, or the first if there is no second.
macro_rules! or {
    ($default:expr) => {
        $default
    };
    ($default:expr, $value:expr) => {
        $value
    };
}

// Notes that several rows share.
const XATTR: &str = "no `system.` attributes; in volumes `user.` only";
const LOCKS: &str = "locks hold within the VM, also those of files of volumes";
const RWF: &str = "no flags but `RWF_HIPRI`, `RWF_DSYNC`, `RWF_SYNC`";
const COPIES: &str = "copies the bytes";
const IDENTITY: &str = "threads share credentials: a call changes those of the whole process";
const WAIT_NOTE: &str = "`rusage` has times only; `__WCLONE` and `__WNOTHREAD` have no effect";
const EXEC_NOTE: &str =
    "file capabilities have no effect; set-user-ID and set-group-ID have none in volumes";
const CLOCKS: &str = "no clocks of devices; `CLOCK_TAI` is `CLOCK_REALTIME`";
const POLICY: &str = "stored, without effect: all tasks are scheduled alike; no `SCHED_DEADLINE`";
const IO_PRIORITY: &str = "stored, without effect: requests are served in their order";
const SYSTEM_TIME: &str = "system time is an estimate from every seventh system call";
const NO_DEADLINE: &str = "no `SCHED_DEADLINE`";
const LIMITS: &str = "`RLIMIT_RSS`, `RLIMIT_LOCKS` and `RLIMIT_RTTIME` are stored without effect; `RLIMIT_CPU` is enforced at a tick of 10 ms; at most 4096 signals are queued";
const EPERM: &str = "always `EPERM`";

calls! {
    0 io_setup(Int, Pointer): Supported;
    1 io_destroy(Hex): Supported;
    2 io_submit(Hex, Long, Pointer):
        Partial("operations are complete when it returns, except `IOCB_CMD_POLL`; no `aio_rw_flags`");
    3 io_cancel(Hex, Pointer, Pointer): Supported;
    4 io_getevents(Hex, Long, Long, Pointer, Time) restart AfterStop: Supported;
    5 setxattr(Path, Path, Pointer, Size, Hex): Partial(XATTR);
    6 lsetxattr(Path, Path, Pointer, Size, Hex): Partial(XATTR);
    7 fsetxattr(Fd, Path, Pointer, Size, Hex): Partial(XATTR);
    8 getxattr(Path, Path, OutBytes, Size): Partial(XATTR);
    9 lgetxattr(Path, Path, OutBytes, Size): Partial(XATTR);
    10 fgetxattr(Fd, Path, OutBytes, Size): Partial(XATTR);
    11 listxattr(Path, OutBytes, Size): Supported;
    12 llistxattr(Path, OutBytes, Size): Supported;
    13 flistxattr(Fd, OutBytes, Size): Supported;
    14 removexattr(Path, Path): Partial(XATTR);
    15 lremovexattr(Path, Path): Partial(XATTR);
    16 fremovexattr(Fd, Path): Partial(XATTR);
    17 getcwd(OutBytes, Size): Supported;
    18 lookup_dcookie(Hex, Pointer, Size): Missing;
    19 eventfd2(Int, Hex): Supported;
    20 epoll_create1(Hex): Supported;
    21 epoll_ctl(Fd, Choice(EPOLL), Fd, Pointer): Supported;
    22 epoll_pwait(Fd, Pointer, Int, Int, SignalSet, Size) restart Never: Supported;
    23 dup(Fd): Supported;
    24 dup3(Fd, Fd, Flags(STATUS)): Supported;
    25 fcntl(Fd, Choice(FCNTL), Hex):
        Partial("no write hints (`F_SET_RW_HINT`); locks hold \
            within the VM, also those of files of volumes");
    26 inotify_init1(Hex): Supported;
    27 inotify_add_watch(Fd, Path, Hex):
        Partial("in volumes, only changes of this VM are reported");
    28 inotify_rm_watch(Fd, Int): Supported;
    29 ioctl(Fd, Choice(IOCTL), Pointer):
        Partial("requests of terminals, sockets, block devices, `/dev/random`, `/dev/vsock`; \
            `FIO…`; interfaces cannot be changed");
    30 ioprio_set(Int, Int, Int): Partial(IO_PRIORITY);
    31 ioprio_get(Int, Int): Supported;
    32 flock(Fd, Hex): Partial(LOCKS);
    33 mknodat(DirFd, Path, Octal, Hex): Partial("in volumes no devices, FIFOs, sockets");
    34 mkdirat(DirFd, Path, Octal): Supported;
    35 unlinkat(DirFd, Path, Flags(AT)): Supported;
    36 symlinkat(Path, DirFd, Path): Supported;
    37 linkat(DirFd, Path, DirFd, Path, Flags(AT)): Supported;
    39 umount2(Path, Hex): Partial("the root cannot be unmounted (`EBUSY`)");
    40 mount(Path, Path, Path, Hex, Pointer):
        Partial("types `tmpfs`, `proc`, `sysfs`, `cgroup2`, `devtmpfs`, `overlay` (`ENODEV` for others), bind \
            mounts, `MS_REMOUNT`, `MS_MOVE`; nothing is propagated: `MS_SHARED` and its like have no \
            effect; of the options of `tmpfs`, `size`, `nr_blocks`, `mode`, `uid`, `gid` have one; \
            `overlay` has no `redirect_dir`, `index`, `metacopy`, `userxattr`");
    41 pivot_root(Path, Path): Supported;
    42 nfsservctl(Int, Pointer, Pointer): Missing;
    43 statfs(Path, Pointer): Supported;
    44 fstatfs(Fd, Pointer): Supported;
    45 truncate(Path, Long): Supported;
    46 ftruncate(Fd, Long): Supported;
    47 fallocate(Fd, Hex, Long, Long):
        Partial("no `FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE` for files in memory; \
            no block devices");
    48 faccessat(DirFd, Path, Flags(ACCESS)): Supported;
    49 chdir(Path): Supported;
    50 fchdir(Fd): Supported;
    51 chroot(Path): Supported;
    52 fchmod(Fd, Octal): Supported;
    53 fchmodat(DirFd, Path, Octal): Supported;
    54 fchownat(DirFd, Path, Int, Int, Flags(AT)): Supported;
    55 fchown(Fd, Int, Int): Supported;
    56 openat(DirFd, Path, Flags(OPEN), OpenMode): Supported;
    57 close(Fd): Supported;
    58 vhangup(): Partial("`EPERM` for a process that has a controlling terminal");
    59 pipe2(OutInts, Flags(STATUS)): Partial("no `O_NOTIFICATION_PIPE`");
    60 quotactl(Hex, Path, Int, Pointer): Missing;
    61 getdents64(Fd, Pointer, Size): Supported;
    62 lseek(Fd, Long, Choice(SEEK)): Supported;
    63 read(Fd, OutBytes, Size): Supported;
    64 write(Fd, Bytes, Size): Supported;
    65 readv(Fd, Pointer, Int): Supported;
    66 writev(Fd, Pointer, Int): Supported;
    67 pread64(Fd, OutBytes, Size, Long): Supported;
    68 pwrite64(Fd, Bytes, Size, Long): Supported;
    69 preadv(Fd, Pointer, Int, Long): Supported;
    70 pwritev(Fd, Pointer, Int, Long): Supported;
    71 sendfile(Fd, Fd, Pointer, Size): Supported;
    72 pselect6(Int, Pointer, Pointer, Pointer, Time, Pointer) restart AfterStop:
        Partial("nothing is ever ready in the third set (`exceptfds`)");
    73 ppoll(Pointer, Int, Time, SignalSet, Size) restart AfterStop: Supported;
    74 signalfd4(Fd, SignalSet, Size, Hex): Supported;
    75 vmsplice(Fd, Pointer, Size, Hex): Partial(COPIES);
    76 splice(Fd, Pointer, Fd, Pointer, Size, Hex):
        Partial("copies the bytes; not from standard streams, neither from nor to \
            pseudo-terminals");
    77 tee(Fd, Fd, Size, Hex): Partial(COPIES);
    78 readlinkat(DirFd, Path, OutBytes, Size): Supported;
    79 newfstatat(DirFd, Path, Pointer, Flags(AT)): Supported;
    80 fstat(Fd, Pointer): Supported;
    81 sync(): Partial("flushes block devices, not volumes");
    82 fsync(Fd): Supported;
    83 fdatasync(Fd): Supported;
    84 sync_file_range(Fd, Long, Long, Hex): Supported;
    85 timerfd_create(Choice(CLOCK), Flags(STATUS)): Supported;
    86 timerfd_settime(Fd, Hex, Pointer, Pointer): Supported;
    87 timerfd_gettime(Fd, Pointer): Supported;
    88 utimensat(DirFd, Path, Pointer, Flags(AT)): Supported;
    89 acct(Path): Missing;
    90 capget(Pointer, Pointer): Supported;
    91 capset(Pointer, Pointer): Partial(IDENTITY);
    92 personality(Hex): Partial("stored, without effect");
    93 exit(Int) -> Never: Supported;
    94 exit_group(Int) -> Never: Supported;
    95 waitid(Int, Int, Pointer, Flags(WAIT), Pointer): Partial(WAIT_NOTE);
    96 set_tid_address(Pointer): Supported;
    97 unshare(Flags(CLONE)): Partial("no namespaces (`EPERM`); not by a thread beside others");
    98 futex(Pointer, Choice(FUTEX), Int, Pointer, Pointer, Hex) restart Lock:
        Partial("`FUTEX_LOCK_PI` and its like inherit no priority: tasks have none");
    99 set_robust_list(Pointer, Size): Supported;
    100 get_robust_list(Int, Pointer, Pointer): Supported;
    101 nanosleep(Time, OutTime) restart AfterStop: Supported;
    102 getitimer(Int, Pointer): Partial("`ITIMER_VIRTUAL` counts as `ITIMER_PROF` does");
    103 setitimer(Int, Pointer, Pointer):
        Partial("`ITIMER_VIRTUAL` counts as `ITIMER_PROF` does; both expire at a tick of 10 ms");
    104 kexec_load(Pointer, Size, Pointer, Hex): Missing;
    105 init_module(Pointer, Size, Path): Missing;
    106 delete_module(Path, Hex): Missing;
    107 timer_create(Choice(CLOCK), Pointer, Pointer):
        Partial("no `SIGEV_THREAD`; no timers for the processor time of other processes");
    108 timer_gettime(Int, Pointer): Supported;
    109 timer_getoverrun(Int): Supported;
    110 timer_settime(Int, Flags(TIMER), Pointer, Pointer):
        Partial("timers of processor time expire at a tick of 10 ms");
    111 timer_delete(Int): Supported;
    112 clock_settime(Choice(CLOCK), Time): Partial(EPERM);
    113 clock_gettime(Choice(CLOCK), OutTime): Partial(CLOCKS);
    114 clock_getres(Choice(CLOCK), OutTime):
        Partial("no clocks of devices; the reported resolution is 1 ns");
    115 clock_nanosleep(Choice(CLOCK), Flags(TIMER), Time, OutTime) restart AfterStop:
        Partial(CLOCKS);
    116 syslog(Int, OutBytes, Int):
        Partial("the log has the message of the start only");
    117 ptrace(Int, Int, Pointer, Pointer):
        Partial("no `PTRACE_SECCOMP_GET_METADATA`, no dispatch of system calls");
    118 sched_setparam(Int, Pointer): Partial(POLICY);
    119 sched_setscheduler(Int, Int, Pointer): Partial(POLICY);
    120 sched_getscheduler(Int): Supported;
    121 sched_getparam(Int, Pointer): Supported;
    122 sched_setaffinity(Int, Size, Pointer): Supported;
    123 sched_getaffinity(Int, Size, Pointer): Supported;
    124 sched_yield(): Supported;
    125 sched_get_priority_max(Int): Partial(NO_DEADLINE);
    126 sched_get_priority_min(Int): Partial(NO_DEADLINE);
    127 sched_rr_get_interval(Int, OutTime): Supported;
    128 restart_syscall(): Missing;
    129 kill(Int, Signal): Supported;
    130 tkill(Int, Signal): Supported;
    131 tgkill(Int, Int, Signal): Supported;
    132 sigaltstack(Pointer, Pointer): Supported;
    133 rt_sigsuspend(SignalSet, Size) restart AfterStop: Supported;
    134 rt_sigaction(Signal, Pointer, Pointer, Size): Supported;
    135 rt_sigprocmask(Choice(MASK), SignalSet, Pointer, Size): Supported;
    136 rt_sigpending(Pointer, Size): Supported;
    137 rt_sigtimedwait(SignalSet, Pointer, Time, Size) restart Never: Supported;
    138 rt_sigqueueinfo(Int, Signal, Pointer): Supported;
    139 rt_sigreturn() -> Never: Supported;
    140 setpriority(Int, Int, Int): Partial("stored for the whole process, without effect");
    141 getpriority(Int, Int): Partial("threads share the value");
    142 reboot(Hex, Hex, Hex, Pointer): Missing;
    143 setregid(Int, Int): Partial(IDENTITY);
    144 setgid(Int): Partial(IDENTITY);
    145 setreuid(Int, Int): Partial(IDENTITY);
    146 setuid(Int): Partial(IDENTITY);
    147 setresuid(Int, Int, Int): Partial(IDENTITY);
    148 getresuid(Pointer, Pointer, Pointer): Supported;
    149 setresgid(Int, Int, Int): Partial(IDENTITY);
    150 getresgid(Pointer, Pointer, Pointer): Supported;
    151 setfsuid(Int): Partial(IDENTITY);
    152 setfsgid(Int): Partial(IDENTITY);
    153 times(Pointer): Partial(SYSTEM_TIME);
    154 setpgid(Int, Int): Supported;
    155 getpgid(Int): Supported;
    156 getsid(Int): Supported;
    157 setsid(): Supported;
    158 getgroups(Int, Pointer): Supported;
    159 setgroups(Int, Pointer): Partial(IDENTITY);
    160 uname(Pointer): Supported;
    161 sethostname(Bytes, Size): Partial("UTF-8 names only");
    162 setdomainname(Bytes, Size): Partial("UTF-8 names only");
    163 getrlimit(Int, Pointer): Supported;
    164 setrlimit(Int, Pointer): Partial(LIMITS);
    165 getrusage(Int, Pointer): Partial("times and `ru_maxrss` only; `ru_maxrss` is the VM's; threads have no system time");
    166 umask(Octal): Supported;
    167 prctl(Int, Hex, Hex, Hex, Hex):
        Partial("`PR_SET_PDEATHSIG`, `PR_SET_DUMPABLE`, `PR_SET_NAME`, `PR_SET_NO_NEW_PRIVS`, \
            `PR_SET_KEEPCAPS`, `PR_SET_SECUREBITS`, `PR_SET_CHILD_SUBREAPER`, \
            `PR_SET_MM` (addresses of arguments and environment), `PR_SET_TIMERSLACK` \
            (stored), `PR_SET_SECCOMP`, their `PR_GET_…`, `PR_CAPBSET_…`, \
            `PR_CAP_AMBIENT`; threads share rights, `PR_SET_NO_NEW_PRIVS` and what concerns the process");
    168 getcpu(Pointer, Pointer, Pointer): Supported;
    169 gettimeofday(Pointer, Pointer): Supported;
    170 settimeofday(Pointer, Pointer): Partial(EPERM);
    171 adjtimex(Pointer): Partial("the clock cannot be changed (`EPERM`)");
    172 getpid(): Supported;
    173 getppid(): Supported;
    174 getuid(): Supported;
    175 geteuid(): Supported;
    176 getgid(): Supported;
    177 getegid(): Supported;
    178 gettid(): Supported;
    179 sysinfo(Pointer): Supported;
    180 mq_open(Path, Flags(OPEN), Octal, Pointer): Partial("no file system `mqueue`");
    181 mq_unlink(Path): Supported;
    182 mq_timedsend(Fd, Bytes, Size, Int, Time): Supported;
    183 mq_timedreceive(Fd, OutBytes, Size, Pointer, Time): Supported;
    184 mq_notify(Fd, Pointer): Supported;
    185 mq_getsetattr(Fd, Pointer, Pointer): Supported;
    186 msgget(Hex, Hex): Supported;
    187 msgctl(Int, Int, Pointer): Supported;
    188 msgrcv(Int, Pointer, Size, Long, Hex) restart AfterStop: Supported;
    189 msgsnd(Int, Pointer, Size, Hex) restart AfterStop: Supported;
    190 semget(Hex, Int, Hex): Supported;
    191 semctl(Int, Int, Int, Hex): Supported;
    192 semtimedop(Int, Pointer, Size, Time) restart Never: Supported;
    193 semop(Int, Pointer, Size) restart Never: Supported;
    194 shmget(Hex, Size, Hex): Partial("no `SHM_HUGETLB`");
    195 shmctl(Int, Int, Pointer):
        Partial("`shm_dtime` and `shm_lpid` change by `shmat` and `shmdt`, not when a process ends");
    196 shmat(Int, Pointer, Hex) -> Address: Supported;
    197 shmdt(Pointer): Supported;
    198 socket(Choice(FAMILY), Flags(SOCKET), Int):
        Partial("`AF_UNIX`, `AF_INET`, `AF_INET6`, `AF_VSOCK` (streams), `AF_NETLINK` \
            (`NETLINK_ROUTE`); raw sockets for ICMP only, no packet sockets");
    199 socketpair(Choice(FAMILY), Flags(SOCKET), Int, OutInts): Supported;
    200 bind(Fd, Address, Int): Supported;
    201 listen(Fd, Int): Supported;
    202 accept(Fd, Pointer, Pointer): Supported;
    203 connect(Fd, Address, Int): Supported;
    204 getsockname(Fd, Pointer, Pointer): Supported;
    205 getpeername(Fd, Pointer, Pointer): Supported;
    206 sendto(Fd, Bytes, Size, Flags(MESSAGE), Address, Int):
        Partial("no `MSG_OOB`; `MSG_FASTOPEN`, `MSG_ZEROCOPY` have no effect, `MSG_MORE` has one for UDP only");
    207 recvfrom(Fd, OutBytes, Size, Flags(MESSAGE), Pointer, Pointer):
        Partial("no `MSG_OOB`; `MSG_ERRQUEUE` returns errors of ICMP only");
    208 setsockopt(Fd, Choice(LEVEL), Int, Pointer, Pointer):
        Partial("no sources of multicast groups, `SO_ATTACH_FILTER`, `SO_MARK`; many options are \
            stored without effect");
    209 getsockopt(Fd, Choice(LEVEL), Int, Pointer, Pointer):
        Partial("`TCP_INFO` has the state, the backlog and sizes of segments; its other fields are 0");
    210 shutdown(Fd, Choice(SHUTDOWN)): Supported;
    211 sendmsg(Fd, Pointer, Flags(MESSAGE)):
        Partial("no `MSG_OOB`; `MSG_FASTOPEN`, `MSG_ZEROCOPY` have no effect, `MSG_MORE` has one for UDP only; \
            of the control messages of IP, only source addresses, hop limits and classes have an effect");
    212 recvmsg(Fd, Pointer, Flags(MESSAGE)):
        Partial("no `MSG_OOB`; `MSG_ERRQUEUE` returns errors of ICMP only; of the control messages of IP, only \
            addresses, hop limits and classes; time stamps are those of the call");
    213 readahead(Fd, Long, Size): Supported;
    214 brk(Pointer) -> Address: Supported;
    215 munmap(Pointer, Size): Supported;
    216 mremap(Pointer, Size, Size, Hex, Pointer) -> Address: Partial("no `MREMAP_DONTUNMAP`");
    217 add_key(Path, Path, Pointer, Size, Int): Missing;
    218 request_key(Path, Path, Path, Int): Missing;
    219 keyctl(Int, Hex, Hex, Hex, Hex): Missing;
    220 clone(Flags(CLONE), Pointer, Pointer, Pointer, Pointer):
        Partial("threads share everything; no namespaces (`EPERM`); locks of `fcntl` are not shared by \
            `CLONE_FILES`");
    221 execve(Path, Strings, Count): Partial(EXEC_NOTE);
    222 mmap(Pointer, Size, Flags(PROTECTION), Flags(MAPPING), Fd, Hex) -> Address:
        Partial("no `MAP_HUGETLB`; `MAP_SYNC` has no effect; \
            no mapping of block devices");
    223 fadvise64(Fd, Long, Long, Int): Supported;
    224 swapon(Path, Hex): Missing;
    225 swapoff(Path): Missing;
    226 mprotect(Pointer, Size, Flags(PROTECTION)): Supported;
    227 msync(Pointer, Size, Hex): Supported;
    228 mlock(Pointer, Size): Supported;
    229 munlock(Pointer, Size): Supported;
    230 mlockall(Hex): Supported;
    231 munlockall(): Supported;
    232 mincore(Pointer, Size, Pointer): Supported;
    233 madvise(Pointer, Size, Int):
        Partial("no `MADV_REMOVE`, `MADV_HWPOISON` and `MADV_GUARD_INSTALL`; hints have no effect");
    234 remap_file_pages(Pointer, Size, Hex, Size, Hex): Missing;
    235 mbind(Pointer, Size, Int, Pointer, Size, Hex):
        Partial("there is one node; checked, but not stored");
    236 get_mempolicy(Pointer, Pointer, Size, Pointer, Hex):
        Partial("`MPOL_F_ADDR` reports `MPOL_DEFAULT`, also after `mbind`");
    237 set_mempolicy(Int, Pointer, Size): Supported;
    238 migrate_pages(Int, Size, Pointer, Pointer): Supported;
    239 move_pages(Int, Size, Pointer, Pointer, Pointer, Hex): Partial("at most 1,048,576 pages");
    240 rt_tgsigqueueinfo(Int, Int, Signal, Pointer): Supported;
    241 perf_event_open(Pointer, Int, Int, Fd, Hex): Missing;
    242 accept4(Fd, Pointer, Pointer, Flags(SOCKET)): Supported;
    243 recvmmsg(Fd, Pointer, Int, Flags(MESSAGE), Time):
        Partial("no `MSG_OOB`; `MSG_ERRQUEUE` returns errors of ICMP only; of the control messages of IP, only \
            addresses, hop limits and classes; time stamps are those of the call");
    258 riscv_hwprobe(Pointer, Size, Size, Pointer, Hex): Supported;
    259 riscv_flush_icache(Pointer, Pointer, Hex): Supported;
    260 wait4(Int, OutStatus, Flags(WAIT), Pointer): Partial(WAIT_NOTE);
    261 prlimit64(Int, Int, Pointer, Pointer): Partial(LIMITS);
    262 fanotify_init(Hex, Flags(OPEN)): Missing;
    263 fanotify_mark(Fd, Hex, Hex, DirFd, Path): Missing;
    264 name_to_handle_at(DirFd, Path, Pointer, Pointer, Flags(AT)): Partial("always `EOPNOTSUPP`: no file system has handles");
    265 open_by_handle_at(Fd, Pointer, Flags(OPEN)): Missing;
    266 clock_adjtime(Choice(CLOCK), Pointer): Partial("the clock cannot be changed (`EPERM`)");
    267 syncfs(Fd): Partial("syncs the file only");
    268 setns(Fd, Hex): Partial(EPERM);
    269 sendmmsg(Fd, Pointer, Int, Flags(MESSAGE)):
        Partial("no `MSG_OOB`; `MSG_FASTOPEN`, `MSG_ZEROCOPY` have no effect, `MSG_MORE` has one for UDP only; \
            of the control messages of IP, only source addresses, hop limits and classes have an effect");
    270 process_vm_readv(Int, Pointer, Size, Pointer, Size, Hex): Supported;
    271 process_vm_writev(Int, Pointer, Size, Pointer, Size, Hex): Supported;
    272 kcmp(Int, Int, Int, Hex, Hex): Partial("`KCMP_FS`, `KCMP_SIGHAND`, `KCMP_IO`, `KCMP_SYSVSEM` compare processes; no `KCMP_EPOLL_TFD`");
    273 finit_module(Fd, Path, Hex): Missing;
    274 sched_setattr(Int, Pointer, Hex): Partial(POLICY);
    275 sched_getattr(Int, Pointer, Size, Hex): Supported;
    276 renameat2(DirFd, Path, DirFd, Path, Hex): Partial("no `RENAME_WHITEOUT`");
    277 seccomp(Int, Hex, Pointer):
        Partial("no notifications (`SECCOMP_RET_USER_NOTIF`); `SECCOMP_RET_LOG` allows without a log");
    278 getrandom(OutBytes, Size, Flags(RANDOM)): Supported;
    279 memfd_create(Path, Hex): Partial("no `MFD_HUGETLB`");
    280 bpf(Int, Pointer, Size): Missing;
    281 execveat(DirFd, Path, Strings, Count, Flags(AT)): Partial(EXEC_NOTE);
    282 userfaultfd(Flags(STATUS)):
        Partial("missing pages and write protection of private anonymous memory, by one descriptor for each \
            process; a system call that accesses such a page fails with `EFAULT`, as with \
            `UFFD_USER_MODE_ONLY`; no events of `fork`, `mremap` and the like");
    283 membarrier(Int, Hex, Int):
        Partial("`MEMBARRIER_CMD_GLOBAL`, `MEMBARRIER_CMD_GLOBAL_EXPEDITED` and `MEMBARRIER_CMD_PRIVATE_EXPEDITED` only");
    284 mlock2(Pointer, Size, Hex): Supported;
    285 copy_file_range(Fd, Pointer, Fd, Pointer, Size, Hex): Supported;
    286 preadv2(Fd, Pointer, Int, Long, Long, Hex): Partial(RWF);
    287 pwritev2(Fd, Pointer, Int, Long, Long, Hex): Partial(RWF);
    288 pkey_mprotect(Pointer, Size, Flags(PROTECTION), Int): Missing;
    289 pkey_alloc(Hex, Hex): Missing;
    290 pkey_free(Int): Missing;
    291 statx(DirFd, Path, Flags(AT), Hex, Pointer):
        Partial("no `stx_attributes`, alignment of direct I/O");
    292 io_pgetevents(Hex, Long, Long, Pointer, Time, Pointer) restart AfterStop: Supported;
    293 rseq(Pointer, Size, Hex, Hex): Partial("only with the signature `RSEQ_SIG`");
    294 kexec_file_load(Fd, Fd, Size, Path, Hex): Missing;
    424 pidfd_send_signal(Fd, Signal, Pointer, Int): Partial("no flags");
    425 io_uring_setup(Int, Pointer): Missing;
    426 io_uring_enter(Fd, Int, Int, Hex, Pointer, Size): Missing;
    427 io_uring_register(Fd, Int, Pointer, Int): Missing;
    428 open_tree(DirFd, Path, Hex): Missing;
    429 move_mount(DirFd, Path, DirFd, Path, Hex): Missing;
    430 fsopen(Path, Hex): Missing;
    431 fsconfig(Fd, Int, Path, Pointer, Int): Missing;
    432 fsmount(Fd, Hex, Hex): Missing;
    433 fspick(DirFd, Path, Hex): Missing;
    434 pidfd_open(Int, Flags(STATUS)): Partial("no `PIDFD_THREAD`");
    435 clone3(Pointer, Size):
        Partial("threads share everything; no namespaces (`EPERM`); locks of `fcntl` are not shared by \
            `CLONE_FILES`; no `set_tid`, `cgroup`");
    436 close_range(Fd, Fd, Hex):
        Partial("no `CLOSE_RANGE_UNSHARE` by a thread beside others (`EINVAL`)");
    437 openat2(DirFd, Path, Pointer, Size): Partial("no `RESOLVE_CACHED`");
    438 pidfd_getfd(Fd, Fd, Hex): Supported;
    439 faccessat2(DirFd, Path, Flags(ACCESS), Flags(AT)): Supported;
    440 process_madvise(Fd, Pointer, Size, Int, Hex): Missing;
    441 epoll_pwait2(Fd, Pointer, Int, Time, SignalSet, Size) restart Never: Supported;
    442 mount_setattr(DirFd, Path, Hex, Pointer, Size): Missing;
    443 quotactl_fd(Fd, Hex, Int, Pointer): Missing;
    444 landlock_create_ruleset(Pointer, Size, Hex): Missing;
    445 landlock_add_rule(Fd, Int, Pointer, Hex): Missing;
    446 landlock_restrict_self(Fd, Hex): Missing;
    447 memfd_secret(Hex): Missing;
    448 process_mrelease(Fd, Hex): Missing;
    449 futex_waitv(Pointer, Int, Hex, Time, Choice(CLOCK)): Supported;
    450 set_mempolicy_home_node(Pointer, Size, Int, Hex): Missing;
    451 cachestat(Fd, Pointer, Pointer, Hex): Missing;
    452 fchmodat2(DirFd, Path, Octal, Flags(AT)): Supported;
    453 map_shadow_stack(Pointer, Size, Hex) -> Address: Missing;
    454 futex_wake(Pointer, Hex, Int, Hex): Missing;
    455 futex_wait(Pointer, Hex, Hex, Hex, Time, Choice(CLOCK)): Missing;
    456 futex_requeue(Pointer, Hex, Int, Int): Missing;
    457 statmount(Pointer, Pointer, Size, Hex): Missing;
    458 listmount(Pointer, Pointer, Size, Hex): Missing;
    459 lsm_get_self_attr(Int, Pointer, Pointer, Hex): Missing;
    460 lsm_set_self_attr(Int, Pointer, Size, Hex): Missing;
    461 lsm_list_modules(Pointer, Pointer, Hex): Missing;
    462 mseal(Pointer, Size, Hex): Missing;
}

const _: () = {
    let mut n = 0;
    while n < CALLS.len() {
        let call = &CALLS[n];
        assert!(n == 0 || CALLS[n - 1].number < call.number, "rows in order");
        assert!(call.number < LIMIT as u64 && call.arguments.len() <= 6);
        n += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_by_number() {
        assert_eq!(
            find(nr::riscv_flush_icache).unwrap().name,
            "riscv_flush_icache"
        );
        assert_eq!(find(nr::mseal).unwrap().number, 462);
        // A call of another architecture, and one that no architecture has.
        assert!(find(38).is_none() && find(463).is_none() && find(u64::MAX).is_none());
    }

    #[test]
    fn interrupted_calls_restart_as_signal_7_says() {
        let restarts = |number, operation, sa_restart| {
            let restart = find(number).unwrap().restart;
            restart.after_handler(&[0, operation, 0, 0, 0, 0], sa_restart)
        };
        assert!(restarts(nr::read, 0, true) && !restarts(nr::read, 0, false));
        assert!(!restarts(nr::ppoll, 0, true) && !restarts(nr::epoll_pwait2, 0, true));
        // FUTEX_WAIT, FUTEX_LOCK_PI_PRIVATE, FUTEX_LOCK_PI2 with FUTEX_CLOCK_REALTIME.
        assert!(restarts(nr::futex, 0, true) && !restarts(nr::futex, 0, false));
        assert!(restarts(nr::futex, 134, false) && restarts(nr::futex, 269, false));
        let continues = |number| find(number).unwrap().restart.after_stop();
        assert!(continues(nr::nanosleep) && continues(nr::ppoll) && continues(nr::read));
        assert!(!continues(nr::epoll_pwait) && !continues(nr::rt_sigtimedwait));
    }
}
