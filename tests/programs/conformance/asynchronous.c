// Signal-driven input and output: O_ASYNC, F_SETOWN, F_SETSIG.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

static volatile sig_atomic_t seen, code, descriptor, band, thread;

static void note(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    seen++, code = info->si_code, descriptor = info->si_fd, band = info->si_band;
    thread = gettid();
}

static void handle(int number) {
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | SA_RESTART};
    GIVES(sigaction(number, &action, NULL), 0);
}

// Number of signals since the last call; waits for the first.
static int signals(void) {
    for (int i = 0; i < 2000 && !seen; i++) usleep(1000);
    return seen;
}

// Whether no signal arrives for a while.
static int silence(void) {
    usleep(30000);
    return !seen;
}

static void owners(void) {
    int ends[2];
    GIVES(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    GIVES(fcntl(ends[0], F_GETOWN), 0);
    GIVES(fcntl(ends[0], F_SETOWN, getpid()), 0);
    GIVES(fcntl(ends[0], F_GETOWN), getpid());
    GIVES(fcntl(ends[1], F_GETOWN), 0);
    // The C library uses `F_GETOWN_EX`, because a group is negative.
    GIVES(fcntl(ends[0], F_SETOWN, -getpgrp()), 0);
    struct f_owner_ex owner = {9, 9};
    GIVES(fcntl(ends[0], F_GETOWN_EX, &owner), 0);
    CHECK(owner.type == F_OWNER_PGRP && owner.pid == getpgrp());
    owner = (struct f_owner_ex){F_OWNER_TID, gettid()};
    GIVES(fcntl(ends[0], F_SETOWN_EX, &owner), 0);
    GIVES(fcntl(ends[0], F_GETOWN_EX, &owner), 0);
    CHECK(owner.type == F_OWNER_TID && owner.pid == gettid());
    owner.type = 7;
    FAILS(fcntl(ends[0], F_SETOWN_EX, &owner), EINVAL);
    FAILS(fcntl(ends[0], F_SETOWN, 0x3fffffff), ESRCH);
    FAILS(fcntl(ends[0], F_SETOWN, -0x3fffffff), ESRCH);
    FAILS(fcntl(99, F_SETOWN, getpid()), EBADF);
    int id = getpid();
    GIVES(fcntl(ends[0], F_SETOWN, 0), 0);
    GIVES(fcntl(ends[0], F_GETOWN), 0);
    if (!emulated) {
        GIVES(ioctl(ends[0], FIOSETOWN, &id), 0);
        GIVES(fcntl(ends[0], F_GETOWN), id);
        id = 0;
        GIVES(ioctl(ends[0], SIOCGPGRP, &id), 0);
        CHECK(id == getpid());
    }
    // A process that has ended is not an owner any more.
    pid_t child = CHILD(pause());
    GIVES(fcntl(ends[0], F_SETOWN, child), 0);
    GIVES(fcntl(ends[0], F_GETOWN), child);
    kill(child, SIGKILL);
    status_of(child);
    GIVES(fcntl(ends[0], F_GETOWN), 0);
    GIVES(fcntl(ends[0], F_GETSIG), 0);
    FAILS(fcntl(ends[0], F_SETSIG, 65), EINVAL);
    close(ends[0]), close(ends[1]);
}

static void flags(void) {
    int file = open("file", O_CREAT | O_RDWR, 0600), on = 1, ends[2];
    // A regular file has no signals: the flag is not kept.
    GIVES(fcntl(file, F_SETFL, O_ASYNC | O_APPEND), 0);
    CHECK((fcntl(file, F_GETFL) & (O_ASYNC | O_APPEND)) == O_APPEND);
    FAILS(ioctl(file, FIOASYNC, &on), ENOTTY);
    GIVES(pipe(ends), 0);
    GIVES(ioctl(ends[0], FIOASYNC, &on), 0);
    CHECK(fcntl(ends[0], F_GETFL) & O_ASYNC);
    CHECK(!(fcntl(ends[1], F_GETFL) & O_ASYNC));
    on = 0;
    GIVES(ioctl(ends[0], FIOASYNC, &on), 0);
    CHECK(!(fcntl(ends[0], F_GETFL) & O_ASYNC));
    FAILS(ioctl(ends[0], FIOASYNC, NULL), EFAULT);
    close(file), close(ends[0]), close(ends[1]);
}

static void pipes(void) {
    int ends[2];
    char bytes[4096] = "";
    GIVES(pipe2(ends, O_NONBLOCK), 0);
    GIVES(fcntl(ends[0], F_SETOWN, getpid()), 0);
    // Without `O_ASYNC`, the owner gets no signal.
    seen = 0;
    CHECK(write(ends[1], "a", 1) == 1 && silence());
    GIVES(fcntl(ends[0], F_SETFL, O_ASYNC | O_NONBLOCK), 0);
    CHECK(silence());
    CHECK(write(ends[1], "b", 1) == 1 && signals() == 1);
    CHECK(code == SI_KERNEL);
    seen = 0;
    CHECK(read(ends[0], bytes, 2) == 2 && silence());
    // The other end: room in a full pipe.
    GIVES(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    GIVES(fcntl(ends[1], F_SETOWN, getpid()), 0);
    GIVES(fcntl(ends[1], F_SETFL, O_ASYNC | O_NONBLOCK), 0);
    while (write(ends[1], bytes, sizeof bytes) > 0) {}
    CHECK(silence());
    CHECK(read(ends[0], bytes, sizeof bytes) == sizeof bytes && signals() == 1);
    // The last reader closes its end.
    seen = 0;
    close(ends[0]);
    CHECK(signals() == 1);
    close(ends[1]);
}

static void sockets(void) {
    int ends[2], on = 1;
    char byte;
    GIVES(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    GIVES(fcntl(ends[0], F_SETOWN, getpid()), 0);
    GIVES(ioctl(ends[0], FIOASYNC, &on), 0);
    seen = 0;
    CHECK(write(ends[1], "x", 1) == 1 && signals() >= 1);
    CHECK(read(ends[0], &byte, 1) == 1);
    // With `F_SETSIG`, the signal names the file.
    GIVES(fcntl(ends[0], F_SETSIG, SIGIO), 0);
    GIVES(fcntl(ends[0], F_GETSIG), SIGIO);
    seen = 0;
    CHECK(write(ends[1], "y", 1) == 1 && signals() >= 1);
    if (!emulated) CHECK(code == POLL_IN && descriptor == ends[0] && band & POLLIN);
    CHECK(read(ends[0], &byte, 1) == 1);
    // Real-time signals are queued.
    GIVES(fcntl(ends[0], F_SETSIG, SIGRTMIN + 1), 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    seen = 0;
    for (int i = 0; i < 3; i++) CHECK(write(ends[1], "z", 1) == 1);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    CHECK(signals() == 3);
    // The other side closes.
    seen = 0;
    GIVES(fcntl(ends[0], F_SETSIG, 0), 0);
    close(ends[1]);
    CHECK(signals() >= 1);
    close(ends[0]);
}

static void child(void) {
    // Another process gets the signal; the open file description is shared.
    int ends[2], on = 1;
    GIVES(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid_t pid = CHILD({
        seen = 0;
        CHECK(write(ends[1], "?", 1) == 1);
        _exit(signals() >= 1 ? 5 : 6);
    });
    char byte;
    // The child writes before its owner is set: it gets signals for later events only.
    CHECK(read(ends[0], &byte, 1) == 1);
    GIVES(fcntl(ends[0], F_SETOWN, pid), 0);
    GIVES(ioctl(ends[0], FIOASYNC, &on), 0);
    seen = 0;
    CHECK(write(ends[1], "!", 1) == 1);
    int status = status_of(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    CHECK(!seen);
    close(ends[0]), close(ends[1]);
    // Without a handler, the signal ends the owner.
    CHILD_DIES(SIGIO, {
        signal(SIGIO, SIG_DFL);
        socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
        fcntl(ends[0], F_SETOWN, getpid());
        ioctl(ends[0], FIOASYNC, &on);
        write(ends[1], "x", 1);
        signals();
    });
}

static void *own(void *argument) {
    struct f_owner_ex owner = {F_OWNER_TID, gettid()};
    int fd = *(int *)argument, on = 1;
    GIVES(fcntl(fd, F_SETOWN_EX, &owner), 0);
    GIVES(ioctl(fd, FIOASYNC, &on), 0);
    CHECK(write(((int *)argument)[1], "x", 1) == 1 && signals() >= 1);
    CHECK(thread == gettid());
    return NULL;
}

static void threads(void) {
    int ends[2];
    pthread_t other;
    GIVES(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    seen = 0;
    GIVES(pthread_create(&other, NULL, own, ends), 0);
    GIVES(pthread_join(other, NULL), 0);
    close(ends[0]), close(ends[1]);
}

static void terminals(void) {
    int master, slave, on = 1;
    GIVES(openpty(&master, &slave, NULL, NULL, NULL), 0);
    GIVES(ioctl(slave, FIOASYNC, &on), 0);
    // No owner was set.
    GIVES(fcntl(slave, F_GETOWN), getpid());
    seen = 0;
    CHECK(write(master, "line\n", 5) == 5 && signals() >= 1);
    close(slave), close(master);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    // The group may be in another PID namespace, and have no number here.
    setpgid(0, 0);
    handle(SIGIO);
    handle(SIGRTMIN + 1);
    owners();
    flags();
    pipes();
    sockets();
    child();
    threads();
    terminals();
    return finish("asynchronous");
}
