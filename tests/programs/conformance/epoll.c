// epoll: the order of events, edges, and the effect of each kind of file on a waiting thread.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

static struct epoll_event got[8];

static void watch(int epoll, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    GIVES(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
}

static void change(int epoll, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    GIVES(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event), 0);
}

/* The number of the one event that is reported now. */
static int next(int epoll) {
    GIVES(epoll_wait(epoll, got, 1, 0), 1);
    return (int)got[0].data.u64;
}

static void add(int fd, uint64_t count) { CHECK(write(fd, &count, 8) == 8); }

static void take(int fd) {
    uint64_t count;
    CHECK(read(fd, &count, 8) == 8);
}

/* Files come in the order in which they became ready; those that still are come again behind
   all others. */
static void order(void) {
    int epoll = epoll_create1(0), fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = eventfd(0, 0);
        watch(epoll, fds[i], EPOLLIN, i);
    }
    GIVES(epoll_wait(epoll, got, 8, 0), 0);
    add(fds[2], 1), add(fds[0], 1), add(fds[3], 1);
    GIVES(epoll_wait(epoll, got, 8, 0), 3);
    CHECK(got[0].data.u64 == 2 && got[1].data.u64 == 0 && got[2].data.u64 == 3);
    for (int round = 0; round < 3; round++) {
        GIVES(next(epoll), 2);
        GIVES(next(epoll), 0);
        GIVES(next(epoll), 3);
    }
    add(fds[1], 1);
    take(fds[0]);
    GIVES(epoll_wait(epoll, got, 8, 0), 3);
    CHECK(got[0].data.u64 == 2 && got[1].data.u64 == 3 && got[2].data.u64 == 1);
    for (int i = 1; i < 4; i++) take(fds[i]);
    GIVES(epoll_wait(epoll, got, 8, 0), 0);
    add(fds[0], 5);
    GIVES(next(epoll), 0);
    for (int i = 0; i < 4; i++) close(fds[i]);
    GIVES(epoll_wait(epoll, got, 8, 0), 0);
    close(epoll);
}

static void edges(void) {
    int epoll = epoll_create1(0), ends[2], other = eventfd(0, 0);
    char bytes[16];
    CHECK(pipe(ends) == 0);
    watch(epoll, ends[0], EPOLLIN | EPOLLET, 1);
    watch(epoll, other, EPOLLIN, 2);
    CHECK(write(ends[1], "xy", 2) == 2);
    GIVES(next(epoll), 1);
    GIVES(epoll_wait(epoll, got, 8, 0), 0);
    /* More comes before what was there is read: an edge. A read is none. */
    CHECK(write(ends[1], "z", 1) == 1);
    GIVES(next(epoll), 1);
    CHECK(read(ends[0], bytes, 1) == 1);
    GIVES(epoll_wait(epoll, got, 8, 0), 0);
    CHECK(read(ends[0], bytes, 16) == 2);
    CHECK(write(ends[1], "a", 1) == 1);
    /* An edge that finds no place in the array waits. */
    add(other, 1);
    GIVES(next(epoll), 1);
    GIVES(next(epoll), 2);
    take(other);
    GIVES(epoll_wait(epoll, got, 8, 0), 0);
    close(ends[1]);
    GIVES(epoll_wait(epoll, got, 8, 0), 1);
    GIVES(got[0].events, EPOLLIN | EPOLLHUP);
    GIVES(epoll_wait(epoll, got, 8, 0), 0);
    close(ends[0]), close(other), close(epoll);
}

static void one_shots(void) {
    int epoll = epoll_create1(0), fd = eventfd(1, 0);
    watch(epoll, fd, EPOLLIN | EPOLLONESHOT, 1);
    GIVES(next(epoll), 1);
    add(fd, 1);
    GIVES(epoll_wait(epoll, got, 8, 0), 0);
    change(epoll, fd, EPOLLIN | EPOLLONESHOT, 2);
    GIVES(next(epoll), 2);
    take(fd);
    change(epoll, fd, EPOLLIN | EPOLLONESHOT, 3);
    GIVES(epoll_wait(epoll, got, 8, 0), 0);
    add(fd, 1);
    GIVES(next(epoll), 3);
    GIVES(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL), 0);
    watch(epoll, fd, EPOLLIN, 4);
    GIVES(next(epoll), 4);
    close(fd), close(epoll);
}

/* Writable again when there is room, which is an edge only after there was none. */
static void room(int type) {
    int epoll = epoll_create1(0), ends[2];
    char bytes[4096] = {0};
    CHECK(socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, ends) == 0);
    watch(epoll, ends[0], EPOLLOUT, 1);
    GIVES(next(epoll), 1);
    while (write(ends[0], bytes, sizeof bytes) > 0) {}
    GIVES(epoll_wait(epoll, got, 8, 0), 0);
    while (read(ends[1], bytes, sizeof bytes) > 0) {}
    GIVES(next(epoll), 1);
    close(ends[1]);
    close(ends[0]), close(epoll);
}

/* A larger buffer makes room too. */
static void larger_buffer(void) {
    int epoll = epoll_create1(0), ends[2], size = 4096;
    char bytes[256] = {0};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    GIVES(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
    watch(epoll, ends[0], EPOLLOUT, 1);
    GIVES(next(epoll), 1);
    while (write(ends[0], bytes, sizeof bytes) > 0) {}
    GIVES(epoll_wait(epoll, got, 8, 0), 0);
    size = 212992;
    GIVES(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size), 0);
    GIVES(next(epoll), 1);
    close(ends[0]), close(ends[1]), close(epoll);
}

/* A description that is closed by its last descriptor, in whatever way, is watched no more. */
static void ends_of_watches(void) {
    int epoll = epoll_create1(0), other = epoll_create1(0), fd = eventfd(1, 0), copy = dup(fd);
    watch(epoll, fd, EPOLLIN, 1);
    watch(epoll, copy, EPOLLIN, 2);
    watch(other, fd, EPOLLIN, 3);
    GIVES(epoll_wait(epoll, got, 8, 0), 2);
    GIVES(epoll_ctl(epoll, EPOLL_CTL_DEL, copy, NULL), 0);
    GIVES(next(epoll), 1);
    close(fd);
    GIVES(next(epoll), 1);
    close(other);
    GIVES(next(epoll), 1);
    int full = eventfd(1, 0);
    dup2(full, copy);
    GIVES(epoll_wait(epoll, got, 8, 0), 0);
    close(copy), close(full);
    /* One that is under way in a socket, whose other end goes. */
    int ends[2], sent = eventfd(1, 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    char control[CMSG_SPACE(sizeof sent)] = {0}, byte = 0;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof sent);
    memcpy(CMSG_DATA(header), &sent, sizeof sent);
    watch(epoll, sent, EPOLLIN, 4);
    GIVES(sendmsg(ends[0], &message, 0), 1);
    close(sent);
    GIVES(next(epoll), 4);
    close(ends[0]), close(ends[1]);
    GIVES(epoll_wait(epoll, got, 8, 0), 0);
    close(epoll);
}

/* What a thread waits for, what it got, and what the others do meanwhile. */
struct wait {
    int epoll;
    int result;
    struct epoll_event event;
};

static void *wait_for_one(void *argument) {
    struct wait *wait = argument;
    wait->result = epoll_wait(wait->epoll, &wait->event, 1, 10000);
    return NULL;
}

/* A thread that waits for `fd` gets `events` after `trigger`. */
#define WAKES(fd, events_, trigger)                                     \
    do {                                                                \
        struct wait wait = {epoll_create1(0), 0, {0}};                  \
        pthread_t thread;                                               \
        watch(wait.epoll, fd, EPOLLIN | EPOLLET, 5);                    \
        CHECK(!pthread_create(&thread, NULL, wait_for_one, &wait));     \
        usleep(20000);                                                  \
        trigger;                                                        \
        CHECK(!pthread_join(thread, NULL));                             \
        GIVES(wait.result, 1);                                          \
        GIVES(wait.event.events, events_);                              \
        GIVES(wait.event.data.u64, 5);                                  \
        GIVES(epoll_wait(wait.epoll, got, 8, 0), 0);                    \
        close(wait.epoll);                                              \
    } while (0)

static void wakes_by_files(void) {
    int ends[2], fd = eventfd(0, 0);
    WAKES(fd, EPOLLIN, add(fd, 1));
    close(fd);
    CHECK(pipe(ends) == 0);
    WAKES(ends[0], EPOLLIN, CHECK(write(ends[1], "x", 1) == 1));
    char bytes[8];
    CHECK(read(ends[0], bytes, 8) == 1);
    WAKES(ends[0], EPOLLHUP, close(ends[1]));
    close(ends[0]);
    for (int i = 0; i < 3; i++) {
        int type = (int[]){SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}[i];
        CHECK(socketpair(AF_UNIX, type, 0, ends) == 0);
        WAKES(ends[0], EPOLLIN, CHECK(write(ends[1], "x", 1) == 1));
        close(ends[0]), close(ends[1]);
    }
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int side = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    WAKES(terminal, EPOLLIN, CHECK(write(side, "x", 1) == 1));
    WAKES(side, EPOLLIN, CHECK(write(terminal, "x\n", 2) == 2));
    close(side), close(terminal);
    int notify = inotify_init1(0);
    CHECK(inotify_add_watch(notify, ".", IN_CREATE) > 0);
    WAKES(notify, EPOLLIN, close(open("created", O_CREAT | O_RDWR, 0600)));
    close(notify);
    unlink("created");
}

static void wakes_by_others(void) {
    struct itimerspec soon = {.it_value.tv_nsec = 10000000};
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    WAKES(timer, EPOLLIN, GIVES(timerfd_settime(timer, 0, &soon, NULL), 0));
    close(timer);
    int inner = epoll_create1(0), fd = eventfd(0, 0);
    watch(inner, fd, EPOLLIN, 1);
    WAKES(inner, EPOLLIN, add(fd, 1));
    close(fd), close(inner);
    pid_t child = CHILD(pause());
    int process = (int)syscall(SYS_pidfd_open, child, 0);
    WAKES(process, EPOLLIN, kill(child, SIGKILL));
    status_of(child);
    close(process);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(!pthread_sigmask(SIG_BLOCK, &set, NULL));
    int signals = signalfd(-1, &set, 0);
    WAKES(signals, EPOLLIN, kill(getpid(), SIGUSR1));
    close(signals);
    /* What another thread begins to watch, or watches for more. */
    struct wait wait = {epoll_create1(0), 0, {0}};
    int later[2] = {eventfd(1, 0), eventfd(1, 0)};
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, wait_for_one, &wait));
    usleep(20000);
    watch(wait.epoll, later[0], EPOLLIN | EPOLLET, 6);
    CHECK(!pthread_join(thread, NULL));
    CHECK(wait.result == 1 && wait.event.data.u64 == 6);
    watch(wait.epoll, later[1], 0, 7);
    CHECK(!pthread_create(&thread, NULL, wait_for_one, &wait));
    usleep(20000);
    change(wait.epoll, later[1], EPOLLIN, 8);
    CHECK(!pthread_join(thread, NULL));
    CHECK(wait.result == 1 && wait.event.data.u64 == 8);
    close(later[0]), close(later[1]), close(wait.epoll);
}

// Files without poll, and those that are always ready.
static void refused(void) {
    static const char *const paths[] = {"/dev/zero", "/dev/null", "/dev/full", "/dev/urandom", "."};
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    for (int i = 0; i < 5; i++) {
        int fd = open(paths[i], O_RDONLY);
        FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), EPERM);
        close(fd);
    }
    int fd = open("regular", O_CREAT | O_RDWR, 0600);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), EPERM);
    close(fd);
    fd = open("/dev/random", O_RDONLY);
    GIVES(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
    close(fd), close(epoll);
}

enum { WAITERS = 8 };

static int watched, woken;

static void *wait_exclusively(void *argument) {
    int epoll = epoll_create1(0);
    watch(epoll, watched, EPOLLIN | EPOLLEXCLUSIVE, 1);
    struct epoll_event event;
    __atomic_store_n((pid_t *)argument, gettid(), __ATOMIC_SEQ_CST);
    if (epoll_wait(epoll, &event, 1, 500) == 1) __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
    close(epoll);
    return argument;
}

// The number of threads that a change wakes. All wait before it: a thread that is late would find the
// file ready.
#define WOKEN_BY(fd, change)                                                                   \
    ({                                                                                         \
        pthread_t threads_[WAITERS];                                                           \
        pid_t waiters_[WAITERS] = {0};                                                         \
        watched = (fd), woken = 0;                                                             \
        for (int i = 0; i < WAITERS; i++)                                                      \
            CHECK(!pthread_create(&threads_[i], NULL, wait_exclusively, &waiters_[i]));        \
        for (int i = 0; i < WAITERS; i++) {                                                    \
            while (!__atomic_load_n(&waiters_[i], __ATOMIC_SEQ_CST)) usleep(1000);             \
            wait_until_thread_asleep(waiters_[i]);                                             \
        }                                                                                      \
        change;                                                                                \
        for (int i = 0; i < WAITERS; i++) CHECK(!pthread_join(threads_[i], NULL));             \
        woken;                                                                                 \
    })

static void exclusive(void) {
    int ends[2], sides[2], counter = eventfd(0, 0);
    CHECK(!pipe(ends) && !socketpair(AF_UNIX, SOCK_STREAM, 0, sides));
    GIVES(WOKEN_BY(counter, add(counter, 1)), 1);
    GIVES(WOKEN_BY(ends[0], GIVES(write(ends[1], "x", 1), 1)), 1);
    close(counter), close(ends[0]), close(ends[1]);
    GIVES(WOKEN_BY(sides[0], GIVES(write(sides[1], "x", 1), 1)), 1);
    close(sides[0]), close(sides[1]);
    CHECK(!socketpair(AF_UNIX, SOCK_DGRAM, 0, sides));
    GIVES(WOKEN_BY(sides[0], GIVES(write(sides[1], "x", 1), 1)), 1);
    close(sides[0]), close(sides[1]);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    GIVES(bind(listener, (void *)&address, sizeof address), 0);
    GIVES(listen(listener, 5), 0);
    GIVES(getsockname(listener, (void *)&address, &length), 0);
    GIVES(WOKEN_BY(listener, GIVES(connect(client, (void *)&address, sizeof address), 0)), 1);
    close(listener), close(client);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    order();
    edges();
    one_shots();
    room(SOCK_STREAM);
    room(SOCK_DGRAM);
    larger_buffer();
    ends_of_watches();
    wakes_by_files();
    wakes_by_others();
    refused();
    exclusive();
    return finish("epoll");
}
