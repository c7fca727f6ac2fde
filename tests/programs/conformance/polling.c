// Waiting for descriptors: poll, select, epoll, timerfds, pidfds.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>

static void polls(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    struct pollfd fds[3] = {{.fd = ends[0], .events = POLLIN},
                            {.fd = ends[1], .events = POLLOUT},
                            {.fd = -1, .events = POLLIN}};
    GIVES(poll(fds, 3, 0), 1);
    CHECK(fds[0].revents == 0 && fds[1].revents == POLLOUT && fds[2].revents == 0);
    CHECK(write(ends[1], "x", 1) == 1);
    GIVES(poll(fds, 1, -1), 1);
    GIVES(fds[0].revents, POLLIN);
    close(ends[1]);
    GIVES(poll(fds, 1, 0), 1);
    GIVES(fds[0].revents, POLLIN | POLLHUP);
    fds[1].fd = 9999;
    GIVES(poll(fds + 1, 1, 0), 1);
    GIVES(fds[1].revents, POLLNVAL);
    struct timespec start, end, bad = {0, -1};
    clock_gettime(CLOCK_MONOTONIC, &start);
    GIVES(poll(NULL, 0, 20), 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    CHECK((end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000 >= 19);
    FAILS(ppoll(fds, 1, &bad, NULL), EINVAL);
    FAILS(poll((void *)8, 1, 0), EFAULT);
    close(ends[0]);
    CHECK(pipe(ends) == 0);
    close(ends[0]);
    fds[1].fd = ends[1];
    GIVES(poll(fds + 1, 1, 0), 1);
    CHECK(fds[1].revents & POLLERR);
    close(ends[1]);
}

static void selects(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    fd_set in, out;
    struct timeval none = {0, 0}, bad = {-1, 0};
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_SET(ends[0], &in);
    FD_SET(ends[1], &out);
    GIVES(select(ends[1] + 1, &in, &out, NULL, &none), 1);
    CHECK(!FD_ISSET(ends[0], &in) && FD_ISSET(ends[1], &out));
    CHECK(write(ends[1], "x", 1) == 1);
    FD_SET(ends[0], &in);
    GIVES(select(ends[1] + 1, &in, &out, NULL, NULL), 2);
    FAILS(select(-1, &in, NULL, NULL, &none), EINVAL);
    FAILS(select(1, NULL, NULL, NULL, &bad), EINVAL);
    close(ends[0]), close(ends[1]);
    FD_ZERO(&in);
    FD_SET(ends[0], &in);
    FAILS(select(ends[0] + 1, &in, NULL, NULL, &none), EBADF);
}

static void epolls(void) {
    int epoll = epoll_create1(EPOLL_CLOEXEC), ends[2];
    CHECK(epoll >= 0 && pipe(ends) == 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7}, got[4];
    GIVES(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event), 0);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event), EEXIST);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[1], &event), ENOENT);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[1], &event), ENOENT);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, epoll, &event), EINVAL);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, 9999, &event), EBADF);
    FAILS(epoll_ctl(ends[0], EPOLL_CTL_ADD, ends[1], &event), EINVAL);
    FAILS(epoll_ctl(epoll, 99, ends[0], &event), EINVAL);
    int file = open("regular", O_CREAT | O_RDWR, 0600);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event), EPERM);
    close(file);
    GIVES(epoll_wait(epoll, got, 4, 0), 0);
    CHECK(write(ends[1], "x", 1) == 1);
    GIVES(epoll_wait(epoll, got, 4, -1), 1);
    CHECK(got[0].events == EPOLLIN && got[0].data.u32 == 7);
    GIVES(epoll_wait(epoll, got, 4, 0), 1);
    event.events = EPOLLIN | EPOLLET;
    GIVES(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &event), 0);
    GIVES(epoll_wait(epoll, got, 4, 0), 1);
    GIVES(epoll_wait(epoll, got, 4, 0), 0);
    event.events = EPOLLIN | EPOLLONESHOT;
    GIVES(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &event), 0);
    GIVES(epoll_wait(epoll, got, 4, 0), 1);
    CHECK(write(ends[1], "x", 1) == 1);
    GIVES(epoll_wait(epoll, got, 4, 0), 0);
    FAILS(epoll_wait(epoll, got, 0, 0), EINVAL);
    FAILS(epoll_wait(ends[0], got, 1, 0), EINVAL);
    FAILS(epoll_wait(9999, got, 1, 0), EBADF);
    GIVES(epoll_ctl(epoll, EPOLL_CTL_DEL, ends[0], NULL), 0);
    int outer = epoll_create1(0);
    event.events = EPOLLIN;
    GIVES(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event), 0);
    GIVES(epoll_ctl(outer, EPOLL_CTL_ADD, epoll, &event), 0);
    GIVES(epoll_wait(outer, got, 4, 0), 1);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, outer, &event), ELOOP);
    close(outer), close(epoll), close(ends[0]), close(ends[1]);
    if (!emulated) FAILS(epoll_create1(1 << 20), EINVAL);
}

/* A descriptor that is closed is no interest any more, whatever is opened in its place. */
static void closed_interests(void) {
    int epoll = epoll_create1(0), ends[2];
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1}, got[4];
    CHECK(pipe(ends) == 0);
    GIVES(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event), 0);
    close(ends[0]), close(ends[1]);
    int ready[2] = {eventfd(1, 0), eventfd(1, 0)};
    CHECK(ready[0] == ends[0] && ready[1] == ends[1]);
    GIVES(epoll_wait(epoll, got, 4, 0), 0);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_MOD, ready[0], &event), ENOENT);
    FAILS(epoll_ctl(epoll, EPOLL_CTL_DEL, ready[0], NULL), ENOENT);
    event.data.u64 = 2;
    GIVES(epoll_ctl(epoll, EPOLL_CTL_ADD, ready[0], &event), 0);
    /* One that is open elsewhere stays, also beside another one with its number. */
    int copy = dup(ready[0]);
    close(ready[0]);
    CHECK(eventfd(1, 0) == ready[0]);
    event.data.u64 = 3;
    GIVES(epoll_ctl(epoll, EPOLL_CTL_ADD, ready[0], &event), 0);
    GIVES(epoll_wait(epoll, got, 4, 0), 2);
    GIVES(got[0].data.u64 + got[1].data.u64, 5);
    close(copy);
    GIVES(epoll_wait(epoll, got, 4, 0), 1);
    GIVES(got[0].data.u64, 3);
    close(ready[0]), close(ready[1]), close(epoll);
}

static void timers(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec time = {.it_value.tv_nsec = 10000000, .it_interval.tv_nsec = 10000000}, left;
    uint64_t count = 0;
    FAILS(read(fd, &count, 8), EAGAIN);
    GIVES(timerfd_settime(fd, 0, &time, NULL), 0);
    GIVES(timerfd_gettime(fd, &left), 0);
    CHECK(left.it_value.tv_nsec > 0 && left.it_interval.tv_nsec == 10000000);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    GIVES(poll(&ready, 1, 5000), 1);
    GIVES(read(fd, &count, 8), 8);
    CHECK(count >= 1);
    time.it_value.tv_nsec = -1;
    FAILS(timerfd_settime(fd, 0, &time, NULL), EINVAL);
    FAILS(timerfd_create(99, 0), EINVAL);
    FAILS(read(fd, &count, 4), EINVAL);
    close(fd);
    FAILS(timerfd_gettime(0, &left), EINVAL);
}

static void processes(void) {
    pid_t child = CHILD(usleep(20000));
    int fd = (int)syscall(SYS_pidfd_open, child, 0);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    GIVES(poll(&ready, 1, 0), 0);
    GIVES(poll(&ready, 1, 5000), 1);
    GIVES(status_of(child), 0);
    FAILS(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0), ESRCH);
    close(fd);
    FAILS(syscall(SYS_pidfd_open, 99999, 0), ESRCH);
    FAILS(syscall(SYS_pidfd_open, -1, 0), EINVAL);
    // The directory of a process names it too.
    child = CHILD(pause());
    char name[32];
    snprintf(name, sizeof name, "/proc/%d", child);
    int directory = open(name, O_RDONLY | O_DIRECTORY);
    int other = open("/proc", O_RDONLY | O_DIRECTORY);
    FAILS(syscall(SYS_pidfd_send_signal, other, 0, NULL, 0), EBADF);
    GIVES(syscall(SYS_pidfd_send_signal, directory, 0, NULL, 0), 0);
    GIVES(syscall(SYS_pidfd_send_signal, directory, SIGTERM, NULL, 0), 0);
    int status;
    GIVES(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    FAILS(syscall(SYS_pidfd_send_signal, directory, SIGTERM, NULL, 0), ESRCH);
    close(directory);
    close(other);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    polls();
    selects();
    epolls();
    closed_interests();
    timers();
    processes();
    return finish("polling");
}
