// Futexes: values, bits, requeueing, and locks with owners.
#define _GNU_SOURCE
#include "check.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
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

// Operations that wake, with addresses and numbers that have no effect.
static void ineffective(void) {
    FAILS(futex(&word, FUTEX_CMP_REQUEUE, -1, (void *)1, (void *)&lock, word), EINVAL);
    FAILS(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)-1L, (void *)&lock, word), EINVAL);
    FAILS(futex(&word, FUTEX_REQUEUE, -1, (void *)1, (void *)&lock, 0), EINVAL);
    FAILS(futex(&word, FUTEX_REQUEUE, 1, (void *)-1L, (void *)&lock, 0), EINVAL);
    enum { BOTH = PROT_READ | PROT_WRITE };
    char *page = mmap(NULL, 8192, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    GIVES(futex(page, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
    GIVES(futex(page, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 0);
    // Another process could not change the word of a private mapping without write permission.
    GIVES(mprotect(page, 4096, PROT_READ), 0);
    FAILS(futex(page, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
    GIVES(mprotect(page, 4096, PROT_NONE), 0);
    GIVES(munmap(page + 4096, 4096), 0);
    for (int i = 0; i < 2; i++, page += 4096) {
        FAILS(futex(page, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
        GIVES(futex(page, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 0);
        FAILS(futex(page + 1, FUTEX_WAKE, 1, NULL, NULL, 0), EINVAL);
        FAILS(futex(page, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0), EFAULT);
    }
    FAILS(futex((void *)-4096L, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), EFAULT);
    munmap(page - 8192, 4096);
}

static void barriers(void) {
    enum { QUERY = 0, GLOBAL = 1, GLOBAL_EXPEDITED = 2, REGISTER_GLOBAL = 4, PRIVATE = 8, REGISTER = 16 };
    long commands = syscall(SYS_membarrier, QUERY, 0, 0);
    CHECK(commands > 0 && (commands & GLOBAL) && (commands & PRIVATE) && (commands & REGISTER));
    FAILS(syscall(SYS_membarrier, QUERY, 99, 0), EINVAL);
    FAILS(syscall(SYS_membarrier, 1 << 20, 0, 0), EINVAL);
    CHILD_EXITS(0, _exit(!(syscall(SYS_membarrier, PRIVATE, 0, 0) == -1 && errno == EPERM)));
    GIVES(syscall(SYS_membarrier, GLOBAL, 0, 0), 0);
    GIVES(syscall(SYS_membarrier, REGISTER, 0, 0), 0);
    GIVES(syscall(SYS_membarrier, PRIVATE, 0, 0), 0);
    GIVES(syscall(SYS_membarrier, REGISTER_GLOBAL, 0, 0), 0);
    GIVES(syscall(SYS_membarrier, GLOBAL_EXPEDITED, 0, 0), 0);
    // A child inherits the registration.
    CHILD_EXITS(0, _exit(syscall(SYS_membarrier, PRIVATE, 0, 0) != 0));
}

struct waiter {
    uint64_t value;
    uint64_t address;
    uint32_t flags, reserved;
};

static long wait_any(const struct waiter *list, unsigned count, const struct timespec *until) {
    return syscall(SYS_futex_waitv, list, count, 0, until, CLOCK_MONOTONIC);
}

static void *waits_for_any(void *list) {
    stage = 1;
    result = wait_any(list, 3, NULL);
    return NULL;
}

static void several(void) {
    static _Atomic uint32_t words[3];
    struct waiter list[3];
    for (int i = 0; i < 3; i++)
        list[i] = (struct waiter){.address = (uintptr_t)&words[i], .flags = 2 | FUTEX_PRIVATE_FLAG};
    if (wait_any(list, 0, NULL) < 0 && errno == ENOSYS) {
        // The reference and old kernels are without the call.
        CHECK(emulated);
        return;
    }
    FAILS(wait_any(list, 0, NULL), EINVAL);
    FAILS(wait_any(list, 129, NULL), EINVAL);
    FAILS(wait_any(NULL, 1, NULL), EINVAL);
    FAILS(wait_any((void *)8, 1, NULL), EFAULT);
    struct timespec soon = after(20);
    FAILS(wait_any(list, 3, &soon), ETIMEDOUT);
    FAILS(syscall(SYS_futex_waitv, list, 3, 1, NULL, CLOCK_MONOTONIC), EINVAL);
    FAILS(syscall(SYS_futex_waitv, list, 3, 0, &soon, CLOCK_BOOTTIME), EINVAL);
    list[1].reserved = 1;
    FAILS(wait_any(list, 3, &soon), EINVAL);
    list[1].reserved = 0, list[1].flags = 128;
    FAILS(wait_any(list, 3, &soon), EINVAL);
    list[1].flags = 130, list[1].value = 1ull << 32;
    FAILS(wait_any(list, 3, &soon), EINVAL);
    list[1].value = 5;
    FAILS(wait_any(list, 3, NULL), EAGAIN);
    list[1].value = 0;
    pthread_t thread;
    stage = 0, result = -1;
    GIVES(pthread_create(&thread, NULL, waits_for_any, list), 0);
    long woken = 0;
    for (int i = 0; i < 5000 && !woken; i++) {
        usleep(1000);
        woken = futex(&words[2], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
    GIVES(woken, 1);
    pthread_join(thread, NULL);
    GIVES(result, 2);
    // Until the task runs again it is in the queues of the other words too: only now nothing waits.
    GIVES(futex(&words[0], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 0);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    plain();
    owned();
    word = 7;
    lock = 0;
    condition();
    if (!emulated) {
        ineffective();
        barriers();
    }
    several();
    return finish("futexes");
}
