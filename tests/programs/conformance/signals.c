// Signals: handlers, masks, queues, stacks, restarts, descriptors for them.
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <stdint.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

static volatile sig_atomic_t handled, last, value, depth, deepest, on_stack;
static char stack[65536];

static void handler(int signal, siginfo_t *info, void *context) {
    (void)context;
    handled++;
    last = signal;
    value = info->si_value.sival_int;
    char here;
    on_stack = &here >= stack && &here < stack + sizeof stack;
}

static void nested(int signal) {
    depth++;
    if (depth > deepest) deepest = depth;
    if (handled++ == 0) raise(signal);
    depth--;
}

static void install(int signal, int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, NULL);
    handled = 0;
}

static void actions(void) {
    struct sigaction old, action = {.sa_handler = SIG_IGN};
    install(SIGUSR1, 0);
    GIVES(raise(SIGUSR1), 0);
    CHECK(handled == 1 && last == SIGUSR1);
    GIVES(sigaction(SIGUSR1, NULL, &old), 0);
    CHECK(old.sa_sigaction == handler && (old.sa_flags & SA_SIGINFO));
    FAILS(sigaction(SIGKILL, &action, NULL), EINVAL);
    FAILS(sigaction(SIGSTOP, &action, NULL), EINVAL);
    FAILS(sigaction(65, &action, NULL), EINVAL);
    FAILS(sigaction(0, &action, NULL), EINVAL);
    GIVES(sigaction(SIGUSR1, &action, NULL), 0);
    GIVES(raise(SIGUSR1), 0);
    GIVES(handled, 1);
    install(SIGUSR1, SA_RESETHAND);
    raise(SIGUSR1);
    GIVES(sigaction(SIGUSR1, NULL, &old), 0);
    CHECK(old.sa_handler == SIG_DFL);
    struct sigaction plain = {.sa_handler = nested};
    handled = depth = deepest = 0;
    sigaction(SIGUSR2, &plain, NULL);
    raise(SIGUSR2);
    CHECK(handled == 2 && deepest == 1);
    plain.sa_flags = SA_NODEFER;
    handled = depth = deepest = 0;
    sigaction(SIGUSR2, &plain, NULL);
    raise(SIGUSR2);
    CHECK(handled == 2 && deepest == 2);
}

static void masks(void) {
    sigset_t set, old;
    install(SIGUSR1, 0);
    install(SIGRTMIN, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    GIVES(sigprocmask(SIG_BLOCK, &set, &old), 0);
    handled = 0;
    raise(SIGUSR1), raise(SIGUSR1);
    GIVES(handled, 0);
    GIVES(sigpending(&old), 0);
    CHECK(sigismember(&old, SIGUSR1) && !sigismember(&old, SIGRTMIN));
    GIVES(sigprocmask(SIG_UNBLOCK, &set, NULL), 0);
    GIVES(handled, 1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    handled = 0;
    for (int i = 1; i <= 3; i++)
        GIVES(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}), 0);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    CHECK(handled == 3 && value == 3);
    FAILS(sigprocmask(99, &set, NULL), EINVAL);
    sigset_t all;
    sigfillset(&all);
    GIVES(sigprocmask(SIG_SETMASK, &all, &old), 0);
    GIVES(sigprocmask(SIG_SETMASK, NULL, &set), 0);
    CHECK(!sigismember(&set, SIGKILL) && !sigismember(&set, SIGSTOP) && sigismember(&set, SIGHUP));
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static void waiting(void) {
    sigset_t set, none;
    siginfo_t info;
    struct timespec short_time = {0, 5000000}, bad = {0, -1};
    sigemptyset(&none);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    FAILS(sigtimedwait(&set, &info, &short_time), EAGAIN);
    FAILS(sigtimedwait(&set, &info, &bad), EINVAL);
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 42});
    GIVES(sigtimedwait(&set, &info, &short_time), SIGUSR1);
    CHECK(info.si_code == SI_QUEUE && info.si_value.sival_int == 42 && info.si_pid == getpid());
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    struct signalfd_siginfo record;
    FAILS(read(fd, &record, sizeof record), EAGAIN);
    raise(SIGUSR1);
    GIVES(read(fd, &record, sizeof record), sizeof record);
    CHECK(record.ssi_signo == SIGUSR1);
    FAILS(read(fd, &record, 10), EINVAL);
    close(fd);
    FAILS(signalfd(0, &set, 0), EINVAL);
    install(SIGUSR1, 0);
    raise(SIGUSR1);
    GIVES(handled, 0);
    FAILS(sigsuspend(&none), EINTR);
    GIVES(handled, 1);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    install(SIGALRM, 0);
    alarm(1);
    GIVES(alarm(0), 1);
    // A blocking call is interrupted, or restarted with SA_RESTART.
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0);
    pid_t parent = getpid();
    install(SIGUSR1, 0);
    pid_t child = CHILD(wait_until_asleep(parent); kill(parent, SIGUSR1); usleep(20000);
                        (void)!write(ends[1], "x", 1));
    FAILS(read(ends[0], &byte, 1), EINTR);
    GIVES(read(ends[0], &byte, 1), 1);
    GIVES(status_of(child), 0);
    install(SIGUSR1, SA_RESTART);
    child = CHILD(wait_until_asleep(parent); kill(parent, SIGUSR1); usleep(20000);
                  (void)!write(ends[1], "x", 1));
    GIVES(read(ends[0], &byte, 1), 1);
    GIVES(handled, 1);
    GIVES(status_of(child), 0);
    close(ends[0]), close(ends[1]);
}

// An ignored signal that is blocked is not dropped, also while a thread waits for it.
static void ignored(void) {
    sigset_t set, old;
    siginfo_t info;
    struct timespec patience = {60, 0};
    pid_t parent = getpid(), child;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, &old);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGUSR2, SIG_IGN);
    child = CHILD(wait_until_asleep(parent));
    GIVES(sigtimedwait(&set, &info, &patience), SIGCHLD);
    CHECK(info.si_pid == child && info.si_code == CLD_EXITED);
    GIVES(status_of(child), 0);
    child = CHILD(wait_until_asleep(parent); kill(parent, SIGUSR2); usleep(1000));
    GIVES(sigtimedwait(&set, &info, &patience), SIGUSR2);
    CHECK(info.si_pid == child);
    GIVES(status_of(child), 0);
    GIVES(sigtimedwait(&set, &info, &patience), SIGCHLD);
    // The mask is as it was.
    kill(parent, SIGUSR2);
    sigpending(&set);
    GIVES(sigismember(&set, SIGUSR2), 1);
    signal(SIGUSR2, SIG_IGN);
    sigpending(&set);
    GIVES(sigismember(&set, SIGUSR2), 0);
    signal(SIGUSR2, SIG_DFL);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

static void stacks(void) {
    stack_t mine = {.ss_sp = stack, .ss_size = sizeof stack}, old;
    GIVES(sigaltstack(&mine, NULL), 0);
    GIVES(sigaltstack(NULL, &old), 0);
    CHECK(old.ss_sp == stack && old.ss_size == sizeof stack);
    install(SIGUSR1, SA_ONSTACK);
    raise(SIGUSR1);
    CHECK(handled == 1 && on_stack);
    install(SIGUSR1, 0);
    raise(SIGUSR1);
    CHECK(handled == 1 && !on_stack);
    mine.ss_size = 100;
    FAILS(sigaltstack(&mine, NULL), ENOMEM);
    mine.ss_flags = 1 << 10;
    FAILS(sigaltstack(&mine, NULL), EINVAL);
    mine.ss_flags = SS_DISABLE;
    GIVES(sigaltstack(&mine, NULL), 0);
    GIVES(sigaltstack(NULL, &old), 0);
    CHECK(old.ss_flags & SS_DISABLE);
}

static void children(void) {
    install(SIGCHLD, 0);
    GIVES(status_of(CHILD(_exit(1))), 1 << 8);
    GIVES(handled, 1);
    install(SIGCHLD, SA_NOCLDWAIT);
    pid_t child = CHILD(_exit(1));
    int status;
    if (!emulated) FAILS(waitpid(child, &status, 0), ECHILD);
    else waitpid(child, &status, 0);
    signal(SIGCHLD, SIG_DFL);
    CHILD_DIES(SIGSEGV, *(volatile char *)16 = 1);
    CHILD_DIES(SIGTRAP, raise(SIGTRAP));
    CHILD_EXITS(0, signal(SIGTERM, SIG_IGN); kill(getpid(), SIGTERM));
    int count = 0;
    install(SIGUSR1, 0);
    // Many signals in a short time.
    child = CHILD(for (int i = 0; i < 2000; i++) kill(getppid(), SIGUSR1));
    while (waitpid(child, &status, WNOHANG) == 0) count++;
    CHECK(WIFEXITED(status) && handled > 0 && handled <= 2000 && count >= 0);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    actions();
    masks();
    waiting();
    ignored();
    stacks();
    children();
    return finish("signals");
}
