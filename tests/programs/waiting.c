// Waiting: epoll in all its modes, timerfds, signalfds, pidfds, interval and POSIX timers,
// queued signals.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void show(const char *what, long result) {
    printf("%s: %ld%s%s\n", what, result, result < 0 ? " " : "", result < 0 ? strerrorname_np(errno) : "");
}

static void events(const char *what, int epoll, int timeout) {
    struct epoll_event got[8];
    int count = epoll_wait(epoll, got, 8, timeout);
    printf("%s: %d", what, count);
    for (int i = 0; i < count; i++) printf(" %d:%x", (int)got[i].data.u32, got[i].events);
    printf("\n");
}

static int add(int epoll, int fd, uint32_t what, int mark) {
    struct epoll_event event = {.events = what, .data.u32 = mark};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static void level_and_edge(void) {
    int epoll = epoll_create1(EPOLL_CLOEXEC), pair[2], fds[2], event = eventfd(0, EFD_NONBLOCK);
    char buffer[100];
    uint64_t one = 1;
    if (pipe(fds)) return;
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    show("add", add(epoll, fds[0], EPOLLIN, 1));
    show("add", add(epoll, pair[0], EPOLLIN | EPOLLET, 2));
    show("add", add(epoll, event, EPOLLIN | EPOLLONESHOT, 3));
    show("again", add(epoll, event, EPOLLIN, 3));
    events("nothing", epoll, 0);
    show("write", write(fds[1], "abc", 3));
    show("write", write(pair[1], "abc", 3));
    show("write", write(event, &one, 8));
    events("all", epoll, 0);
    events("level only", epoll, 0);
    // More data is an edge, although nothing was read.
    show("write", write(pair[1], "d", 1));
    events("edge", epoll, 0);
    events("level only", epoll, 0);
    show("read", read(pair[0], buffer, 2));
    events("no edge", epoll, 0);
    show("read", read(pair[0], buffer, 100));
    show("write", write(pair[1], "e", 1));
    events("edge", epoll, 0);
    struct epoll_event again = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = 4};
    show("again", epoll_ctl(epoll, EPOLL_CTL_MOD, event, &again));
    events("once more", epoll, 0);
    show("read", read(fds[0], buffer, 100));
    events("quiet", epoll, 0);
    close(fds[1]);
    events("hangup", epoll, 0);
    close(fds[0]);
    events("closed", epoll, 0);
    close(pair[1]);
    events("ended", epoll, 0);
    show("delete", epoll_ctl(epoll, EPOLL_CTL_DEL, pair[0], NULL));
    show("delete", epoll_ctl(epoll, EPOLL_CTL_DEL, pair[0], NULL));
    // Nested epolls.
    int outer = epoll_create1(0);
    show("nested", add(outer, epoll, EPOLLIN, 9));
    show("itself", add(epoll, epoll, EPOLLIN, 9));
    again.events = EPOLLIN;
    show("modify", epoll_ctl(epoll, EPOLL_CTL_MOD, event, &again));
    events("nested", outer, 0);
    show("read", read(event, &one, 8));
    events("nested", outer, 0);
    show("exclusive", add(outer, event, EPOLLIN | EPOLLEXCLUSIVE, 10));
    again.events = EPOLLIN | EPOLLEXCLUSIVE;
    show("exclusive", epoll_ctl(outer, EPOLL_CTL_MOD, event, &again));
    show("file", add(outer, open("/proc/self/exe", 0), EPOLLIN, 1));
    show("pointer", epoll_ctl(outer, EPOLL_CTL_ADD, event, (void *)8));
    show("no epoll", add(event, outer, EPOLLIN, 1));
    struct epoll_event got;
    show("none", epoll_wait(outer, &got, 0, 0));
    close(outer);
    close(epoll);
    close(event);
    close(pair[0]);
}

static void timerfds(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), blocking = timerfd_create(CLOCK_REALTIME, 0);
    struct itimerspec spec = {{0, 10000000}, {0, 5000000}}, old;
    uint64_t count = 0;
    show("read", read(fd, &count, 8));
    show("set", timerfd_settime(fd, 0, &spec, NULL));
    struct pollfd poll_fd = {fd, POLLIN, 0};
    show("poll", poll(&poll_fd, 1, 1000));
    usleep(30000);
    show("read", read(fd, &count, 8));
    printf("several %d\n", count >= 3 && count < 20);
    show("short", read(fd, &count, 4));
    spec.it_interval.tv_nsec = spec.it_value.tv_nsec = 0;
    show("stop", timerfd_settime(fd, 0, &spec, &old));
    printf("interval %ld left %d\n", old.it_interval.tv_nsec, old.it_value.tv_nsec > 0);
    show("get", timerfd_gettime(fd, &old));
    printf("left %ld\n", old.it_value.tv_nsec);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    spec.it_value = now;
    spec.it_value.tv_nsec += 3000000;
    if (spec.it_value.tv_nsec >= 1000000000) spec.it_value.tv_sec++, spec.it_value.tv_nsec -= 1000000000;
    show("absolute", timerfd_settime(blocking, TFD_TIMER_ABSTIME, &spec, NULL));
    show("read", read(blocking, &count, 8));
    printf("count %d\n", (int)count);
    show("clock", timerfd_create(77, 0));
    show("flags", timerfd_create(CLOCK_MONOTONIC, 77));
    spec.it_value.tv_nsec = 1000000000;
    show("value", timerfd_settime(fd, 0, &spec, NULL));
    show("pointer", timerfd_settime(fd, 0, (void *)8, NULL));
    show("no timer", timerfd_settime(0, 0, &old, NULL));
    show("write", write(fd, &count, 8));
    close(fd);
    close(blocking);
}

static volatile sig_atomic_t alarms, last_code, last_value, last_overrun;

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    alarms++;
    last_code = info->si_code;
    last_value = info->si_value.sival_int;
    last_overrun = info->si_overrun;
}

static void signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 1);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    struct signalfd_siginfo info[4];
    show("read", read(fd, info, sizeof info));
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGUSR1);
    sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 5});
    sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 6});
    struct pollfd poll_fd = {fd, POLLIN, 0};
    show("poll", poll(&poll_fd, 1, 0));
    long result = read(fd, info, sizeof info);
    show("read", result);
    for (int i = 0; i < result / 128; i++)
        printf("%d code %d value %d pid %d\n", info[i].ssi_signo, info[i].ssi_code, info[i].ssi_int, info[i].ssi_pid == (uint32_t)getpid());
    show("short", read(fd, info, 100));
    // A child sends an event during the wait.
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        usleep(5000);
        _exit(3);
    }
    show("poll", poll(&poll_fd, 1, 2000));
    show("read", read(fd, info, sizeof info));
    printf("%d status %d pid %d\n", info[0].ssi_signo, info[0].ssi_status, info[0].ssi_pid == (uint32_t)pid);
    waitpid(pid, NULL, 0);
    // Queued signals arrive in order, with their values.
    siginfo_t queued;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGRTMIN + 1);
    for (int i = 0; i < 3; i++) sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i * 11});
    struct timespec limit = {0, 1000000};
    for (int i = 0; i < 4; i++) {
        int signal = sigtimedwait(&one, &queued, &limit);
        if (signal > 0)
            printf("queued %d %d\n", queued.si_value.sival_int, queued.si_code);
        else
            show("timed out", signal);
    }
    close(fd);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void pidfds(void) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(1);
    }
    int fd = syscall(SYS_pidfd_open, pid, 0);
    printf("open %d\n", fd >= 0);
    struct pollfd poll_fd = {fd, POLLIN, 0};
    show("poll", poll(&poll_fd, 1, 0));
    show("check", syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
    show("send", syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0));
    show("poll", poll(&poll_fd, 1, 2000));
    siginfo_t info;
    memset(&info, 0, sizeof info);
    show("waitid", waitid(P_PIDFD, fd, &info, WEXITED));
    printf("%d %d %d\n", info.si_pid == pid, info.si_code, info.si_status);
    show("gone", syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0));
    show("waitid", waitid(P_PIDFD, fd, &info, WEXITED));
    show("read", read(fd, &info, 10));
    show("no process", syscall(SYS_pidfd_open, 4000000, 0));
    show("negative", syscall(SYS_pidfd_open, -1, 0));
    show("no pidfd", syscall(SYS_pidfd_send_signal, 0, SIGTERM, NULL, 0));
    close(fd);
}

static void timers(void) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGRTMIN, &action, NULL);
    sigaction(SIGPROF, &action, NULL);
    struct itimerval value = {{0, 4000}, {0, 2000}}, old;
    show("itimer", setitimer(ITIMER_REAL, &value, NULL));
    while (alarms < 3) pause();
    printf("code %d\n", last_code);
    memset(&value, 0, sizeof value);
    show("stop", setitimer(ITIMER_REAL, &value, &old));
    printf("interval %ld\n", (long)old.it_interval.tv_usec);
    // A program that computes is interrupted too.
    alarms = 0;
    value.it_value.tv_usec = 5000;
    setitimer(ITIMER_REAL, &value, NULL);
    while (!alarms) {
    }
    alarms = 0;
    setitimer(ITIMER_PROF, &value, NULL);
    while (!alarms) {
    }
    printf("interrupted\n");
    show("alarm", alarm(100));
    show("alarm", alarm(0));
    value.it_value.tv_usec = 1000000;
    show("value", setitimer(ITIMER_REAL, &value, NULL));
    show("which", setitimer(7, &value, NULL));
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 77};
    timer_t timer;
    show("create", timer_create(CLOCK_MONOTONIC, &event, &timer));
    struct itimerspec spec = {{0, 2000000}, {0, 1000000}}, left;
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, &before);
    alarms = 0;
    show("set", timer_settime(timer, 0, &spec, NULL));
    usleep(30000);
    sigprocmask(SIG_SETMASK, &before, NULL);
    printf("code %d value %d\n", last_code, last_value);
    show("get", timer_gettime(timer, &left));
    printf("interval %ld\n", left.it_interval.tv_nsec);
    show("delete", timer_delete(timer));
    show("clock", timer_create(99, &event, &timer));
    event.sigev_signo = 100;
    show("signal", timer_create(CLOCK_MONOTONIC, &event, &timer));
}

static long elapsed(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - start->tv_sec) * 1000000000L + now.tv_nsec - start->tv_nsec;
}

static void sleeping(void) {
    struct timespec start, until;
    clock_gettime(CLOCK_MONOTONIC, &start);
    until = start;
    until.tv_nsec += 20000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    show("sleep", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL));
    printf("long enough %d\n", elapsed(&start) >= 20000000);
    show("past", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &start, NULL));
    struct timespec bad = {0, 1000000000};
    show("bad", clock_nanosleep(CLOCK_MONOTONIC, 0, &bad, NULL));
    /* The first signal may come before the sleep begins. */
    struct itimerval value = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &value, NULL);
    struct timespec request = {5, 0}, rest = {0, 0};
    show("interrupted", nanosleep(&request, &rest));
    memset(&value, 0, sizeof value);
    setitimer(ITIMER_REAL, &value, NULL);
    printf("rest %ld\n", (long)rest.tv_sec);
}

int main(void) {
    level_and_edge();
    timerfds();
    signals();
    pidfds();
    timers();
    sleeping();
    return 0;
}
