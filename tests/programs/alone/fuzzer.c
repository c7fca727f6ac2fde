// Random system calls: children make calls with valid, nearly valid and invalid arguments,
// and end or are killed. Arguments: seed, milliseconds.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 300, PATIENCE = 400, REGION = 64 << 10 };

static uint64_t state;

static uint64_t bits(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t below(uint64_t limit) { return bits() % limit; }

// Memory that calls read and write: its last page is missing.
static char *region;
static int descriptors[32], opened;

static const char *const paths[] = {
    "file", "directory", "link", "loop", "fifo", ".", "..", "/", "/dev/null", "/dev/zero",
    "/dev/full", "/dev/random", "/proc/self/maps", "/proc/self/fd/3", "/proc/self/stat",
    "/proc/self/task", "/proc/1", "/proc/meminfo", "/proc", "/proc/self/fd", "none", "file/x",
    "directory/new", "directory/../file", "", "/sys/devices/system/cpu/online",
};

static const uint64_t numbers[] = {
    0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100, 128, 255, 256, 511, 512, 1000, 1023, 1024,
    4095, 4096, 4097, 8192, 65535, 65536, 1 << 20, (1 << 20) + 1, INT32_MAX, UINT32_MAX,
    1ULL << 31, 1ULL << 32, 1ULL << 40, INT64_MAX, 1ULL << 63, -1ULL, -2ULL, -100ULL, -4095ULL,
    -4096ULL, -65536ULL,
};

static uint64_t number(void) {
    switch (below(4)) {
    case 0: return below(10);
    case 1: return bits() >> below(64);
    case 2: return 1ULL << below(64);
    default: return numbers[below(sizeof numbers / sizeof *numbers)];
    }
}

// An address, mostly a valid one with contents.
static uint64_t address(void) {
    uint64_t at = (uint64_t)region + below(REGION - 4096);
    switch (below(10)) {
    case 0: return number();
    case 1: return (uint64_t)region + REGION - 4096 - below(64);
    case 2: return 0;
    case 3: return (uint64_t)bits + below(4096);
    case 4: return at;
    case 5: at &= ~7ULL; *(const char **)at = region + below(REGION - 4096); return at;
    default:
        at &= ~7ULL;
        if (at + 256 > (uint64_t)region + REGION - 4096) at -= 512;
        for (int i = 0; i < 8; i++)
            ((uint64_t *)at)[i] = below(3) ? number() : (uint64_t)region + below(REGION);
        return at;
    }
}

static uint64_t path(void) {
    char *at = region + below(REGION / 8192) * 256;
    strcpy(at, paths[below(sizeof paths / sizeof *paths)]);
    return (uint64_t)at;
}

static uint64_t descriptor(void) {
    switch (below(8)) {
    case 0: return number();
    case 1: return 3 + below(40);
    case 2: return (uint64_t)AT_FDCWD;
    default: return descriptors[below(opened)];
    }
}

static uint64_t argument(void) {
    switch (below(8)) {
    case 0: case 1: return descriptor();
    case 2: return path();
    case 3: case 4: return address();
    default: return number();
    }
}

// Calls that end the process, wait without a signal reaching them, or affect other processes.
static int is_left_out(long call) {
    switch (call) {
    case SYS_exit: case SYS_exit_group: case SYS_rt_sigreturn: case SYS_kill: case SYS_tkill:
    case SYS_tgkill: case SYS_rt_sigqueueinfo: case SYS_rt_tgsigqueueinfo:
    case SYS_pidfd_send_signal: case SYS_rt_sigprocmask: case SYS_chroot: case SYS_setsid:
    case SYS_setpgid: case SYS_prctl: case SYS_setpriority: case SYS_sched_setaffinity:
        return 1;
    default:
        return 0;
    }
}

static void keep(int fd) {
    if (fd >= 0 && opened < 32) descriptors[opened++] = fd;
}

static void prepare(void) {
    int ends[2];
    sigset_t set;
    region = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(region + REGION - 4096, 4096);
    mkdir("directory", 0755);
    close(open("directory/inside", O_CREAT | O_WRONLY, 0644));
    int file = open("file", O_CREAT | O_RDWR, 0644);
    if (write(file, "some contents", 13) < 0) perror("file");
    if (symlink("file", "link") < 0 || symlink("loop", "loop") < 0 || mkfifo("fifo", 0644) < 0)
        errno = 0;
    keep(file);
    keep(open("directory", O_RDONLY));
    keep(open("fifo", O_RDWR | O_NONBLOCK));
    keep(open("/proc/self/stat", O_RDONLY));
    keep(open("/dev/zero", O_RDWR));
    if (pipe2(ends, O_NONBLOCK) == 0) keep(ends[0]), keep(ends[1]);
    if (pipe(ends) == 0) keep(ends[0]), keep(ends[1]);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0) keep(ends[0]), keep(ends[1]);
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0) keep(ends[0]), keep(ends[1]);
    keep(socket(AF_INET, SOCK_STREAM, 0));
    keep(socket(AF_INET6, SOCK_DGRAM, 0));
    keep(eventfd(1, EFD_NONBLOCK));
    keep(epoll_create1(0));
    keep(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
    sigemptyset(&set);
    keep(signalfd(-1, &set, SFD_NONBLOCK));
    int notify = inotify_init1(IN_NONBLOCK);
    inotify_add_watch(notify, ".", IN_ALL_EVENTS);
    keep(notify);
    keep(memfd_create("memory", MFD_ALLOW_SEALING));
    keep(open(".", O_PATH));
}

static void ignore(int signal) { (void)signal; }

// The work of a child. A timer interrupts blocking calls.
static void child(void) {
    struct sigaction action = {.sa_handler = ignore};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 5000}, {0, 5000}};
    setitimer(ITIMER_REAL, &often, NULL);
    struct rlimit limit = {64 << 20, 64 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    long own = syscall(SYS_getpid);
    for (int i = 0; i < CALLS; i++) {
        long call = (long)below(460);
        if (is_left_out(call)) continue;
        uint64_t a[6];
        for (int n = 0; n < 6; n++) a[n] = argument();
        // The argument types of most calls.
        if (below(2)) a[0] = descriptor();
        if (below(3) == 0) a[1] = path(), a[0] = (uint64_t)AT_FDCWD;
        syscall(call, a[0], a[1], a[2], a[3], a[4], a[5]);
        if (syscall(SYS_getpid) != own) _exit(0);
    }
}

int main(int count, char **arguments) {
    state = count > 1 ? strtoull(arguments[1], NULL, 0) * 0x9e3779b97f4a7c15 + 1 : 1;
    long limit = count > 2 ? atol(arguments[2]) : 1000;
    if (chdir("/tmp") < 0) return 2;
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    prepare();
    int children = 0, killed = 0;
    do {
        uint64_t seed = bits();
        pid_t pid = fork();
        if (pid == 0) {
            setpgid(0, 0);
            state = seed | 1;
            child();
            _exit(0);
        }
        if (pid > 0) {
            setpgid(pid, pid);
            children++;
            int fd = (int)syscall(SYS_pidfd_open, pid, 0);
            struct pollfd ended = {.fd = fd, .events = POLLIN};
            if (poll(&ended, 1, PATIENCE) == 0) killed++;
            close(fd);
            kill(-pid, SIGKILL);
            kill(pid, SIGKILL);
        }
        if (pid > 0) waitpid(pid, NULL, 0);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < limit);
    printf("made %d children, killed %d\n", children, killed);
    return 0;
}
