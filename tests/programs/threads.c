/* Threads of the C library: joining, locks, conditions, barriers, thread-local storage,
   cancellation, signals, and a robust lock whose owner ends. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS 100
#define ROUNDS 1000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t shared_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static long counter, turn, serial;
static atomic_long atomic_counter;
static _Thread_local long own;

static void *count(void *argument) {
    long number = (long)(intptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&lock);
        counter++;
        pthread_mutex_unlock(&lock);
        atomic_counter++;
        own += number;
        if (i % 100 == 0)
            sched_yield();
    }
    return (void *)(intptr_t)own;
}

static void many(void) {
    pthread_t threads[THREADS];
    long sum = 0;
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, count, (void *)(intptr_t)i) != 0)
            abort();
    for (long i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)(intptr_t)result;
    }
    printf("counter %ld, atomic %ld, own %ld\n", counter, (long)atomic_counter, sum);
}

/* Takes turns with the others, in order. */
static void *take_turns(void *argument) {
    long number = (long)(intptr_t)argument;
    for (int round = 0; round < 50; round++) {
        pthread_mutex_lock(&lock);
        while (turn % 4 != number)
            pthread_cond_wait(&changed, &lock);
        turn++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void *meet(void *argument) {
    (void)argument;
    for (int i = 0; i < 20; i++)
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            serial++;
    return NULL;
}

static void *read_and_write(void *argument) {
    long sum = 0;
    for (int i = 0; i < 200; i++) {
        if (i % 10 == (long)(intptr_t)argument) {
            pthread_rwlock_wrlock(&shared_lock);
            counter++;
            pthread_rwlock_unlock(&shared_lock);
        } else {
            pthread_rwlock_rdlock(&shared_lock);
            sum += counter & 1;
            pthread_rwlock_unlock(&shared_lock);
        }
    }
    return (void *)(intptr_t)(sum >= 0);
}

static void run(const char *name, int threads, void *(*body)(void *)) {
    pthread_t ids[16];
    for (long i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, body, (void *)(intptr_t)i);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    printf("%s: turn %ld, serial %ld, counter %ld\n", name, turn, serial, counter);
}

static void clean(void *argument) {
    printf("cleaned up %s\n", (const char *)argument);
}

static void *wait_for_ever(void *argument) {
    pthread_cleanup_push(clean, "after cancellation");
    for (;;)
        pause();
    pthread_cleanup_pop(0);
    return argument;
}

static void *compute_for_ever(void *argument) {
    volatile long *stop = argument;
    while (!*stop)
        ;
    return (void *)7L;
}

static volatile sig_atomic_t handled;
static volatile pid_t handler_tid;

static void handle(int signal) {
    handled = signal;
    handler_tid = (pid_t)syscall(SYS_gettid);
}

static void *wait_for_signal(void *argument) {
    sem_t *ready = argument;
    pid_t tid = (pid_t)syscall(SYS_gettid);
    sigset_t blocked, usual;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &blocked, &usual);
    sem_post(ready);
    /* With pause(), the only signal could come between the check and the call. */
    while (!handled)
        sigsuspend(&usual);
    pthread_sigmask(SIG_SETMASK, &usual, NULL);
    return (void *)(intptr_t)(handler_tid == tid);
}

static void *lock_and_leave(void *argument) {
    pthread_mutex_lock(argument);
    return NULL;
}

static void robust(void) {
    pthread_mutexattr_t attributes;
    pthread_mutex_t mutex;
    pthread_t thread;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex, &attributes);
    pthread_create(&thread, NULL, lock_and_leave, &mutex);
    pthread_join(thread, NULL);
    int result = pthread_mutex_lock(&mutex);
    printf("robust: %s", result == EOWNERDEAD ? "owner died" : strerror(result));
    printf(", consistent %d", pthread_mutex_consistent(&mutex));
    printf(", unlock %d\n", pthread_mutex_unlock(&mutex));
}

static void timeouts(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 20000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&lock);
    int result = pthread_cond_timedwait(&changed, &lock, &until);
    pthread_mutex_unlock(&lock);
    printf("timed wait: %s\n", result == ETIMEDOUT ? "timed out" : "?");
}

/* Ends the process when the first thread is gone: exit() beside the unwinding of
   pthread_exit() takes away the tables that it reads. */
static void *leave_after(void *first) {
    pthread_join(*(pthread_t *)first, NULL);
    exit(42);
}

int main(void) {
    many();
    run("turns", 4, take_turns);
    pthread_barrier_init(&barrier, NULL, 8);
    run("barrier", 8, meet);
    run("read-write lock", 10, read_and_write);
    timeouts();

    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, wait_for_ever, NULL);
    usleep(1000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("cancelled: %d\n", result == PTHREAD_CANCELED);

    volatile long stop = 0;
    pthread_create(&thread, NULL, compute_for_ever, (void *)&stop);
    usleep(30000);
    stop = 1;
    pthread_join(thread, &result);
    printf("preempted: %ld\n", (long)(intptr_t)result);

    sem_t ready;
    sem_init(&ready, 0, 0);
    signal(SIGUSR1, handle);
    pthread_create(&thread, NULL, wait_for_signal, &ready);
    sem_wait(&ready);
    while (!handled) {
        pthread_kill(thread, SIGUSR1);
        usleep(1000);
    }
    pthread_join(thread, &result);
    printf("signal %d in its thread: %ld\n", (int)handled, (long)(intptr_t)result);
    robust();

    /* The process ends with its last thread, or with exit() in any. */
    pthread_create(&thread, NULL, compute_for_ever, (void *)&stop);
    static pthread_t first;
    first = pthread_self();
    pthread_create(&thread, NULL, leave_after, &first);
    pthread_exit(NULL);
}
