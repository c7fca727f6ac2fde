// Clocks, sleeps and timers of a program whose VM goes on under another clock of the host. The snapshot is written before the
// program reads its byte of input.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("line %d: %s: %s\n", __LINE__, #condition, strerror(errno));                    \
            fflush(stdout);                                                                        \
            _exit(99);                                                                             \
        }                                                                                          \
    } while (0)

static const int64_t SECOND = 1000000000;
// The time of the sleeps and timers, which have begun before the snapshot.
static const int64_t LONG = 3 * SECOND;
// Far less than the clocks of the hosts differ.
static const int64_t FAR = 1000 * SECOND;

static atomic_int is_over;
static volatile sig_atomic_t alarms, users;
static volatile int64_t alarmed_at, used_at;

static int64_t now(clockid_t clock) {
    struct timespec time;
    CHECK(clock_gettime(clock, &time) == 0);
    return time.tv_sec * SECOND + time.tv_nsec;
}

static struct timespec time_of(int64_t ns) {
    return (struct timespec){ns / SECOND, ns % SECOND};
}

static void on_alarm(int signal) {
    (void)signal;
    alarms++;
    alarmed_at = now(CLOCK_MONOTONIC);
}

static void on_user(int signal) {
    (void)signal;
    users++;
    used_at = now(CLOCK_MONOTONIC);
}

// No clock runs backwards or leaps ahead, whenever it is read.
static void *watches(void *unused) {
    const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_COARSE};
    int64_t last[4];
    for (int n = 0; n < 4; n++)
        last[n] = now(clocks[n]);
    while (!atomic_load(&is_over)) {
        for (int n = 0; n < 4; n++) {
            int64_t time = now(clocks[n]);
            CHECK(time >= last[n] && time - last[n] < FAR);
            last[n] = time;
        }
        usleep(1000);
    }
    return unused;
}

struct sleep {
    clockid_t clock;
    int flags;
    // Of CLOCK_MONOTONIC.
    int64_t deadline, end;
};

static void *sleeps(void *argument) {
    struct sleep *sleep = argument;
    sleep->deadline = now(CLOCK_MONOTONIC) + LONG;
    struct timespec time = time_of(sleep->flags ? now(sleep->clock) + LONG : LONG);
    CHECK(clock_nanosleep(sleep->clock, sleep->flags, &time, NULL) == 0);
    sleep->end = now(CLOCK_MONOTONIC);
    return NULL;
}

// Ends after the deadline, and not much later.
static void check_end(int64_t end, int64_t deadline) {
    CHECK(end >= deadline && end - deadline < FAR);
}

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigaddset(&set, SIGUSR1);
    signal(SIGALRM, on_alarm);
    signal(SIGUSR1, on_user);
    // The signals interrupt no sleep of the threads.
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    struct sleep all[] = {
        {.clock = CLOCK_MONOTONIC},
        {.clock = CLOCK_MONOTONIC, .flags = TIMER_ABSTIME},
        {.clock = CLOCK_BOOTTIME},
        {.clock = CLOCK_REALTIME},
        {.clock = CLOCK_REALTIME, .flags = TIMER_ABSTIME},
    };
    enum { SLEEPS = sizeof all / sizeof *all };
    pthread_t threads[SLEEPS], watcher;
    for (int n = 0; n < SLEEPS; n++)
        CHECK(pthread_create(&threads[n], NULL, sleeps, &all[n]) == 0);
    CHECK(pthread_create(&watcher, NULL, watches, NULL) == 0);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);

    struct itimerspec once = {.it_value = time_of(LONG)};
    int64_t set_at = now(CLOCK_MONOTONIC);
    int timers[] = {timerfd_create(CLOCK_MONOTONIC, 0), timerfd_create(CLOCK_BOOTTIME, 0)};
    for (int n = 0; n < 2; n++)
        CHECK(timers[n] >= 0 && timerfd_settime(timers[n], 0, &once, NULL) == 0);
    struct itimerval alarm = {.it_value = {.tv_sec = LONG / SECOND}};
    CHECK(setitimer(ITIMER_REAL, &alarm, NULL) == 0);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t posix;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &posix) == 0 && timer_settime(posix, 0, &once, NULL) == 0);

    // A part of the time is over at the snapshot.
    struct timespec part = time_of(SECOND / 2);
    CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &part, NULL) == 0);
    int64_t before = now(CLOCK_MONOTONIC), before_boot = now(CLOCK_BOOTTIME);
    char byte;
    ssize_t count;
    do
        count = read(0, &byte, 1);
    while (count < 0 && errno == EINTR);
    CHECK(count == 1);
    int64_t after = now(CLOCK_MONOTONIC), after_boot = now(CLOCK_BOOTTIME);
    CHECK(after >= before && after - before < FAR);
    CHECK(after_boot >= before_boot && after_boot - before_boot < FAR);
    printf("realtime %lld\n", (long long)now(CLOCK_REALTIME));
    fflush(stdout);

    for (int n = 0; n < SLEEPS; n++) {
        CHECK(pthread_join(threads[n], NULL) == 0);
        check_end(all[n].end, all[n].deadline);
    }
    for (int n = 0; n < 2; n++) {
        uint64_t expirations;
        ssize_t length;
        do
            length = read(timers[n], &expirations, sizeof expirations);
        while (length < 0 && errno == EINTR);
        CHECK(length == sizeof expirations && expirations == 1);
        check_end(now(CLOCK_MONOTONIC), set_at + LONG);
    }
    while (alarms == 0 || users == 0)
        CHECK(poll(NULL, 0, 10) <= 0);
    check_end(alarmed_at, set_at + LONG);
    check_end(used_at, set_at + LONG);
    CHECK(alarms == 1 && users == 1);
    // The time that the program has counted since the snapshot.
    printf("slept %lld\n", (long long)(now(CLOCK_MONOTONIC) - after));
    atomic_store(&is_over, 1);
    CHECK(pthread_join(watcher, NULL) == 0);
    return 8;
}
