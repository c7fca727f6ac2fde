// Clocks, sleeping, timers.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>

static int64_t nanoseconds(clockid_t clock) {
    struct timespec time = {0, 0};
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// Sleeping with each clock that Linux can sleep with; an error for the others.
static void sleeping(void) {
    static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI};
    struct timespec time;
    for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        int64_t begin = nanoseconds(CLOCK_MONOTONIC), until = nanoseconds(clocks[i]) + 10000000;
        time = (struct timespec){until / 1000000000, until % 1000000000};
        GIVES(clock_nanosleep(clocks[i], TIMER_ABSTIME, &time, NULL), 0);
        CHECK(nanoseconds(CLOCK_MONOTONIC) - begin >= 9000000);
        GIVES(clock_nanosleep(clocks[i], TIMER_ABSTIME, &time, NULL), 0);
        time = (struct timespec){0, 10000000};
        begin = nanoseconds(CLOCK_MONOTONIC);
        GIVES(clock_nanosleep(clocks[i], 0, &time, NULL), 0);
        CHECK(nanoseconds(CLOCK_MONOTONIC) - begin >= 10000000);
    }
    GIVES(clock_nanosleep(CLOCK_MONOTONIC_RAW, 0, &time, NULL), EOPNOTSUPP);
    GIVES(clock_nanosleep(CLOCK_MONOTONIC_COARSE, 0, &time, NULL), EOPNOTSUPP);
}

static volatile int spins;

static void *spin(void *unused) {
    while (spins) continue;
    return unused;
}

// CPU time passes while another thread computes.
static void processor_time(void) {
    pthread_t thread;
    struct timespec time = {0, 30000000};
    spins = 1;
    GIVES(pthread_create(&thread, NULL, spin, NULL), 0);
    int64_t start = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    GIVES(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &time, NULL), 0);
    int64_t end = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    CHECK(end - start >= 30000000);
    end += 20000000;
    time = (struct timespec){end / 1000000000, end % 1000000000};
    GIVES(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &time, NULL), 0);
    CHECK(nanoseconds(CLOCK_PROCESS_CPUTIME_ID) >= end);
    spins = 0;
    pthread_join(thread, NULL);
    GIVES(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &time, NULL), 0);
}

static volatile sig_atomic_t rings;

static void ring(int signal) {
    (void)signal;
    rings++;
}

static void overruns(void) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec often = {.it_value.tv_nsec = 1, .it_interval.tv_nsec = 1}, never = {0};
    struct timespec longest = {1, 0};
    siginfo_t info;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    GIVES(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    timer_t timer;
    GIVES(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    FAILS(timer_settime(timer, 0, NULL, NULL), EINVAL);
    // The first expiration is pending; the later ones are counted when it is taken.
    often.it_value.tv_nsec = often.it_interval.tv_nsec = 10000000;
    GIVES(timer_settime(timer, 0, &often, NULL), 0);
    usleep(200000);
    GIVES(sigtimedwait(&set, &info, &longest), SIGUSR1);
    CHECK(info.si_code == SI_TIMER && info.si_overrun >= 15);
    GIVES(timer_getoverrun(timer), info.si_overrun);
    GIVES(timer_settime(timer, 0, &never, NULL), 0);
    // The number saturates (DELAYTIMER_MAX).
    often.it_value.tv_nsec = often.it_interval.tv_nsec = 1;
    GIVES(timer_settime(timer, 0, &often, NULL), 0);
    usleep(2300000);
    GIVES(sigtimedwait(&set, &info, &longest), SIGUSR1);
    GIVES(info.si_overrun, 0x7fffffff);
    GIVES(timer_settime(timer, 0, &never, NULL), 0);
    GIVES(timer_delete(timer), 0);
    struct timespec none = {0, 0};
    while (sigtimedwait(&set, &info, &none) > 0) continue;
    GIVES(sigprocmask(SIG_UNBLOCK, &set, NULL), 0);
}

// The time in system calls counts as system time.
static void system_time(void) {
    struct tms ticks = {0};
    struct rusage usage;
    int64_t limit = nanoseconds(CLOCK_MONOTONIC) + 20000000000;
    static char block[1 << 20];
    int fd = open("/dev/zero", O_RDONLY);
    while (ticks.tms_stime < 5 && nanoseconds(CLOCK_MONOTONIC) < limit) {
        for (int i = 0; i < 100 && read(fd, block, sizeof block) > 0; i++) continue;
        times(&ticks);
    }
    CHECK(ticks.tms_stime >= 5);
    GIVES(getrusage(RUSAGE_SELF, &usage), 0);
    CHECK(usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec >= 40000);
    close(fd);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    struct timespec time, left;
    static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME,
                                       CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE,
                                       CLOCK_MONOTONIC_COARSE, CLOCK_PROCESS_CPUTIME_ID,
                                       CLOCK_THREAD_CPUTIME_ID};
    for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        GIVES(clock_gettime(clocks[i], &time), 0);
        CHECK(time.tv_nsec >= 0 && time.tv_nsec < 1000000000);
        GIVES(clock_getres(clocks[i], &time), 0);
        int64_t before = nanoseconds(clocks[i]);
        CHECK(nanoseconds(clocks[i]) >= before);
    }
    FAILS(clock_gettime(99, &time), EINVAL);
    int64_t start = nanoseconds(CLOCK_MONOTONIC);
    time = (struct timespec){0, 10000000};
    GIVES(nanosleep(&time, NULL), 0);
    CHECK(nanoseconds(CLOCK_MONOTONIC) - start >= 10000000);
    time.tv_nsec = 1000000000;
    FAILS(nanosleep(&time, NULL), EINVAL);
    time = (struct timespec){-1, 0};
    FAILS(nanosleep(&time, NULL), EINVAL);
    start = nanoseconds(CLOCK_MONOTONIC) + 10000000;
    time = (struct timespec){start / 1000000000, start % 1000000000};
    GIVES(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL), 0);
    CHECK(nanoseconds(CLOCK_MONOTONIC) >= start);
    GIVES(clock_nanosleep(99, 0, &time, NULL), EINVAL);
    struct sigaction action = {.sa_handler = ring};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {.it_value.tv_usec = 200000}, old;
    GIVES(setitimer(ITIMER_REAL, &timer, NULL), 0);
    time = (struct timespec){5, 0};
    FAILS(nanosleep(&time, &left), EINTR);
    CHECK(rings == 1 && left.tv_sec == 4);
    GIVES(getitimer(ITIMER_REAL, &old), 0);
    CHECK(old.it_value.tv_sec == 0 && old.it_value.tv_usec == 0);
    timer.it_value.tv_usec = 2000000;
    FAILS(setitimer(ITIMER_REAL, &timer, NULL), EINVAL);
    FAILS(setitimer(99, &old, NULL), EINVAL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    timer_t id;
    GIVES(timer_create(CLOCK_MONOTONIC, &event, &id), 0);
    struct itimerspec interval = {.it_value.tv_nsec = 5000000};
    rings = 0;
    GIVES(timer_settime(id, 0, &interval, NULL), 0);
    while (rings == 0) usleep(1000);
    GIVES(timer_getoverrun(id), 0);
    GIVES(timer_gettime(id, &interval), 0);
    CHECK(interval.it_value.tv_sec == 0 && interval.it_value.tv_nsec == 0);
    GIVES(timer_delete(id), 0);
    // Absolute times refer to the timer's clock.
    static const clockid_t absolute[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI};
    for (unsigned i = 0; i < sizeof absolute / sizeof *absolute; i++) {
        GIVES(timer_create(absolute[i], &event, &id), 0);
        int64_t until = nanoseconds(absolute[i]) + 5000000;
        interval = (struct itimerspec){.it_value = {until / 1000000000, until % 1000000000}};
        rings = 0;
        GIVES(timer_settime(id, TIMER_ABSTIME, &interval, NULL), 0);
        for (int wait = 0; rings == 0 && wait < 5000; wait++) usleep(1000);
        GIVES(rings, 1);
        GIVES(timer_delete(id), 0);
    }
    sleeping();
    processor_time();
    overruns();
    system_time();
    struct rusage usage;
    GIVES(getrusage(RUSAGE_SELF, &usage), 0);
    FAILS(getrusage(99, &usage), EINVAL);
    struct tms ticks;
    CHECK(times(&ticks) != -1 && ticks.tms_utime >= 0);
    struct sysinfo info;
    GIVES(sysinfo(&info), 0);
    CHECK(info.totalram > 0 && info.procs > 0 && info.uptime >= 0);
    // The CPU time of a child counts for its parent after the wait.
    CHILD_EXITS(0, int64_t end = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) + 30000000;
                while (nanoseconds(CLOCK_PROCESS_CPUTIME_ID) < end) {});
    GIVES(getrusage(RUSAGE_CHILDREN, &usage), 0);
    CHECK(usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec >= 20000);
    struct timeval now;
    GIVES(gettimeofday(&now, NULL), 0);
    CHECK(now.tv_sec > 1600000000);
    return finish("times");
}
