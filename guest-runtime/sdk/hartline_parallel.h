/*
 * Work in parts that run at the same time, on threads that stay ready for the next work:
 *
 *     static void sum(unsigned part, unsigned parts, void *data) { … }
 *
 *     hartline_multiprocess(4, sum, data);    // sum(0, 4, data) to sum(3, 4, data)
 *     hartline_wait();
 *
 * They are threads of POSIX, so a program runs in the same way in a VM of Hartline (`--cpus`), under another emulator and
 * natively. One thread of the program may use these functions at a time. A child of fork() makes threads of its
 * own. Link with -pthread.
 */
#ifndef HARTLINE_PARALLEL_H
#define HARTLINE_PARALLEL_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Most parts. */
#define HARTLINE_MAX_PARTS 64
/* Longest time for which a thread polls before it sleeps, ns, if there are processors for all. */
#define HARTLINE_POLLING 200000

/* A part of the work: from 0 to `parts` - 1. */
typedef void (*hartline_part)(unsigned part, unsigned parts, void *data);

/* A thread, with a word that changes when it has a part of a work. */
struct hartline_slot {
    _Alignas(64) atomic_uint turn;
    atomic_uint sleeps;
};

static struct {
    /* Of the work. Written before the words of the threads. */
    hartline_part function;
    void *data;
    unsigned parts;
    /* Number of threads, without the caller's, and the process that has them. */
    unsigned threads;
    pid_t process;
    long processors;
    /* Whether threads poll: there is a processor for each part. */
    atomic_int polls;
    /* Whether the caller executes its parts. */
    int is_starting;
    /* Parts of other threads that have not ended. */
    _Alignas(64) atomic_uint left;
    atomic_uint caller_sleeps;
    struct hartline_slot slots[HARTLINE_MAX_PARTS];
} hartline_work;

static _Thread_local unsigned hartline_part_number;

/* The part that the calling thread executes; 0 outside of parts. */
static inline unsigned hartline_hart_id(void) {
    return hartline_part_number;
}

static inline uint64_t hartline_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Waits until a word has another value: polls first, and then sleeps, with a note for the other side. */
static inline void hartline_await(atomic_uint *word, unsigned value, atomic_uint *sleeps) {
    for (uint64_t end = 0; atomic_load_explicit(&hartline_work.polls, memory_order_relaxed);) {
        for (int n = 0; n < 100; n++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value)
                return;
        }
        uint64_t now = hartline_now();
        if (end == 0)
            end = now + HARTLINE_POLLING;
        else if (now >= end)
            break;
    }
    atomic_store(sleeps, 1);
    while (atomic_load(word) == value)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
    atomic_store(sleeps, 0);
}

/* Wakes the thread that waits for a change of a word, after the change. */
static inline void hartline_rouse(atomic_uint *word, atomic_uint *sleeps) {
    if (atomic_load(sleeps) != 0)
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* `number`: of the part. */
static void *hartline_thread(void *number) {
    unsigned part = (unsigned)(uintptr_t)number;
    struct hartline_slot *slot = &hartline_work.slots[part];
    hartline_part_number = part;
    for (unsigned turn = 0;;) {
        hartline_await(&slot->turn, turn, &slot->sleeps);
        turn = atomic_load(&slot->turn);
        hartline_work.function(part, hartline_work.parts, hartline_work.data);
        if (atomic_fetch_sub(&hartline_work.left, 1) == 1)
            hartline_rouse(&hartline_work.left, &hartline_work.caller_sleeps);
    }
    return NULL;
}

/* Makes threads until there are `wanted`, or the system has no more. Result: the number of threads, at most `wanted`. */
static inline unsigned hartline_add_threads(unsigned wanted) {
    pid_t process = getpid();
    if (hartline_work.process != process) {
        /* A child has none of its parent's threads. */
        hartline_work.process = process;
        hartline_work.threads = 0;
        hartline_work.processors = sysconf(_SC_NPROCESSORS_ONLN);
        atomic_store(&hartline_work.left, 0);
    }
    while (hartline_work.threads < wanted) {
        pthread_t thread;
        uintptr_t part = hartline_work.threads + 1;
        atomic_store(&hartline_work.slots[part].turn, 0);
        atomic_store(&hartline_work.slots[part].sleeps, 0);
        if (pthread_create(&thread, NULL, hartline_thread, (void *)part) != 0)
            return hartline_work.threads;
        pthread_detach(thread);
        hartline_work.threads++;
    }
    return wanted;
}

/* Waits until all parts have ended. What they wrote can be read after it. */
static inline void hartline_wait(void) {
    unsigned left = atomic_load(&hartline_work.left);
    /* The parts of a parent end there. */
    if (left != 0 && hartline_work.process != getpid())
        return;
    for (; left != 0; left = atomic_load(&hartline_work.left))
        hartline_await(&hartline_work.left, left, &hartline_work.caller_sleeps);
}

/*
 * Starts the parts of a work. The calling thread executes part 0 before this returns, and the parts that the system has no
 * threads for. All have ended when hartline_wait() returns. Result: 0, or -1 with errno set: EINVAL (parts
 * must be from 1 to 64) or EBUSY (the function of a part starts a work).
 */
static inline int hartline_multiprocess(unsigned parts, hartline_part function, void *data) {
    if (parts < 1 || parts > HARTLINE_MAX_PARTS) {
        errno = EINVAL;
        return -1;
    }
    if (hartline_part_number != 0 || hartline_work.is_starting) {
        errno = EBUSY;
        return -1;
    }
    hartline_wait();
    unsigned others = hartline_add_threads(parts - 1);
    hartline_work.function = function;
    hartline_work.data = data;
    hartline_work.parts = parts;
    hartline_work.is_starting = 1;
    atomic_store(&hartline_work.polls, parts <= hartline_work.processors);
    atomic_store(&hartline_work.left, others);
    for (unsigned part = 1; part <= others; part++) {
        struct hartline_slot *slot = &hartline_work.slots[part];
        atomic_fetch_add(&slot->turn, 1);
        hartline_rouse(&slot->turn, &slot->sleeps);
    }
    function(0, parts, data);
    for (unsigned part = others + 1; part < parts; part++) {
        hartline_part_number = part;
        function(part, parts, data);
    }
    hartline_part_number = 0;
    hartline_work.is_starting = 0;
    return 0;
}

#endif
