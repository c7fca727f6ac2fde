// The operations of `hartline bench syscalls`:
//
//   syscalls OPERATION COUNT
//
// does one COUNT times, on one CPU, and prints the time in nanoseconds. For operations whose
// names begin with `late` it prints the delays after the requested times. The program prepares
// an operation, and does it once, before the clock starts.
// `data`, a file of some pages, is in the working directory.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MANY_PAGES = 256 };

static char page[PAGE];

static void check(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

// Without arguments and with hardly any work in the kernel. Not through the C library, which
// might cache the result.
static void call_getppid(unsigned long count) {
    while (count--) check(syscall(SYS_getppid) >= 0, "getppid");
}

static int data;
static off_t data_size;

static void open_data(void) {
    struct stat stat;
    data = open("data", O_RDONLY);
    check(data >= 0 && !fstat(data, &stat) && stat.st_size >= PAGE, "data");
    data_size = stat.st_size / PAGE * PAGE;
}

static void read_page(unsigned long count) {
    for (off_t at = 0; count--; at = (at + PAGE) % data_size)
        check(pread(data, page, PAGE, at) == PAGE, "pread");
}

// Two pipes, and a partner at their other ends that sends every byte back.
static int to[2], back[2];

static void open_pipes(void) { check(!pipe(to) && !pipe(back), "pipe"); }

static void *echo(void *unused) {
    char byte;
    while (read(to[0], &byte, 1) == 1) check(write(back[1], &byte, 1) == 1, "write");
    return unused;
}

static void pipe_threads(void) {
    pthread_t thread;
    open_pipes();
    check(!pthread_create(&thread, NULL, echo, NULL), "pthread_create");
}

static void pipe_processes(void) {
    open_pipes();
    pid_t child = fork();
    check(child >= 0, "fork");
    if (!child) {
        close(to[1]);
        echo(NULL);
        _exit(0);
    }
}

static void ping_pong(unsigned long count) {
    char byte = 1;
    while (count--)
        check(write(to[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1, "ping-pong");
}

// A word that two threads set in turn: at 0 the main thread continues.
static _Atomic uint32_t turn;

static void wait_for_turn(uint32_t own) {
    while (atomic_load(&turn) != own) syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, !own, NULL);
}

static void pass_turn(uint32_t next) {
    atomic_store(&turn, next);
    check(syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1) >= 0, "FUTEX_WAKE");
}

static void *take_turns(void *unused) {
    for (;;) {
        wait_for_turn(1);
        pass_turn(0);
    }
    return unused;
}

static void start_turns(void) {
    pthread_t thread;
    check(!pthread_create(&thread, NULL, take_turns, NULL), "pthread_create");
}

static void futex_turns(unsigned long count) {
    while (count--) {
        pass_turn(1);
        wait_for_turn(0);
    }
}

// No thread waits.
static void futex_wake(unsigned long count) {
    while (count--) check(!syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1), "FUTEX_WAKE");
}

static void *nothing(void *unused) { return unused; }

static void thread_join(unsigned long count) {
    pthread_t thread;
    while (count--)
        check(!pthread_create(&thread, NULL, nothing, NULL) && !pthread_join(thread, NULL),
              "thread");
}

static void map_pages(unsigned long count, size_t pages) {
    while (count--) {
        volatile char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(memory != MAP_FAILED, "mmap");
        for (size_t i = 0; i < pages; i++) memory[i * PAGE] = 1;
        check(!munmap((void *)memory, pages * PAGE), "munmap");
    }
}

static void map_one(unsigned long count) { map_pages(count, 1); }
static void map_many(unsigned long count) { map_pages(count, MANY_PAGES); }

static void wait_for(pid_t child) {
    int status;
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "child");
}

static void fork_exit(unsigned long count) {
    while (count--) {
        pid_t child = fork();
        if (!child) _exit(0);
        wait_for(child);
    }
}

static void execute_nothing(void) {
    char *arguments[] = {"syscalls", NULL};
    execv("/proc/self/exe", arguments);
    _exit(127);
}

static void fork_exec(unsigned long count) {
    while (count--) {
        pid_t child = fork();
        if (!child) execute_nothing();
        wait_for(child);
    }
}

// As `posix_spawn`: nothing is copied.
static void vfork_exec(unsigned long count) {
    while (count--) {
        pid_t child = vfork();
        if (!child) execute_nothing();
        wait_for(child);
    }
}

// Sockets that one epoll instance watches, and the socket that sends to them. In each operation,
// a different one becomes ready.
enum { MOST_SOCKETS = 10000 };
static int watcher, sender, sockets, watched[MOST_SOCKETS];
static struct sockaddr_in addresses[MOST_SOCKETS];

static void watch_sockets(int count) {
    struct rlimit limit;
    check(!getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
    limit.rlim_cur = limit.rlim_max;
    check(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
    watcher = epoll_create1(0);
    sender = socket(AF_INET, SOCK_DGRAM, 0);
    check(watcher >= 0 && sender >= 0, "epoll_create1, socket");
    for (sockets = 0; sockets < count; sockets++) {
        struct sockaddr_in *address = &addresses[sockets];
        socklen_t length = sizeof *address;
        *address = (struct sockaddr_in){.sin_family = AF_INET};
        address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int fd = watched[sockets] = socket(AF_INET, SOCK_DGRAM, 0);
        check(fd >= 0, "socket");
        check(!bind(fd, (struct sockaddr *)address, length), "bind");
        check(!getsockname(fd, (struct sockaddr *)address, &length), "getsockname");
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = sockets};
        check(!epoll_ctl(watcher, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
    }
}

static void watch_thousand(void) { watch_sockets(1000); }
static void watch_ten_thousand(void) { watch_sockets(MOST_SOCKETS); }

static void epoll_one(unsigned long count) {
    static unsigned next;
    while (count--) {
        // A step that is coprime to the number of sockets.
        next = (next + 7919) % sockets;
        char byte = 1;
        struct epoll_event events[16];
        struct sockaddr *address = (struct sockaddr *)&addresses[next];
        check(sendto(sender, &byte, 1, 0, address, sizeof addresses[next]) == 1, "sendto");
        check(epoll_wait(watcher, events, 16, -1) == 1 && events[0].data.u32 == next, "epoll_wait");
        check(recv(watched[next], &byte, 1, 0) == 1, "recv");
    }
}

// The sum of all delays.
static uint64_t late;

enum { PERIOD = 1000000 };

static void add_lateness(uint64_t expected) {
    uint64_t at = now();
    late += at > expected ? at - expected : 0;
}

static timer_t timer;
static volatile uint64_t expected;
static volatile unsigned long left;

static void arm(void) {
    expected = now() + PERIOD;
    struct itimerspec when = {.it_value = {expected / 1000000000, expected % 1000000000}};
    check(!timer_settime(timer, TIMER_ABSTIME, &when, NULL), "timer_settime");
}

static void expired(int signal) {
    (void)signal;
    add_lateness(expected);
    if (--left) arm();
}

static void prepare_timer(void) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    signal(SIGUSR1, expired);
    check(!timer_create(CLOCK_MONOTONIC, &event, &timer), "timer_create");
}

// Signals of a timer to a computing program.
static void late_timer(unsigned long count) {
    if (!count) return;
    left = count;
    arm();
    while (left) {}
}

static void *compute(void *unused) {
    for (volatile unsigned long i = 0;; i++) {}
    return unused;
}

static void start_computing(void) {
    pthread_t thread;
    check(!pthread_create(&thread, NULL, compute, NULL), "pthread_create");
}

// Sleeps: alone, or while another thread computes.
static void late_sleep(unsigned long count) {
    while (count--) {
        uint64_t until = now() + PERIOD;
        struct timespec when = {until / 1000000000, until % 1000000000};
        check(!clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL), "sleep");
        add_lateness(until);
    }
}

static const struct {
    const char *name;
    void (*prepare)(void);
    void (*run)(unsigned long count);
} operations[] = {
    {"getppid", NULL, call_getppid},
    {"read-4k", open_data, read_page},
    {"pipe-threads", pipe_threads, ping_pong},
    {"pipe-processes", pipe_processes, ping_pong},
    {"futex-wake", NULL, futex_wake},
    {"futex-threads", start_turns, futex_turns},
    {"thread-join", NULL, thread_join},
    {"mmap-4k", NULL, map_one},
    {"mmap-1m", NULL, map_many},
    {"fork-exit", NULL, fork_exit},
    {"fork-exec", NULL, fork_exec},
    {"vfork-exec", NULL, vfork_exec},
    {"epoll-1000", watch_thousand, epoll_one},
    {"epoll-10000", watch_ten_thousand, epoll_one},
    {"late-timer", prepare_timer, late_timer},
    {"late-sleep", start_computing, late_sleep},
    {"late-alone", NULL, late_sleep},
};

int main(int argc, char **argv) {
    // Without arguments, it is the program that `fork-exec` executes.
    if (argc != 3) return argc > 1;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    check(!sched_setaffinity(0, sizeof one, &one), "sched_setaffinity");
    unsigned long count = strtoul(argv[2], NULL, 10);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (strcmp(operations[i].name, argv[1])) continue;
        if (operations[i].prepare) operations[i].prepare();
        operations[i].run(1);
        late = 0;
        uint64_t start = now();
        operations[i].run(count);
        uint64_t time = now() - start;
        int is_late = !strncmp(argv[1], "late", 4);
        printf("%llu\n", (unsigned long long)(is_late ? late : time));
        return 0;
    }
    fprintf(stderr, "syscalls: %s: no such operation\n", argv[1]);
    return 2;
}
