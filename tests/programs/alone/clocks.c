// CPU time: its clocks and timers, for processes and threads; and priority-inheritance
// locks.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MS = 1000000 };

static int64_t now(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t)) return -errno;
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static volatile uint64_t work;

static void compute(int64_t until, clockid_t clock) {
    while (now(clock) < until)
        for (int i = 0; i < 1000; i++) work += i * work + 1;
}

static volatile sig_atomic_t expired;
static volatile int64_t expired_at;
static clockid_t expired_clock;

static void expire(int signal) {
    (void)signal;
    expired++;
    expired_at = now(expired_clock);
}

static struct timespec time_of(int64_t ns) {
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

// Computes until a CPU-time timer has expired three times.
static void timer(const char *name, clockid_t clock) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    timer_t timer;
    if (timer_create(clock, &event, &timer)) {
        printf("%s: %s\n", name, strerror(errno));
        return;
    }
    struct itimerspec spec = {time_of(20 * MS), time_of(30 * MS)}, left, old;
    expired_clock = clock;
    int64_t start, begun;
    int set, asleep;
    do {
        expired = 0;
        begun = now(CLOCK_MONOTONIC);
        start = now(clock);
        set = timer_settime(timer, 0, &spec, NULL);
        struct timespec nap = time_of(60 * MS);
        nanosleep(&nap, NULL);
        asleep = expired;
        // Time in which the host has taken the processor away is processor time of the task.
    } while (now(CLOCK_MONOTONIC) - begun > 75 * MS);
    timer_gettime(timer, &left);
    while (expired < 3) work++;
    int64_t passed = expired_at - start;
    printf("%s: %d, while asleep %d, left %d, not too soon %d, not too late %d\n", name, set,
           asleep, left.it_value.tv_sec == 0 && left.it_value.tv_nsec <= 30 * MS,
           passed >= 70 * MS, passed < 15000LL * MS);
    memset(&spec, 0, sizeof spec);
    timer_settime(timer, 0, &spec, &old);
    printf("%s: interval %ld, delete %d\n", name, old.it_interval.tv_nsec / MS,
           timer_delete(timer));
    // An absolute time in the past.
    timer_create(clock, &event, &timer);
    expired = 0;
    struct itimerspec over = {{0, 0}, {0, 1}};
    timer_settime(timer, TIMER_ABSTIME, &over, NULL);
    int64_t end = now(clock) + 1000 * MS;
    while (!expired && now(clock) < end) work++;
    printf("%s: over %d\n", name, expired);
    timer_delete(timer);
}

static void interval(const char *name, int which, int number) {
    signal(number, expire);
    expired = 0, expired_clock = CLOCK_PROCESS_CPUTIME_ID;
    struct itimerval value = {{0, 20000}, {0, 20000}}, zero = {{0, 0}, {0, 0}};
    setitimer(which, &value, NULL);
    while (expired < 2) work++;
    setitimer(which, &zero, &value);
    printf("%s: expired, interval %ld\n", name, (long)value.it_interval.tv_usec);
}

static pthread_barrier_t barrier;
static clockid_t busy_clock;

static void *busy(void *unused) {
    pthread_getcpuclockid(pthread_self(), &busy_clock);
    compute(now(CLOCK_THREAD_CPUTIME_ID) + 1000 * MS, CLOCK_THREAD_CPUTIME_ID);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

static void threads(void) {
    pthread_t thread;
    struct rusage usage;
    pthread_barrier_init(&barrier, NULL, 2);
    int64_t own = now(CLOCK_THREAD_CPUTIME_ID), all = now(CLOCK_PROCESS_CPUTIME_ID);
    pthread_create(&thread, NULL, busy, NULL);
    pthread_barrier_wait(&barrier);
    own = now(CLOCK_THREAD_CPUTIME_ID) - own, all = now(CLOCK_PROCESS_CPUTIME_ID) - all;
    // Time that a busy host takes from a vCPU counts as CPU time of the vCPU's thread.
    printf("own less %d, all at least %d, of the thread %d\n", own < 800 * MS,
           all >= 1000 * MS, now(busy_clock) >= 1000 * MS);
    getrusage(RUSAGE_THREAD, &usage);
    int64_t of_thread = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec;
    getrusage(RUSAGE_SELF, &usage);
    printf("usage %d\n", of_thread <= usage.ru_utime.tv_sec + usage.ru_stime.tv_sec);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    // Linux wakes the joining thread a moment before the other thread is gone.
    struct timespec moment = time_of(MS);
    for (int i = 0; i < 1000 && now(busy_clock) >= 0; i++) nanosleep(&moment, NULL);
    printf("ended %lld\n", (long long)now(busy_clock));
}

static void other_process(void) {
    int ends[2];
    char byte;
    clockid_t clock;
    if (pipe(ends)) exit(1);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        compute(30 * MS, CLOCK_PROCESS_CPUTIME_ID);
        write(ends[1], "x", 1);
        pause();
    }
    read(ends[0], &byte, 1);
    printf("clock of the child %d", clock_getcpuclockid(child, &clock));
    printf(" %d\n", now(clock) >= 30 * MS);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    printf("clock of nobody %s\n", strerror(clock_getcpuclockid(child, &clock)));
}

static pthread_mutex_t lock;
static long counter;

static void *count_up(void *unused) {
    for (int i = 0; i < 20000; i++) {
        pthread_mutex_lock(&lock);
        counter++;
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

static void *hold(void *unused) {
    pthread_mutex_lock(&lock);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    pthread_mutex_unlock(&lock);
    return unused;
}

static void *die(void *unused) {
    pthread_mutex_lock(&lock);
    return unused;
}

static void inheriting_locks(void) {
    pthread_t threads[4];
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    printf("protocol %d\n", pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    printf("init %d\n", pthread_mutex_init(&lock, &attributes));
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, count_up, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("counted %ld\n", counter);
    pthread_create(&threads[0], NULL, hold, NULL);
    pthread_barrier_wait(&barrier);
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 20 * MS;
    if (soon.tv_nsec >= 1000 * MS) soon.tv_sec++, soon.tv_nsec -= 1000 * MS;
    printf("taken: %s", strerror(pthread_mutex_trylock(&lock)));
    printf(", %s\n", strerror(pthread_mutex_timedlock(&lock, &soon)));
    // A signal does not interrupt waiting for it.
    expired = 0;
    signal(SIGALRM, expire);
    struct itimerval alarm = {{0, 0}, {0, 20000}};
    setitimer(ITIMER_REAL, &alarm, NULL);
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 60 * MS;
    if (soon.tv_nsec >= 1000 * MS) soon.tv_sec++, soon.tv_nsec -= 1000 * MS;
    printf("with a signal: %s", strerror(pthread_mutex_timedlock(&lock, &soon)));
    printf(" %d\n", expired);
    pthread_barrier_wait(&barrier);
    printf("lock %d", pthread_mutex_lock(&lock));
    printf(", again: %s", strerror(pthread_mutex_lock(&lock)));
    printf(", unlock %d", pthread_mutex_unlock(&lock));
    printf(", again: %s\n", strerror(pthread_mutex_unlock(&lock)));
    pthread_join(threads[0], NULL);
    pthread_mutex_destroy(&lock);

    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&lock, &attributes);
    pthread_create(&threads[0], NULL, die, NULL);
    pthread_join(threads[0], NULL);
    printf("robust: %s", strerror(pthread_mutex_lock(&lock)));
    printf(", consistent %d", pthread_mutex_consistent(&lock));
    printf(", unlock %d", pthread_mutex_unlock(&lock));
    printf(", lock %d\n", pthread_mutex_lock(&lock));
    pthread_mutex_unlock(&lock);
}

// Calls that give up find timers already expired that were due long before.
static void time_limits(void) {
    enum { ROUNDS = 100 };
    int readable = 0, taken = 0, handled = 0;
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    sem_t never;
    sem_init(&never, 0, 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    signal(SIGALRM, expire);
    for (int i = 0; i < ROUNDS; i++) {
        struct itimerspec soon = {{0, 0}, time_of(MS / 10)};
        struct itimerval alarm = {{0, 0}, {0, 100}};
        timerfd_settime(fd, 0, &soon, NULL);
        compute(now(CLOCK_MONOTONIC) + MS, CLOCK_MONOTONIC);
        readable += poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0);

        pthread_sigmask(SIG_BLOCK, &set, NULL);
        setitimer(ITIMER_REAL, &alarm, NULL);
        compute(now(CLOCK_MONOTONIC) + MS, CLOCK_MONOTONIC);
        taken += sigtimedwait(&set, NULL, &(struct timespec){0, 0}) == SIGALRM;
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);

        expired = 0;
        setitimer(ITIMER_REAL, &alarm, NULL);
        struct timespec limit = time_of(now(CLOCK_REALTIME) + 2 * MS);
        while (sem_timedwait(&never, &limit) && errno == EINTR) continue;
        handled += expired;
    }
    printf("of %d: readable %d, taken %d, handled %d\n", ROUNDS, readable, taken, handled);
    close(fd);
}

int main(void) {
    signal(SIGUSR1, expire);
    timer("process", CLOCK_PROCESS_CPUTIME_ID);
    timer("thread", CLOCK_THREAD_CPUTIME_ID);
    interval("virtual", ITIMER_VIRTUAL, SIGVTALRM);
    interval("profile", ITIMER_PROF, SIGPROF);
    threads();
    other_process();
    inheriting_locks();
    time_limits();
    return 0;
}
