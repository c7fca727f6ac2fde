// Signals that a program sends to itself: handlers, masks, queues, alternate stack.
#define _GNU_SOURCE
#include <errno.h>
#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static volatile sig_atomic_t seen[65], nested, on_alternate, code, sender_ok, order;
static char alternate[65536];

static void simple(int n) { seen[n]++; }

static void detailed(int n, siginfo_t *info, void *context) {
    char here;
    seen[n]++;
    code = info->si_code;
    sender_ok = info->si_pid == getpid();
    on_alternate = &here >= alternate && &here < alternate + sizeof alternate;
    nested = context != NULL;
}

static void raises_another(int n) {
    order = order * 10 + 1;
    raise(SIGUSR2);
    order = order * 10 + 3;
    seen[n]++;
}
static void second(int n) {
    order = order * 10 + 2;
    seen[n]++;
}

// A handler must not disturb the interrupted computation, floating point included.
static void disturbs(int n) {
    volatile double x = 3.0;
    for (int i = 0; i < 100; i++) x = x * 1.01 / 0.99 + i;
    feclearexcept(FE_ALL_EXCEPT);
    seen[n]++;
}

static double interrupted(void) {
    double a = 1, b = 2, c = 3, d = 4;
    for (int i = 1; i <= 500; i++) {
        a = a / 3 + b, b = b * 0.5 + c, c = c - d / i, d = d + a / 7;
        if (i % 50 == 0) kill(getpid(), SIGUSR1);
    }
    return a + b * 10 + c * 100 + d * 1000;
}

int main(void) {
    sigset_t set, old, pending;
    signal(SIGUSR1, simple);
    for (int i = 0; i < 100; i++) raise(SIGUSR1);
    printf("handled %d\n", seen[SIGUSR1]);

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGUSR1), raise(SIGUSR1);
    sigpending(&pending);
    printf("blocked %d pending %d\n", seen[SIGUSR1], sigismember(&pending, SIGUSR1));
    sigprocmask(SIG_SETMASK, &old, NULL);
    printf("unblocked %d\n", seen[SIGUSR1]);

    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    printf("sigaltstack %d\n", sigaltstack(&stack, NULL));
    struct sigaction action = {.sa_sigaction = detailed, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGUSR2, &action, NULL);
    kill(getpid(), SIGUSR2);
    printf("detailed %d code %d sender %d alternate %d context %d\n", seen[SIGUSR2], code,
           sender_ok, on_alternate, nested);

    signal(SIGUSR1, raises_another);
    signal(SIGUSR2, second);
    raise(SIGUSR1);
    printf("order %d\n", order);

    struct sigaction once = {.sa_handler = simple, .sa_flags = SA_RESETHAND};
    sigaction(SIGHUP, &once, NULL);
    raise(SIGHUP);
    sigaction(SIGHUP, NULL, &once);
    printf("reset %d\n", once.sa_handler == SIG_DFL);

    signal(SIGTERM, SIG_IGN);
    printf("ignored %d\n", raise(SIGTERM));
    printf("invalid %d %d\n", kill(getpid(), 99), errno);
    printf("probe %d\n", kill(getpid(), 0));
    memset(&action, 0, sizeof action);
    action.sa_handler = simple;
    printf("SIGKILL %d %d\n", sigaction(SIGKILL, &action, NULL), errno);

    signal(SIGUSR1, simple);
    double plain = interrupted();
    signal(SIGUSR1, disturbs);
    printf("undisturbed %d %.17g\n", plain == interrupted(), plain);

    signal(SIGUSR1, simple);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR1);
    sigset_t wait_for;
    sigfillset(&wait_for);
    sigdelset(&wait_for, SIGUSR1);
    int before = seen[SIGUSR1];
    int r = sigsuspend(&wait_for);
    printf("sigsuspend %d %d %d\n", r, errno == EINTR, seen[SIGUSR1] - before);
    raise(SIGUSR1);
    siginfo_t info;
    struct timespec limit = {1, 0};
    printf("sigtimedwait %d\n", sigtimedwait(&set, &info, &limit));
    limit.tv_sec = 0;
    printf("nothing %d %d\n", sigtimedwait(&set, &info, &limit), errno == EAGAIN);
    return 0;
}
