// Hostile arguments: each system call with bad pointers, descriptors, lengths, flags and
// numbers fails as on Linux, and the program continues. A second argument `complete` requires
// that every number without a row is not a system call.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

// Numbers that older headers do not have.
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

enum {
    BAD = 8,       // An unmapped address.
    FD = 9999,     // Not a descriptor.
    FLAGS = 1 << 29,
    NOBODY = 1 << 30, // Not a task.
    HERE = AT_FDCWD,
};

// Valid addresses and descriptors, set by `main`.
static long zeros, end, file, directory, pipe_in, epoll, sock;
static char page[8192];
static const char missing[] = "missing/file";

// Placeholders in `arguments` for values that are known only at run time.
enum { ZEROS = 0x7e57000, END, FILE_, DIRECTORY, PIPE, EPOLL, SOCKET, MISSING };

static const struct {
    int number, error;
    long arguments[6];
} rows[] = {
    // Attributes
    {SYS_setxattr, EFAULT, {BAD, MISSING}},
    {SYS_setxattr, EINVAL, {ZEROS, ZEROS, ZEROS, 1, FLAGS}},
    {SYS_lsetxattr, EFAULT, {BAD, MISSING}},
    {SYS_fsetxattr, EBADF, {FD, MISSING, ZEROS, 1}},
    {SYS_fsetxattr, ERANGE, {FILE_, ZEROS, ZEROS, 1}},
    {SYS_getxattr, EFAULT, {BAD, MISSING, ZEROS, 1}},
    {SYS_lgetxattr, EFAULT, {BAD, MISSING, ZEROS, 1}},
    {SYS_fgetxattr, EBADF, {FD, MISSING, ZEROS, 1}},
    {SYS_fgetxattr, EFAULT, {FILE_, BAD, ZEROS, 1}},
    {SYS_listxattr, EFAULT, {BAD, ZEROS, 1}},
    {SYS_llistxattr, EFAULT, {BAD, ZEROS, 1}},
    {SYS_flistxattr, EBADF, {FD, ZEROS, 1}},
    {SYS_removexattr, EFAULT, {BAD, MISSING}},
    {SYS_lremovexattr, EFAULT, {BAD, MISSING}},
    {SYS_fremovexattr, EBADF, {FD, MISSING}},
    // Asynchronous I/O
    {SYS_io_setup, EINVAL, {0, ZEROS}},
    {SYS_io_setup, EFAULT, {1, BAD}},
    {SYS_io_destroy, EINVAL, {4096}},
    {SYS_io_submit, EINVAL, {4096, 0, ZEROS}},
    {SYS_io_cancel, EFAULT, {4096, BAD, ZEROS}},
    {SYS_io_cancel, EINVAL, {4096, ZEROS, ZEROS}},
    {SYS_io_getevents, EINVAL, {4096, 0, 1, ZEROS, 0}},
    {SYS_io_pgetevents, EINVAL, {4096, 0, 1, ZEROS, 0, 0}},
    // POSIX message queues
    {SYS_mq_open, EFAULT, {BAD, 0}},
    {SYS_mq_unlink, EFAULT, {BAD}},
    {SYS_mq_timedsend, EBADF, {FD, ZEROS, 1, 0, 0}},
    {SYS_mq_timedreceive, EBADF, {FD, ZEROS, 1, 0, 0}},
    {SYS_mq_notify, EBADF, {FD, 0}},
    {SYS_mq_getsetattr, EBADF, {FD, 0, ZEROS}},
    // Mounts
    {SYS_mount, EFAULT, {BAD, ZEROS, 0}},
    {SYS_mount, EFAULT, {0, BAD, 0}},
    {SYS_mount, ENOENT, {0, MISSING, 0}},
    {SYS_umount2, EINVAL, {MISSING, FLAGS}},
    {SYS_umount2, EFAULT, {BAD, 0}},
    {SYS_pivot_root, EFAULT, {BAD, BAD}},
    // Page faults of the program
    {SYS_userfaultfd, EINVAL, {FLAGS}},
    // Filters of system calls
    {SYS_seccomp, EINVAL, {99}},
    {SYS_seccomp, EINVAL, {1, FLAGS, ZEROS}},
    {SYS_seccomp, EFAULT, {1, 0, BAD}},
    // System V IPC
    {SYS_shmget, EINVAL, {0, 0, 0600}},
    {SYS_shmget, EINVAL, {0, -1, 0600}},
    {SYS_shmat, EINVAL, {-1, ZEROS}},
    {SYS_shmdt, EINVAL, {BAD}},
    {SYS_shmctl, EINVAL, {-1, 2, ZEROS}},
    {SYS_shmctl, EFAULT, {0, 3, BAD}},
    {SYS_semget, EINVAL, {0, -1, 0600}},
    {SYS_semop, EFAULT, {0, BAD, 1}},
    {SYS_semop, EINVAL, {-1, ZEROS, 1}},
    {SYS_semop, E2BIG, {0, ZEROS, 501}},
    {SYS_semtimedop, EFAULT, {0, ZEROS, 1, BAD}},
    {SYS_semctl, EINVAL, {-1, 0, 2, ZEROS}},
    {SYS_semctl, EFAULT, {0, 0, 3, BAD}},
    {SYS_msgget, ENOENT, {0x7e57, 0}},
    {SYS_msgsnd, EFAULT, {0, BAD, 1}},
    {SYS_msgsnd, EINVAL, {0, ZEROS, 1}},
    {SYS_msgrcv, EINVAL, {-1, ZEROS, 1}},
    {SYS_msgrcv, EINVAL, {0, ZEROS, -1}},
    {SYS_msgctl, EINVAL, {-1, 2, ZEROS}},
    {SYS_msgctl, EFAULT, {0, 3, BAD}},
    // Paths
    {SYS_getcwd, EFAULT, {BAD, 4096}},
    {SYS_getcwd, ERANGE, {ZEROS, 0}},
    {SYS_mknodat, EFAULT, {HERE, BAD, S_IFREG}},
    {SYS_mkdirat, EFAULT, {HERE, BAD, 0}},
    {SYS_mkdirat, EBADF, {FD, MISSING, 0}},
    {SYS_mkdirat, EFAULT, {HERE, END, 0}},
    {SYS_unlinkat, EFAULT, {HERE, BAD, 0}},
    {SYS_unlinkat, EINVAL, {HERE, MISSING, FLAGS}},
    {SYS_symlinkat, EFAULT, {BAD, HERE, MISSING}},
    {SYS_linkat, EFAULT, {HERE, BAD, HERE, MISSING, 0}},
    {SYS_linkat, EINVAL, {HERE, MISSING, HERE, MISSING, FLAGS}},
    {SYS_statfs, EFAULT, {BAD, ZEROS}},
    {SYS_fstatfs, EBADF, {FD, ZEROS}},
    {SYS_fstatfs, EFAULT, {FILE_, BAD}},
    {SYS_truncate, EFAULT, {BAD, 0}},
    {SYS_truncate, EINVAL, {MISSING, -1}},
    {SYS_ftruncate, EBADF, {FD, 0}},
    {SYS_ftruncate, EINVAL, {FILE_, LONG_MIN}},
    {SYS_ftruncate, EINVAL, {PIPE, 0}},
    {SYS_fallocate, EBADF, {FD, 0, 0, 1}},
    {SYS_fallocate, EINVAL, {FILE_, 0, -1, 1}},
    {SYS_fallocate, EFBIG, {FILE_, 0, LONG_MAX, LONG_MAX}},
    {SYS_faccessat, EFAULT, {HERE, BAD, 0}},
    {SYS_faccessat, EINVAL, {HERE, MISSING, 64}},
    {SYS_chdir, EFAULT, {BAD}},
    {SYS_fchdir, EBADF, {FD}},
    {SYS_fchdir, ENOTDIR, {FILE_}},
    {SYS_chroot, EFAULT, {BAD}},
    {SYS_fchmod, EBADF, {FD, 0}},
    {SYS_fchmodat, EFAULT, {HERE, BAD, 0}},
    {SYS_fchownat, EFAULT, {HERE, BAD, 0, 0, 0}},
    {SYS_fchownat, EINVAL, {HERE, MISSING, 0, 0, FLAGS}},
    {SYS_fchown, EBADF, {FD, 0, 0}},
    {SYS_openat, EFAULT, {HERE, BAD, O_RDONLY}},
    {SYS_openat, EBADF, {FD, MISSING, O_RDONLY}},
    {SYS_openat, EFAULT, {HERE, -1, O_RDONLY}},
    {SYS_readlinkat, EFAULT, {HERE, BAD, ZEROS, 1}},
    {SYS_readlinkat, EINVAL, {HERE, MISSING, ZEROS, -1}},
    {SYS_name_to_handle_at, EINVAL, {HERE, MISSING, ZEROS, ZEROS, FLAGS}},
    {SYS_name_to_handle_at, EFAULT, {HERE, BAD, ZEROS, ZEROS, 0}},
    {SYS_newfstatat, EFAULT, {HERE, BAD, ZEROS, 0}},
    {SYS_newfstatat, EBADF, {FD, MISSING, ZEROS, 0}},
    {SYS_fstat, EBADF, {FD, ZEROS}},
    {SYS_fstat, EFAULT, {FILE_, BAD}},
    {SYS_utimensat, EFAULT, {HERE, MISSING, BAD, 0}},
    {SYS_utimensat, EBADF, {FD, 0, 0, 0}},
    {SYS_renameat2, EFAULT, {HERE, BAD, HERE, MISSING, 0}},
    {SYS_renameat2, EINVAL, {HERE, MISSING, HERE, MISSING, FLAGS}},
    {SYS_statx, EFAULT, {HERE, BAD, 0, STATX_ALL, ZEROS}},
    {SYS_statx, EINVAL, {HERE, MISSING, FLAGS, STATX_ALL, ZEROS}},
    {SYS_openat2, EINVAL, {HERE, MISSING, ZEROS, 4}},
    {SYS_openat2, EFAULT, {HERE, MISSING, BAD, 24}},
    {SYS_openat2, E2BIG, {HERE, MISSING, ZEROS, 1 << 20}},
    {SYS_faccessat2, EFAULT, {HERE, BAD, 0, 0}},
    {SYS_faccessat2, EINVAL, {HERE, MISSING, 0, FLAGS}},
    {SYS_fchmodat2, EINVAL, {HERE, MISSING, 0, FLAGS}},
    // Descriptors
    {SYS_eventfd2, EINVAL, {0, FLAGS}},
    {SYS_epoll_create1, EINVAL, {FLAGS}},
    {SYS_epoll_ctl, EBADF, {FD, EPOLL_CTL_ADD, FILE_, ZEROS}},
    {SYS_epoll_ctl, EFAULT, {EPOLL, EPOLL_CTL_ADD, PIPE, BAD}},
    {SYS_epoll_ctl, EINVAL, {EPOLL, 77, PIPE, ZEROS}},
    {SYS_epoll_pwait, EBADF, {FD, ZEROS, 1, 0}},
    {SYS_epoll_pwait, EINVAL, {EPOLL, ZEROS, -1, 0}},
    {SYS_epoll_pwait, EINVAL, {EPOLL, ZEROS, INT_MAX, 0}},
    {SYS_epoll_pwait2, EINVAL, {EPOLL, ZEROS, 0, ZEROS}},
    {SYS_epoll_pwait2, EFAULT, {EPOLL, ZEROS, 1, BAD}},
    {SYS_dup, EBADF, {FD}},
    {SYS_dup3, EBADF, {FD, 1, 0}},
    {SYS_dup3, EBADF, {FILE_, -1, 0}},
    {SYS_dup3, EINVAL, {FILE_, 1, FLAGS}},
    {SYS_fcntl, EBADF, {FD, F_GETFD}},
    {SYS_fcntl, EINVAL, {FILE_, 777, 0}},
    {SYS_fcntl, EFAULT, {FILE_, F_GETLK, BAD}},
    {SYS_inotify_init1, EINVAL, {FLAGS}},
    {SYS_inotify_add_watch, EBADF, {FD, MISSING, 1}},
    {SYS_inotify_add_watch, EINVAL, {FILE_, MISSING, 1}},
    {SYS_inotify_rm_watch, EBADF, {FD, 1}},
    {SYS_inotify_rm_watch, EINVAL, {FILE_, 1}},
    {SYS_ioctl, EBADF, {FD, 0x5401, ZEROS}},
    {SYS_ioctl, ENOTTY, {FILE_, 0x5401, ZEROS}},
    {SYS_ioctl, EFAULT, {PIPE, 0x541b, BAD}},
    {SYS_flock, EBADF, {FD, 1}},
    {SYS_flock, EINVAL, {FILE_, 0}},
    {SYS_close, EBADF, {FD}},
    {SYS_close, EBADF, {-1}},
    {SYS_pipe2, EFAULT, {BAD, 0}},
    {SYS_pipe2, EINVAL, {ZEROS, FLAGS}},
    {SYS_getdents64, EBADF, {FD, ZEROS, 100}},
    {SYS_getdents64, ENOTDIR, {FILE_, ZEROS, 100}},
    {SYS_getdents64, EFAULT, {DIRECTORY, BAD, 4096}},
    {SYS_lseek, EBADF, {FD, 0, 0}},
    {SYS_lseek, EINVAL, {FILE_, -1, SEEK_SET}},
    {SYS_lseek, ESPIPE, {PIPE, 0, SEEK_SET}},
    {SYS_read, EBADF, {FD, ZEROS, 1}},
    {SYS_read, EFAULT, {FILE_, BAD, 1}},
    {SYS_read, EISDIR, {DIRECTORY, ZEROS, 1}},
    {SYS_write, EBADF, {FD, ZEROS, 1}},
    {SYS_write, EFAULT, {FILE_, BAD, 1}},
    {SYS_write, EBADF, {DIRECTORY, ZEROS, 1}},
    {SYS_readv, EBADF, {FD, ZEROS, 1}},
    {SYS_readv, EINVAL, {FILE_, ZEROS, -1}},
    {SYS_readv, EFAULT, {FILE_, BAD, 1}},
    {SYS_writev, EINVAL, {FILE_, ZEROS, 1 << 20}},
    {SYS_writev, EFAULT, {FILE_, BAD, 1}},
    {SYS_pread64, EINVAL, {FILE_, ZEROS, 1, -1}},
    {SYS_pread64, ESPIPE, {PIPE, ZEROS, 1, 0}},
    {SYS_pwrite64, EINVAL, {FILE_, ZEROS, 1, -1}},
    {SYS_preadv, EINVAL, {FILE_, ZEROS, 1, -1, -1}},
    {SYS_preadv, EFAULT, {FILE_, BAD, 1, 0}},
    {SYS_pwritev, EFAULT, {FILE_, BAD, 1, 0}},
    {SYS_preadv2, EFAULT, {FILE_, BAD, 1, 0, 0, 0}},
    {SYS_pwritev2, EFAULT, {FILE_, BAD, 1, 0, 0, 0}},
    {SYS_sendfile, EBADF, {FD, FILE_, 0, 1}},
    {SYS_sendfile, EFAULT, {PIPE, FILE_, BAD, 1}},
    {SYS_pselect6, EINVAL, {-1, ZEROS, ZEROS, ZEROS, ZEROS, 0}},
    {SYS_pselect6, EFAULT, {64, BAD, 0, 0, ZEROS, 0}},
    {SYS_ppoll, EFAULT, {BAD, 1, ZEROS, 0}},
    {SYS_ppoll, EINVAL, {ZEROS, 1L << 31, ZEROS, 0}},
    {SYS_ppoll, EFAULT, {ZEROS, 0, BAD, 0}},
    {SYS_signalfd4, EINVAL, {-1, ZEROS, 3, 0}},
    {SYS_signalfd4, EFAULT, {-1, BAD, 8, 0}},
    {SYS_signalfd4, EBADF, {FD, ZEROS, 8, 0}},
    {SYS_vmsplice, EBADF, {FD, ZEROS, 1, 0}},
    {SYS_vmsplice, EFAULT, {PIPE, BAD, 1, 0}},
    {SYS_splice, EBADF, {FD, 0, PIPE, 0, 1, 0}},
    {SYS_splice, EINVAL, {FILE_, 0, PIPE, 0, 1, FLAGS}},
    {SYS_tee, EBADF, {FD, PIPE, 1, 0}},
    {SYS_fsync, EBADF, {FD}},
    {SYS_fsync, EINVAL, {PIPE}},
    {SYS_fdatasync, EBADF, {FD}},
    {SYS_sync_file_range, EBADF, {FD, 0, 1, 0}},
    {SYS_sync_file_range, EINVAL, {FILE_, -1, 1, 0}},
    {SYS_syncfs, EBADF, {FD}},
    {SYS_readahead, EBADF, {FD, 0, 1}},
    {SYS_fadvise64, EBADF, {FD, 0, 1, 0}},
    {SYS_fadvise64, EINVAL, {FILE_, 0, 1, 77}},
    {SYS_copy_file_range, EBADF, {FD, 0, FILE_, 0, 1, 0}},
    {SYS_copy_file_range, EINVAL, {FILE_, 0, FILE_, 0, 1, FLAGS}},
    {SYS_memfd_create, EFAULT, {BAD, 0}},
    {SYS_memfd_create, EINVAL, {ZEROS, FLAGS}},
    {SYS_close_range, EINVAL, {9, 8, 0}},
    {SYS_close_range, EINVAL, {4000, 4001, FLAGS}},
    // Memory policies
    {SYS_mbind, EINVAL, {1, 4096, 2, ZEROS, 64, 0}},
    {SYS_mbind, EFAULT, {0, 4096, 2, BAD, 64, 0}},
    {SYS_get_mempolicy, EINVAL, {0, 0, 0, 0, FLAGS}},
    {SYS_get_mempolicy, EFAULT, {BAD, 0, 0, 0, 0}},
    {SYS_set_mempolicy, EINVAL, {99, ZEROS, 64}},
    {SYS_set_mempolicy, EFAULT, {2, BAD, 64}},
    {SYS_migrate_pages, EINVAL, {0, 64, ZEROS, ZEROS}},
    {SYS_migrate_pages, EFAULT, {0, 64, BAD, BAD}},
    {SYS_move_pages, EINVAL, {0, 1, ZEROS, 0, ZEROS, FLAGS}},
    {SYS_move_pages, EFAULT, {0, 1, BAD, 0, ZEROS, 0}},
    // Time
    {SYS_timerfd_create, EINVAL, {99, 0}},
    {SYS_timerfd_create, EINVAL, {CLOCK_MONOTONIC, FLAGS}},
    {SYS_timerfd_settime, EBADF, {FD, 0, ZEROS, 0}},
    {SYS_timerfd_settime, EFAULT, {FILE_, 0, BAD, 0}},
    {SYS_timerfd_gettime, EBADF, {FD, ZEROS}},
    {SYS_timerfd_gettime, EINVAL, {FILE_, ZEROS}},
    {SYS_nanosleep, EFAULT, {BAD, 0}},
    {SYS_getitimer, EINVAL, {99, ZEROS}},
    {SYS_getitimer, EFAULT, {0, BAD}},
    {SYS_setitimer, EINVAL, {99, ZEROS, 0}},
    {SYS_setitimer, EFAULT, {0, BAD, 0}},
    {SYS_timer_create, EINVAL, {99, 0, ZEROS}},
    {SYS_timer_create, EFAULT, {CLOCK_MONOTONIC, 0, BAD}},
    {SYS_timer_gettime, EINVAL, {77, ZEROS}},
    {SYS_timer_getoverrun, EINVAL, {77}},
    {SYS_timer_settime, EINVAL, {77, 0, ZEROS, 0}},
    {SYS_timer_delete, EINVAL, {77}},
    {SYS_clock_gettime, EINVAL, {99, ZEROS}},
    {SYS_clock_gettime, EFAULT, {CLOCK_MONOTONIC, BAD}},
    {SYS_clock_getres, EINVAL, {99, ZEROS}},
    {SYS_clock_nanosleep, EINVAL, {99, 0, ZEROS, 0}},
    {SYS_clock_nanosleep, EFAULT, {CLOCK_MONOTONIC, 0, BAD, 0}},
    {SYS_gettimeofday, EFAULT, {BAD, 0}},
    {SYS_times, EFAULT, {BAD}},
    {SYS_clock_settime, EINVAL, {99, ZEROS}},
    {SYS_clock_settime, EFAULT, {CLOCK_REALTIME, BAD}},
    {SYS_settimeofday, EFAULT, {BAD, 0}},
    {SYS_adjtimex, EFAULT, {BAD}},
    {SYS_clock_adjtime, EINVAL, {99, ZEROS}},
    {SYS_clock_adjtime, EFAULT, {CLOCK_REALTIME, BAD}},
    // Tasks
    {SYS_capget, EFAULT, {BAD, 0}},
    {SYS_capset, EFAULT, {BAD, 0}},
    {SYS_capset, EINVAL, {ZEROS, 0}},
    {SYS_waitid, EINVAL, {77, 0, ZEROS, 4, 0}},
    {SYS_waitid, EINVAL, {P_ALL, 0, ZEROS, 0, 0}},
    {SYS_waitid, EINVAL, {P_ALL, 0, ZEROS, FLAGS, 0}},
    {SYS_wait4, EINVAL, {-1, ZEROS, 1 << 20, 0}},
    {SYS_wait4, ECHILD, {-1, ZEROS, 0, 0}},
    {SYS_futex, EFAULT, {BAD, FUTEX_WAIT, 0, 0}},
    {SYS_futex, EINVAL, {1, FUTEX_WAIT, 0, 0}},
    {SYS_futex, ENOSYS, {ZEROS, 77, 0, 0}},
    {SYS_futex_waitv, EINVAL, {ZEROS, 0, 0, 0, 0}},
    {SYS_futex_waitv, EFAULT, {BAD, 1, 0, 0, 0}},
    {SYS_set_robust_list, EINVAL, {ZEROS, 1}},
    {SYS_get_robust_list, ESRCH, {99999, ZEROS, ZEROS}},
    {SYS_sched_setparam, EINVAL, {0, 0}},
    {SYS_sched_getparam, EINVAL, {0, 0}},
    {SYS_sched_setscheduler, EINVAL, {0, 77, ZEROS}},
    {SYS_sched_getscheduler, EINVAL, {-1}},
    {SYS_sched_setaffinity, EFAULT, {0, 8, BAD}},
    {SYS_sched_setaffinity, EINVAL, {0, 8, ZEROS}},
    {SYS_sched_getaffinity, EINVAL, {0, 1, ZEROS}},
    {SYS_sched_getaffinity, ESRCH, {99999, 128, ZEROS}},
    {SYS_sched_get_priority_max, EINVAL, {77}},
    {SYS_sched_get_priority_min, EINVAL, {77}},
    {SYS_setpriority, EINVAL, {77, 0, 0}},
    {SYS_setpriority, ESRCH, {PRIO_PROCESS, 99999, 0}},
    {SYS_getpriority, EINVAL, {77, 0}},
    {SYS_getresuid, EFAULT, {BAD, BAD, BAD}},
    {SYS_getresgid, EFAULT, {BAD, BAD, BAD}},
    {SYS_setpgid, EINVAL, {0, -1}},
    {SYS_setpgid, ESRCH, {99999, 0}},
    {SYS_getpgid, ESRCH, {99999}},
    {SYS_getsid, ESRCH, {99999}},
    {SYS_getgroups, EINVAL, {-1, ZEROS}},
    {SYS_uname, EFAULT, {BAD}},
    {SYS_getrlimit, EINVAL, {77, ZEROS}},
    {SYS_setrlimit, EFAULT, {RLIMIT_CORE, BAD}},
    {SYS_prlimit64, EINVAL, {0, 77, 0, ZEROS}},
    {SYS_prlimit64, ESRCH, {99999, RLIMIT_CORE, 0, ZEROS}},
    {SYS_getrusage, EINVAL, {77, ZEROS}},
    {SYS_getrusage, EFAULT, {0, BAD}},
    {SYS_prctl, EINVAL, {777777, 0, 0, 0, 0}},
    {SYS_prctl, EFAULT, {15, BAD}},
    {SYS_getcpu, EFAULT, {BAD, 0}},
    {SYS_sysinfo, EFAULT, {BAD}},
    {SYS_clone, EINVAL, {CLONE_THREAD, 0, 0, 0, 0}},
    {SYS_clone, EINVAL, {CLONE_SIGHAND, 0, 0, 0, 0}},
    {SYS_clone3, EINVAL, {ZEROS, 8}},
    {SYS_execve, EFAULT, {BAD, ZEROS, ZEROS}},
    {SYS_execve, ENOENT, {MISSING, 0, 0}},
    {SYS_execveat, EFAULT, {HERE, BAD, ZEROS, ZEROS, 0}},
    {SYS_execveat, EINVAL, {HERE, MISSING, ZEROS, ZEROS, FLAGS}},
    {SYS_membarrier, EINVAL, {1 << 30, 0, 0}},
    {SYS_pidfd_open, EINVAL, {-1, 0}},
    {SYS_pidfd_open, ESRCH, {99999, 0}},
    {SYS_pidfd_send_signal, EBADF, {FD, 0, 0, 0}},
    {SYS_getrandom, EFAULT, {BAD, 8, 0}},
    {SYS_getrandom, EINVAL, {ZEROS, 8, FLAGS}},
    {SYS_ioprio_set, EINVAL, {77, 0, 0}},
    {SYS_ioprio_set, EINVAL, {1, 0, 7 << 13}},
    {SYS_ioprio_get, EINVAL, {77, 0}},
    {SYS_ioprio_get, ESRCH, {1, 99999}},
    {SYS_sched_rr_get_interval, EINVAL, {-1, ZEROS}},
    {SYS_sched_rr_get_interval, EFAULT, {0, BAD}},
    {SYS_sched_setattr, EINVAL, {0, 0, 0}},
    {SYS_sched_setattr, EFAULT, {0, BAD, 0}},
    {SYS_sched_getattr, EINVAL, {0, ZEROS, 4, 0}},
    {SYS_sched_getattr, EFAULT, {0, BAD, 48, 0}},
    {SYS_unshare, EINVAL, {1}},
    {SYS_setns, EBADF, {FD, 0}},
    {SYS_setns, EINVAL, {FILE_, 0}},
    {SYS_ptrace, ESRCH, {PTRACE_CONT, NOBODY, 0, 0}},
    {SYS_ptrace, ESRCH, {PTRACE_PEEKDATA, NOBODY, BAD, BAD}},
    {SYS_ptrace, ESRCH, {PTRACE_ATTACH, NOBODY, 0, 0}},
    {SYS_ptrace, ESRCH, {PTRACE_SEIZE, NOBODY, 0, 0}},
    {SYS_ptrace, EIO, {PTRACE_SEIZE, 1, BAD, 0}},
    {SYS_ptrace, ESRCH, {FLAGS, NOBODY, 0, 0}},
    {SYS_process_vm_readv, EINVAL, {1, ZEROS, 0, ZEROS, 0, FLAGS}},
    {SYS_process_vm_readv, EINVAL, {1, ZEROS, 1 << 20, ZEROS, 0, 0}},
    {SYS_process_vm_readv, EFAULT, {1, BAD, 1, ZEROS, 0, 0}},
    {SYS_process_vm_writev, EINVAL, {1, ZEROS, 0, ZEROS, 0, FLAGS}},
    {SYS_kcmp, ESRCH, {99999, 99999, 0, 0, 0}},
    {SYS_pidfd_getfd, EINVAL, {FD, 0, FLAGS}},
    {SYS_pidfd_getfd, EBADF, {FD, 0, 0}},
    // Signals
    {SYS_kill, EINVAL, {0, 99}},
    {SYS_kill, ESRCH, {99999, 0}},
    {SYS_tkill, EINVAL, {-1, 0}},
    {SYS_tgkill, EINVAL, {-1, 1, 0}},
    {SYS_tgkill, ESRCH, {99999, 99999, 0}},
    {SYS_sigaltstack, EFAULT, {BAD, 0}},
    {SYS_rt_sigsuspend, EINVAL, {ZEROS, 3}},
    {SYS_rt_sigsuspend, EFAULT, {BAD, 8}},
    {SYS_rt_sigaction, EINVAL, {0, 0, 0, 8}},
    {SYS_rt_sigaction, EINVAL, {SIGUSR1, 0, 0, 3}},
    {SYS_rt_sigaction, EFAULT, {SIGUSR1, BAD, 0, 8}},
    {SYS_rt_sigprocmask, EINVAL, {77, ZEROS, 0, 8}},
    {SYS_rt_sigprocmask, EFAULT, {0, BAD, 0, 8}},
    {SYS_rt_sigpending, EFAULT, {BAD, 8}},
    {SYS_rt_sigtimedwait, EFAULT, {BAD, 0, 0, 8}},
    {SYS_rt_sigtimedwait, EINVAL, {ZEROS, 0, 0, 3}},
    {SYS_rt_sigqueueinfo, EFAULT, {0, SIGUSR1, BAD}},
    {SYS_rt_tgsigqueueinfo, EFAULT, {1, 1, SIGUSR1, BAD}},
    // Sockets
    {SYS_socket, EAFNOSUPPORT, {99, SOCK_STREAM, 0}},
    {SYS_socket, EINVAL, {AF_UNIX, FLAGS, 0}},
    {SYS_socketpair, EFAULT, {AF_UNIX, SOCK_STREAM, 0, BAD}},
    {SYS_bind, EBADF, {FD, ZEROS, 16}},
    {SYS_bind, EFAULT, {SOCKET, BAD, 16}},
    {SYS_bind, EINVAL, {SOCKET, ZEROS, -1}},
    {SYS_listen, EBADF, {FD, 1}},
    {SYS_listen, ENOTSOCK, {FILE_, 1}},
    {SYS_accept, EBADF, {FD, 0, 0}},
    {SYS_accept4, EINVAL, {SOCKET, 0, 0, FLAGS}},
    {SYS_connect, EFAULT, {SOCKET, BAD, 16}},
    {SYS_connect, EBADF, {FD, ZEROS, 16}},
    {SYS_getsockname, EFAULT, {SOCKET, ZEROS, BAD}},
    {SYS_getpeername, EBADF, {FD, ZEROS, ZEROS}},
    {SYS_sendto, EBADF, {FD, ZEROS, 1, 0, 0, 0}},
    {SYS_sendto, ENOTSOCK, {FILE_, ZEROS, 1, 0, 0, 0}},
    {SYS_recvfrom, EBADF, {FD, ZEROS, 1, 0, 0, 0}},
    {SYS_setsockopt, EFAULT, {SOCKET, SOL_SOCKET, SO_REUSEADDR, BAD, 4}},
    {SYS_setsockopt, EINVAL, {SOCKET, SOL_SOCKET, SO_REUSEADDR, ZEROS, -1}},
    {SYS_getsockopt, EFAULT, {SOCKET, SOL_SOCKET, SO_TYPE, ZEROS, BAD}},
    {SYS_shutdown, EBADF, {FD, 0}},
    {SYS_shutdown, EINVAL, {SOCKET, 77}},
    {SYS_sendmsg, EFAULT, {SOCKET, BAD, 0}},
    {SYS_recvmsg, EFAULT, {SOCKET, BAD, 0}},
    {SYS_recvmmsg, EBADF, {FD, ZEROS, 1, 0, 0}},
    {SYS_sendmmsg, EBADF, {FD, ZEROS, 1, 0}},
    // Memory
    {SYS_munmap, EINVAL, {1, 4096}},
    {SYS_munmap, EINVAL, {0, 0}},
    {SYS_munmap, EINVAL, {4096, -1}},
    {SYS_mremap, EINVAL, {1, 4096, 4096, 0}},
    {SYS_mremap, EINVAL, {ZEROS, 4096, 4096, FLAGS}},
    {SYS_mmap, EINVAL, {0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0}},
    {SYS_mmap, ENOMEM, {0, LONG_MAX, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0}},
    {SYS_mmap, EBADF, {0, 4096, PROT_READ, MAP_PRIVATE, FD, 0}},
    {SYS_mmap, EACCES, {0, 4096, PROT_READ, MAP_PRIVATE, PIPE, 0}},
    {SYS_mmap, EOVERFLOW, {0, 4096, PROT_READ, MAP_PRIVATE, FILE_, -4096}},
    {SYS_mprotect, EINVAL, {1, 4096, PROT_READ}},
    {SYS_mprotect, ENOMEM, {4096, 4096, PROT_READ}},
    {SYS_msync, EINVAL, {1, 4096, MS_SYNC}},
    {SYS_msync, ENOMEM, {4096, 4096, MS_SYNC}},
    {SYS_rseq, EINVAL, {ZEROS, 32, FLAGS, 0}},
    {SYS_mlock, ENOMEM, {4096, 4096}},
    {SYS_munlock, ENOMEM, {4096, 4096}},
    {SYS_mlock2, EINVAL, {4096, 4096, FLAGS}},
    {SYS_mlockall, EINVAL, {FLAGS}},
    {SYS_mincore, EINVAL, {1, 4096, ZEROS}},
    {SYS_mincore, ENOMEM, {4096, 4096, ZEROS}},
    {SYS_madvise, EINVAL, {1, 4096, MADV_DONTNEED}},
    {SYS_madvise, EINVAL, {4096, 4096, 777}},
    {SYS_madvise, ENOMEM, {4096, 4096, MADV_DONTNEED}},
#ifdef __riscv
    {258 /* riscv_hwprobe */, EFAULT, {BAD, 1, 0, 0, 0}},
    {258 /* riscv_hwprobe */, EINVAL, {ZEROS, 1, 0, 0, FLAGS}},
    {259 /* riscv_flush_icache */, EINVAL, {0, 0, FLAGS}},
#endif
};

// Calls that never fail, or never return, whatever their arguments are.
static const int harmless[] = {
    SYS_getpid, SYS_getppid, SYS_gettid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid,
    SYS_sync, SYS_umask, SYS_personality, SYS_exit, SYS_exit_group, SYS_set_tid_address,
    SYS_sched_yield, SYS_rt_sigreturn, SYS_setsid, SYS_brk, SYS_munlockall, SYS_setdomainname,
    // The result depends on the user.
    SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid,
    SYS_setgroups, SYS_sethostname, SYS_setfsuid, SYS_setfsgid, SYS_vhangup, SYS_syslog,
};

static long good(long argument) {
    switch (argument) {
    case ZEROS: return zeros;
    case END: return end;
    case FILE_: return file;
    case DIRECTORY: return directory;
    case PIPE: return pipe_in;
    case EPOLL: return epoll;
    case SOCKET: return sock;
    case MISSING: return (long)missing;
    default: return argument;
    }
}

static int has_row(int number) {
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].number == number) return 1;
    for (unsigned i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (harmless[i] == number) return 1;
    return 0;
}

int main(int count, char **arguments) {
    enter(count, arguments);
    int ends[2];
    CHECK(pipe(ends) == 0);
    // A page of zeros, and an unmapped page after it.
    char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(map + 4096, 4096) == 0);
    memset(map + 4000, 'x', 96);
    end = (long)map + 4000;
    zeros = (long)page;
    file = open("file", O_CREAT | O_RDWR, 0600);
    CHECK(write((int)file, "contents", 8) == 8 && lseek((int)file, 0, SEEK_SET) == 0);
    directory = open(".", O_RDONLY);
    pipe_in = ends[1];
    epoll = epoll_create1(0);
    sock = socket(AF_INET, SOCK_STREAM, 0);
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        long a[6];
        char text[64];
        for (int n = 0; n < 6; n++) a[n] = good(rows[i].arguments[n]);
        errno = 0;
        long result = syscall(rows[i].number, a[0], a[1], a[2], a[3], a[4], a[5]);
        snprintf(text, sizeof text, "row %u, call %d: %s", i, rows[i].number,
                 strerrorname_np(rows[i].error));
        if (!check(result == -1 && errno == rows[i].error, text, __FILE__, __LINE__))
            printf("    it is %ld, error %s\n", result, strerrorname_np(errno));
        memset(page, 0, sizeof page);
    }
    if (count > 2 && !strcmp(arguments[2], "complete")) {
        for (int number = 0; number < 600; number++) {
            if (has_row(number)) continue;
            char text[64];
            snprintf(text, sizeof text, "call %d has a row", number);
            errno = 0;
            check(syscall(number, -1, -1, -1, -1, -1, -1) == -1 && errno == ENOSYS, text, __FILE__,
                  __LINE__);
        }
    }
    CHECK(getpid() > 0);
    return finish("hostile");
}
