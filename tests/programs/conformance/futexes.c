// Futexes: values, bits, requeueing, and locks with owners.
#define _GNU_SOURCE
#include "check.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

static long futex(void *word, int operation, uint32_t value, const void *fourth, void *second,
                  uint32_t third) {
    return syscall(SYS_futex, word, operation, value, fourth, second, third);
}

static _Atomic uint32_t word, lock, stage;
static atomic_long result;

static struct timespec after(long milliseconds) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_nsec += milliseconds % 1000 * 1000000;
    time.tv_sec += milliseconds / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void plain(void) {
    struct timespec little = {0, 1000000};
    word = 1;
    FAILS(futex(&word, FUTEX_WAIT, 2, NULL, NULL, 0), EAGAIN);
    FAILS(futex(&word, FUTEX_WAIT, 1, &little, NULL, 0), ETIMEDOUT);
    FAILS(futex((char *)&word + 1, FUTEX_WAIT, 1, NULL, NULL, 0), EINVAL);
    FAILS(futex((void *)8, FUTEX_WAIT, 1, NULL, NULL, 0), EFAULT);
    FAILS(futex(&word, FUTEX_WAIT_BITSET, 1, NULL, NULL, 0), EINVAL);
    GIVES(futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
    FAILS(futex(&word, FUTEX_CMP_REQUEUE, 0, (void *)1, (void *)&lock, 9), EAGAIN);
    struct timespec past = {0, 0};
    FAILS(futex(&word, FUTEX_WAIT_BITSET, 1, &past, NULL, 1), ETIMEDOUT);
}

static void *owner(void *unused) {
    (void)unused;
    lock = gettid();
    stage = 1;
    while (stage == 1) sched_yield();
    if (stage == 2) futex(&lock, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0);
    return NULL;
}

static void owned(void) {
    lock = 0;
    GIVES(futex(&lock, FUTEX_LOCK_PI, 0, NULL, NULL, 0), 0);
    GIVES(lock, gettid());
    FAILS(futex(&lock, FUTEX_LOCK_PI, 0, NULL, NULL, 0), EDEADLK);
    GIVES(futex(&lock, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), 0);
    GIVES(lock, 0);
    FAILS(futex(&lock, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), EPERM);
    pthread_t thread;
    stage = 0;
    pthread_create(&thread, NULL, owner, NULL);
    while (stage == 0) sched_yield();
    FAILS(futex(&lock, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0), EAGAIN);
    struct timespec past = {0, 0};
    FAILS(futex(&lock, FUTEX_LOCK_PI, 0, &past, NULL, 0), ETIMEDOUT);
    stage = 2;
    GIVES(futex(&lock, FUTEX_LOCK_PI, 0, NULL, NULL, 0), 0);
    GIVES(lock & FUTEX_TID_MASK, gettid());
    pthread_join(thread, NULL);
    GIVES(futex(&lock, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), 0);
}

// Waits at `word` until it owns `lock`, and unlocks it.
static void *waiter(void *limit) {
    stage++;
    struct timespec time = after((long)limit);
    long got = futex(&word, FUTEX_WAIT_REQUEUE_PI, 7, &time, (void *)&lock, 0);
    if (got == 0) {
        if ((lock & FUTEX_TID_MASK) != (uint32_t)gettid()) result = 1000;
        result++;
        futex(&lock, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0);
    } else {
        result = -errno;
    }
    return NULL;
}

// Waits until the threads are blocked in their calls.
static void settle(unsigned threads) {
    while (stage < threads) sched_yield();
    usleep(50000);
}

static void condition(void) {
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    FAILS(futex(&word, FUTEX_WAIT_REQUEUE_PI, 8, NULL, (void *)&lock, 0), EAGAIN);
    FAILS(futex(&word, FUTEX_WAIT_REQUEUE_PI, 7, NULL, (void *)&word, 0), EINVAL);
    FAILS(futex(&word, FUTEX_CMP_REQUEUE_PI, 2, NULL, (void *)&lock, 7), EINVAL);
    FAILS(futex(&word, FUTEX_CMP_REQUEUE_PI, 1, NULL, (void *)&lock, 8), EAGAIN);
    FAILS(futex(&word, FUTEX_CMP_REQUEUE_PI, 1, NULL, (void *)&word, 7), EINVAL);
    GIVES(futex(&word, FUTEX_CMP_REQUEUE_PI, 1, NULL, (void *)&lock, 7), 0);
    // The lock is free: the first thread gets it, the others wait for it.
    result = stage = 0;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, waiter, (void *)10000L);
    settle(THREADS);
    FAILS(futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0), EINVAL);
    GIVES(futex(&word, FUTEX_CMP_REQUEUE_PI, 1, (void *)INT_MAX, (void *)&lock, 7), THREADS);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    GIVES(result, THREADS);
    GIVES(lock, 0);
    // The lock is held: all threads wait for it.
    GIVES(futex(&lock, FUTEX_LOCK_PI, 0, NULL, NULL, 0), 0);
    result = stage = 0;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, waiter, (void *)10000L);
    settle(THREADS);
    GIVES(futex(&word, FUTEX_CMP_REQUEUE_PI, 1, (void *)1, (void *)&lock, 7), 2);
    GIVES(futex(&word, FUTEX_CMP_REQUEUE_PI, 1, (void *)1, (void *)&lock, 7), 1);
    GIVES(result, 0);
    CHECK(lock & FUTEX_WAITERS);
    GIVES(futex(&lock, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    GIVES(result, THREADS);
    GIVES(lock, 0);
    // The timeout expires, before and after the requeue.
    result = stage = 0;
    pthread_create(&threads[0], NULL, waiter, (void *)1L);
    pthread_join(threads[0], NULL);
    GIVES(result, -ETIMEDOUT);
    GIVES(futex(&lock, FUTEX_LOCK_PI, 0, NULL, NULL, 0), 0);
    stage = 0;
    pthread_create(&threads[0], NULL, waiter, (void *)300L);
    settle(1);
    GIVES(futex(&word, FUTEX_CMP_REQUEUE_PI, 1, NULL, (void *)&lock, 7), 1);
    pthread_join(threads[0], NULL);
    GIVES(result, -ETIMEDOUT);
    GIVES(futex(&lock, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), 0);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    plain();
    owned();
    word = 7;
    lock = 0;
    condition();
    return finish("futexes");
}
