// Processes: fork, vfork, waiting, exit statuses, pipes, signals between them, process
// groups, orphans, memory that is copied and memory that is shared.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int value = 1;
static volatile sig_atomic_t children, signals;

static pid_t start(void) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(1);
    }
    return pid;
}

static void show(const char *what, int status) {
    if (WIFEXITED(status))
        printf("%s: exit %d\n", what, WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
        printf("%s: signal %d\n", what, WTERMSIG(status));
    else if (WIFSTOPPED(status))
        printf("%s: stopped %d\n", what, WSTOPSIG(status));
    else if (WIFCONTINUED(status))
        printf("%s: continued\n", what);
}

static void memory(void) {
    enum { SIZE = 8 << 20 };
    char *private = malloc(SIZE);
    int *shared = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(private, 'p', SIZE);
    int status, sum = 0;
    pid_t pid = start();
    if (pid == 0) {
        value = 2;
        memset(private, 'c', SIZE / 2);
        shared[0] = 11;
        shared[8192] = 22;
        _exit(private[0] == 'c' && private[SIZE - 1] == 'p' ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    show("copied memory", status);
    for (int i = 0; i < SIZE; i += 4096) sum += private[i] != 'p';
    printf("value %d, changed %d, shared %d %d\n", value, sum, shared[0], shared[8192]);
    // Grandchildren: each changes its copy of its parent's memory.
    for (int depth = 0; depth < 5; depth++) {
        if ((pid = start()) != 0) {
            waitpid(pid, &status, 0);
            if (depth == 0) break;
            _exit(WEXITSTATUS(status) + (private[depth] == 'a' + depth - 1));
        }
        private[depth + 1] = 'a' + depth;
        __atomic_add_fetch(shared, 1, __ATOMIC_SEQ_CST);
        if (depth == 4) _exit(0);
    }
    show("grandchildren", status);
    printf("shared %d, own %c\n", shared[0], private[1]);
    free(private);
}

static void pipes(void) {
    int ends[2], back[2], status;
    char buffer[100000];
    long total = 0, count;
    if (pipe(ends) != 0 || pipe(back) != 0) abort();
    pid_t pid = start();
    if (pid == 0) {
        close(ends[0]);
        memset(buffer, 'x', sizeof buffer);
        // More than fits the pipe: it waits for the reader.
        for (int i = 0; i < 10; i++)
            if (write(ends[1], buffer, sizeof buffer) != sizeof buffer) _exit(1);
        _exit(0);
    }
    close(ends[1]);
    while ((count = read(ends[0], buffer, sizeof buffer)) > 0) total += count;
    waitpid(pid, &status, 0);
    printf("through the pipe: %ld, end %ld\n", total, count);
    show("writer", status);

    pid = start();
    if (pid == 0) {
        char byte;
        while (read(back[0], &byte, 1) == 1 && byte != 'q')
            ;
        _exit(5);
    }
    for (int i = 0; i < 1000; i++)
        if (write(back[1], "a", 1) != 1) abort();
    if (write(back[1], "q", 1) != 1) abort();
    waitpid(pid, &status, 0);
    show("reader", status);

    // There is no reader.
    close(ends[0]);
    if (pipe(ends) != 0) abort();
    close(ends[0]);
    pid = start();
    if (pid == 0) {
        if (write(ends[1], "x", 1) == 1) _exit(1);
        _exit(2);
    }
    waitpid(pid, &status, 0);
    show("no reader", status);
    signal(SIGPIPE, SIG_IGN);
    count = write(ends[1], "x", 1);
    printf("ignored: %ld %s\n", count, strerror(errno));
    close(ends[1]);

    // A FIFO waits for its other end.
    char name[] = "/tmp/fifoXXXXXX";
    if (mkdtemp(name) == NULL) abort();
    char path[64];
    snprintf(path, sizeof path, "%s/f", name);
    if (mkfifo(path, 0600) != 0) abort();
    pid = start();
    if (pid == 0) {
        usleep(2000);
        int fd = open(path, O_WRONLY);
        if (write(fd, "fifo", 4) != 4) _exit(1);
        _exit(0);
    }
    int fd = open(path, O_RDONLY);
    count = read(fd, buffer, sizeof buffer);
    printf("%.*s, then %ld\n", (int)count, buffer, (long)read(fd, buffer, 1));
    waitpid(pid, &status, 0);
    close(fd);
    unlink(path);
    rmdir(name);
}

static void waiting(void) {
    int ends[2], status;
    if (pipe(ends) != 0) abort();
    pid_t pid = start();
    if (pid == 0) {
        usleep(20000);
        if (write(ends[1], "x", 1) != 1) _exit(1);
        _exit(0);
    }
    struct pollfd poll_fd = {.fd = ends[0], .events = POLLIN};
    int ready = poll(&poll_fd, 1, 5000);
    printf("poll %d %d\n", ready, poll_fd.revents);
    waitpid(pid, &status, 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    struct timeval time = {1, 0};
    printf("select %d\n", select(ends[0] + 1, &set, NULL, NULL, &time));
    char byte;
    if (read(ends[0], &byte, 1) != 1) abort();
    poll_fd.revents = 0;
    ready = poll(&poll_fd, 1, 5);
    printf("poll in vain %d %d\n", ready, poll_fd.revents);
    int event = eventfd(0, 0);
    pid = start();
    if (pid == 0) {
        usleep(2000);
        eventfd_write(event, 7);
        _exit(0);
    }
    eventfd_t got;
    eventfd_read(event, &got);
    printf("event %d\n", (int)got);
    waitpid(pid, &status, 0);
    printf("%ld %s\n", (long)waitpid(-1, &status, 0), strerror(errno));
    pid = start();
    if (pid == 0) pause();
    printf("not yet: %d\n", waitpid(pid, &status, WNOHANG));
    kill(pid, SIGKILL);
    siginfo_t info = {0};
    waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
    printf("waitid %d %d %d\n", info.si_pid == pid, info.si_code, info.si_status);
    struct rusage usage;
    printf("again %d\n", wait4(pid, &status, 0, &usage) == pid);
    show("killed", status);
    printf("once more: %d %s\n", waitpid(pid, &status, 0), strerror(errno));
    for (int i = 0; i < 20; i++)
        if ((pid = start()) == 0) _exit(i);
    int sum = 0;
    while (wait(&status) > 0) sum += WEXITSTATUS(status);
    printf("sum %d\n", sum);
}

static void on_child(int signal) {
    (void)signal;
    int status;
    while (waitpid(-1, &status, WNOHANG) > 0) children++;
}

static void on_signal(int signal) { signals = signals * 100 + signal; }

static void signalling(void) {
    int status;
    struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
    sigaction(SIGCHLD, &action, NULL);
    for (int i = 0; i < 5; i++)
        if (start() == 0) _exit(0);
    sigset_t none, all, old;
    sigemptyset(&none);
    sigemptyset(&all);
    sigaddset(&all, SIGCHLD);
    sigprocmask(SIG_BLOCK, &all, &old);
    while (children < 5) sigsuspend(&none);
    sigprocmask(SIG_SETMASK, &old, NULL);
    printf("children %d\n", (int)children);
    signal(SIGCHLD, SIG_DFL);

    // A handler in the child, and a handler inherited from its parent.
    signal(SIGUSR1, on_signal);
    sigaddset(&all, SIGUSR1);
    sigprocmask(SIG_BLOCK, &all, &old);
    pid_t parent = getpid(), pid = start();
    if (pid == 0) {
        kill(parent, SIGUSR1);
        while (signals == 0) sigsuspend(&none);
        _exit(signals);
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    while (signals == 0) usleep(1000);
    kill(pid, SIGUSR1);
    waitpid(pid, &status, 0);
    show("answered", status);

    // Interrupted and restarted calls.
    int ends[2], seen[2];
    char byte = 0;
    if (pipe(ends) != 0 || pipe(seen) != 0) abort();
    for (int restart = 0; restart < 2; restart++) {
        struct sigaction on = {.sa_handler = on_signal, .sa_flags = restart ? SA_RESTART : 0};
        sigaction(SIGUSR1, &on, NULL);
        pid = start();
        if (pid == 0) {
            // Repeat until the signal arrives during the read: before, it interrupts nothing.
            struct pollfd poll_fd = {.fd = seen[0], .events = POLLIN};
            do {
                usleep(20000);
                kill(parent, SIGUSR1);
            } while (!restart && poll(&poll_fd, 1, 20) == 0);
            usleep(20000);
            if (write(ends[1], "z", 1) != 1) _exit(1);
            _exit(0);
        }
        long count = read(ends[0], &byte, 1);
        printf("restart %d: %ld %s\n", restart, count, count < 0 ? strerror(errno) : "");
        if (count < 0) {
            // Further signals may arrive; they must not count.
            action.sa_handler = SIG_IGN;
            sigaction(SIGUSR1, &action, NULL);
            if (write(seen[1], "s", 1) != 1 || read(ends[0], &byte, 1) != 1) abort();
        }
        waitpid(pid, &status, 0);
    }

    // Stop and continue.
    pid = start();
    if (pid == 0)
        for (;;) pause();
    setpgid(pid, pid);
    kill(pid, SIGSTOP);
    waitpid(pid, &status, WUNTRACED);
    show("child", status);
    kill(pid, SIGTERM);
    printf("still there: %d\n", waitpid(pid, &status, WNOHANG));
    kill(pid, SIGCONT);
    waitpid(pid, &status, 0);
    show("child", status);
    printf("gone: %d %s\n", kill(pid, 0), strerror(errno));

    // A whole process group.
    pid_t first = start();
    if (first == 0) {
        setpgid(0, 0);
        pause();
    }
    setpgid(first, first);
    pid_t second = start();
    if (second == 0) {
        setpgid(0, first);
        pause();
    }
    setpgid(second, first);
    printf("groups %d %d\n", getpgid(first) == first, getpgid(second) == first);
    kill(-first, SIGHUP);
    int count = 0;
    while (waitpid(-first, &status, 0) > 0) count += WTERMSIG(status) == SIGHUP;
    printf("hung up %d\n", count);
    pid = start();
    if (pid == 0) {
        pid_t session = setsid();
        _exit(session == getpid() && getpgrp() == session && getsid(0) == session &&
              setsid() == -1);
    }
    waitpid(pid, &status, 0);
    show("session", status);
}

static void orphans(void) {
    int ends[2], status;
    if (pipe(ends) != 0) abort();
    pid_t pid = start();
    if (pid == 0) {
        pid_t middle = getpid();
        if (fork() == 0) {
            while (getppid() == middle) usleep(1000);
            if (write(ends[1], "o", 1) != 1) _exit(1);
            _exit(0);
        }
        _exit(3);
    }
    waitpid(pid, &status, 0);
    show("middle", status);
    char byte = 0;
    close(ends[1]);
    long count = read(ends[0], &byte, 1);
    printf("orphan %ld %c\n", count, byte);
    // A child that leaves no zombie.
    signal(SIGCHLD, SIG_IGN);
    pid = start();
    if (pid == 0) _exit(9);
    int result = waitpid(pid, &status, 0);
    printf("ignored %d %s\n", result, strerror(errno));
    signal(SIGCHLD, SIG_DFL);
    pid = vfork();
    if (pid == 0) {
        _exit(8);
    }
    waitpid(pid, &status, 0);
    show("vfork", status);
}

// Two computing processes alternate.
static void sharing(void) {
    volatile int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    pid_t pid = start();
    if (pid == 0) {
        while (!shared[0])
            ;
        shared[1] = 1;
        _exit(0);
    }
    shared[0] = 1;
    while (!shared[1])
        ;
    waitpid(pid, &status, 0);
    show("turns", status);
}

int main(void) {
    memory();
    pipes();
    waiting();
    signalling();
    orphans();
    sharing();
    return 0;
}
