//! Names of flags and of other constants, as strace(1) prints them.

/// Values and their names. Among flags, combinations of several bits come first.
pub type Names = &'static [(u64, &'static str)];

/// Flags of `open` that come with a mode: `O_CREAT` and `O_TMPFILE`.
pub const CREATES: u64 = 0o100 | 0o20_000_000;

/// Flags of `open`.
pub const OPEN: Names = &[
    (0, "O_RDONLY"),
    (1, "O_WRONLY"),
    (2, "O_RDWR"),
    (0o20_200_000, "O_TMPFILE"),
    (0o4_010_000, "O_SYNC"),
    (0o100, "O_CREAT"),
    (0o200, "O_EXCL"),
    (0o400, "O_NOCTTY"),
    (0o1000, "O_TRUNC"),
    (0o2000, "O_APPEND"),
    (0o4000, "O_NONBLOCK"),
    (0o10_000, "O_DSYNC"),
    (0o20_000, "FASYNC"),
    (0o40_000, "O_DIRECT"),
    (0o100_000, "O_LARGEFILE"),
    (0o200_000, "O_DIRECTORY"),
    (0o400_000, "O_NOFOLLOW"),
    (0o1_000_000, "O_NOATIME"),
    (0o2_000_000, "O_CLOEXEC"),
    (0o10_000_000, "O_PATH"),
];

/// Flags of calls that make descriptors.
pub const STATUS: Names = &[
    (0o4000, "O_NONBLOCK"),
    (0o40_000, "O_DIRECT"),
    (0o2_000_000, "O_CLOEXEC"),
];

/// Protection of `mmap`.
pub const PROTECTION: Names = &[
    (0, "PROT_NONE"),
    (1, "PROT_READ"),
    (2, "PROT_WRITE"),
    (4, "PROT_EXEC"),
];

/// Flags of `mmap`.
pub const MAPPING: Names = &[
    (3, "MAP_SHARED_VALIDATE"),
    (1, "MAP_SHARED"),
    (2, "MAP_PRIVATE"),
    (0x10, "MAP_FIXED"),
    (0x20, "MAP_ANONYMOUS"),
    (0x100, "MAP_GROWSDOWN"),
    (0x800, "MAP_DENYWRITE"),
    (0x4000, "MAP_NORESERVE"),
    (0x8000, "MAP_POPULATE"),
    (0x2_0000, "MAP_STACK"),
    (0x10_0000, "MAP_FIXED_NOREPLACE"),
];

/// Flags of calls that take a directory and a path.
pub const AT: Names = &[
    (0x100, "AT_SYMLINK_NOFOLLOW"),
    (0x200, "AT_REMOVEDIR"),
    (0x400, "AT_SYMLINK_FOLLOW"),
    (0x800, "AT_NO_AUTOMOUNT"),
    (0x1000, "AT_EMPTY_PATH"),
];

/// Modes of `access`.
pub const ACCESS: Names = &[(0, "F_OK"), (1, "X_OK"), (2, "W_OK"), (4, "R_OK")];

/// Values of `whence`.
pub const SEEK: Names = &[
    (0, "SEEK_SET"),
    (1, "SEEK_CUR"),
    (2, "SEEK_END"),
    (3, "SEEK_DATA"),
    (4, "SEEK_HOLE"),
];

/// Flags of `clone`.
pub const CLONE: Names = &[
    (0x100, "CLONE_VM"),
    (0x200, "CLONE_FS"),
    (0x400, "CLONE_FILES"),
    (0x800, "CLONE_SIGHAND"),
    (0x1000, "CLONE_PIDFD"),
    (0x4000, "CLONE_VFORK"),
    (0x1_0000, "CLONE_THREAD"),
    (0x4_0000, "CLONE_SYSVSEM"),
    (0x8_0000, "CLONE_SETTLS"),
    (0x10_0000, "CLONE_PARENT_SETTID"),
    (0x20_0000, "CLONE_CHILD_CLEARTID"),
    (0x100_0000, "CLONE_CHILD_SETTID"),
    (17, "SIGCHLD"),
];

/// Options of `wait4` and `waitid`.
pub const WAIT: Names = &[
    (1, "WNOHANG"),
    (2, "WSTOPPED"),
    (4, "WEXITED"),
    (8, "WCONTINUED"),
    (0x100_0000, "WNOWAIT"),
];

/// Commands of `fcntl`.
pub const FCNTL: Names = &[
    (0, "F_DUPFD"),
    (1, "F_GETFD"),
    (2, "F_SETFD"),
    (3, "F_GETFL"),
    (4, "F_SETFL"),
    (5, "F_GETLK"),
    (6, "F_SETLK"),
    (7, "F_SETLKW"),
    (8, "F_SETOWN"),
    (9, "F_GETOWN"),
    (10, "F_SETSIG"),
    (11, "F_GETSIG"),
    (15, "F_SETOWN_EX"),
    (16, "F_GETOWN_EX"),
    (1030, "F_DUPFD_CLOEXEC"),
    (1031, "F_SETPIPE_SZ"),
    (1032, "F_GETPIPE_SZ"),
];

/// Address families.
pub const FAMILY: Names = &[
    (0, "AF_UNSPEC"),
    (1, "AF_UNIX"),
    (2, "AF_INET"),
    (10, "AF_INET6"),
    (40, "AF_VSOCK"),
];

/// Types of sockets, and their flags.
pub const SOCKET: Names = &[
    (5, "SOCK_SEQPACKET"),
    (1, "SOCK_STREAM"),
    (2, "SOCK_DGRAM"),
    (0o4000, "SOCK_NONBLOCK"),
    (0o2_000_000, "SOCK_CLOEXEC"),
];

/// Flags of messages.
pub const MESSAGE: Names = &[
    (1, "MSG_OOB"),
    (2, "MSG_PEEK"),
    (0x20, "MSG_TRUNC"),
    (0x40, "MSG_DONTWAIT"),
    (0x100, "MSG_WAITALL"),
    (0x4000, "MSG_NOSIGNAL"),
    (0x4000_0000, "MSG_CMSG_CLOEXEC"),
];

/// Values of `shutdown`.
pub const SHUTDOWN: Names = &[(0, "SHUT_RD"), (1, "SHUT_WR"), (2, "SHUT_RDWR")];

/// Levels of socket options.
pub const LEVEL: Names = &[
    (0, "SOL_IP"),
    (1, "SOL_SOCKET"),
    (6, "SOL_TCP"),
    (17, "SOL_UDP"),
    (41, "SOL_IPV6"),
];

/// Operations of `epoll_ctl`.
pub const EPOLL: Names = &[
    (1, "EPOLL_CTL_ADD"),
    (2, "EPOLL_CTL_DEL"),
    (3, "EPOLL_CTL_MOD"),
];

/// Clocks.
pub const CLOCK: Names = &[
    (0, "CLOCK_REALTIME"),
    (1, "CLOCK_MONOTONIC"),
    (2, "CLOCK_PROCESS_CPUTIME_ID"),
    (3, "CLOCK_THREAD_CPUTIME_ID"),
    (4, "CLOCK_MONOTONIC_RAW"),
    (5, "CLOCK_REALTIME_COARSE"),
    (6, "CLOCK_MONOTONIC_COARSE"),
    (7, "CLOCK_BOOTTIME"),
];

/// Flags of timers.
pub const TIMER: Names = &[(1, "TIMER_ABSTIME")];

/// Values of `how` of `rt_sigprocmask`.
pub const MASK: Names = &[(0, "SIG_BLOCK"), (1, "SIG_UNBLOCK"), (2, "SIG_SETMASK")];

/// Operations of `futex`.
pub const FUTEX: Names = &[
    (0, "FUTEX_WAIT"),
    (1, "FUTEX_WAKE"),
    (3, "FUTEX_REQUEUE"),
    (4, "FUTEX_CMP_REQUEUE"),
    (9, "FUTEX_WAIT_BITSET"),
    (128, "FUTEX_WAIT_PRIVATE"),
    (129, "FUTEX_WAKE_PRIVATE"),
    (131, "FUTEX_REQUEUE_PRIVATE"),
    (132, "FUTEX_CMP_REQUEUE_PRIVATE"),
    (137, "FUTEX_WAIT_BITSET_PRIVATE"),
    (0x189, "FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME"),
];

/// Flags of `getrandom`.
pub const RANDOM: Names = &[
    (1, "GRND_NONBLOCK"),
    (2, "GRND_RANDOM"),
    (4, "GRND_INSECURE"),
];

/// Requests of `ioctl`.
pub const IOCTL: Names = &[
    (0x5401, "TCGETS"),
    (0x5402, "TCSETS"),
    (0x5403, "TCSETSW"),
    (0x5404, "TCSETSF"),
    (0x540f, "TIOCGPGRP"),
    (0x5410, "TIOCSPGRP"),
    (0x5413, "TIOCGWINSZ"),
    (0x541b, "FIONREAD"),
    (0x5421, "FIONBIO"),
    (0x5450, "FIONCLEX"),
    (0x5451, "FIOCLEX"),
    (0x5452, "FIOASYNC"),
];
