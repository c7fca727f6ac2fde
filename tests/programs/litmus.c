// Memory order between threads: message passing, store and load buffering, independent
// reads of independent writes, locks made of LR/SC and AMOs, a sequence lock. The output is
// exact, also if threads are interrupted between two instructions. The argument is the
// number of rounds of each test.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 4

static int pairs = 2000, rounds = 20000;

static long data[8], flag[8];
static long x[8], y[8], seen_x, seen_y;
static pthread_barrier_t barrier;
static long forbidden, counted;
static long lr_sc_word, amo_word, ticket_next, ticket_serving, protected_word;
static int small_word;

static void *send(void *argument) {
    for (long i = 1; i <= pairs; i++) {
        data[0] = i;
        __atomic_store_n(&flag[0], i, __ATOMIC_RELEASE);
        while (__atomic_load_n(&flag[4], __ATOMIC_ACQUIRE) != i) sched_yield();
    }
    return argument;
}

static void *receive(void *argument) {
    for (long i = 1; i <= pairs; i++) {
        while (__atomic_load_n(&flag[0], __ATOMIC_ACQUIRE) != i) sched_yield();
        if (data[0] != i) forbidden++;
        __atomic_store_n(&flag[4], i, __ATOMIC_RELEASE);
    }
    return argument;
}

static void *store_buffer(void *argument) {
    long number = (long)(intptr_t)argument;
    for (int i = 0; i < pairs; i++) {
        pthread_barrier_wait(&barrier);
        if (number == 0) {
            __atomic_store_n(&x[0], 1, __ATOMIC_RELAXED);
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
            seen_y = __atomic_load_n(&y[0], __ATOMIC_RELAXED);
        } else {
            __atomic_store_n(&y[0], 1, __ATOMIC_RELAXED);
            __atomic_thread_fence(__ATOMIC_SEQ_CST);
            seen_x = __atomic_load_n(&x[0], __ATOMIC_RELAXED);
        }
        pthread_barrier_wait(&barrier);
        if (number == 0) {
            if (seen_x == 0 && seen_y == 0) forbidden++;
            counted++;
            x[0] = y[0] = 0;
        }
    }
    return argument;
}

static long add_by_lr_sc(long *word, long value) {
#ifdef __riscv
    long old, failed;
    do
        asm volatile("lr.d.aq %0, (%2)\n\tadd %1, %0, %3\n\tsc.d.rl %1, %1, (%2)"
                     : "=&r"(old), "=&r"(failed)
                     : "r"(word), "r"(value)
                     : "memory");
    while (failed);
    return old;
#else
    return __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);
#endif
}

static void *contend(void *argument) {
    for (int i = 0; i < rounds; i++) {
        add_by_lr_sc(&lr_sc_word, 1);
        __atomic_fetch_add(&amo_word, 3, __ATOMIC_RELAXED);
        __atomic_fetch_xor(&small_word, i, __ATOMIC_RELAXED);
        if (i % 20 == 0) {
            long ticket = __atomic_fetch_add(&ticket_next, 1, __ATOMIC_ACQ_REL);
            while (__atomic_load_n(&ticket_serving, __ATOMIC_ACQUIRE) != ticket) sched_yield();
            protected_word++;
            __atomic_store_n(&ticket_serving, ticket + 1, __ATOMIC_RELEASE);
        }
    }
    return argument;
}

/* Each thread loads what the other one stores afterwards. */
static void *load_buffer(void *argument) {
    long number = (long)(intptr_t)argument;
    for (int i = 0; i < pairs; i++) {
        pthread_barrier_wait(&barrier);
        if (number == 0) {
            seen_x = __atomic_load_n(&x[0], __ATOMIC_ACQUIRE);
            __atomic_store_n(&y[0], 1, __ATOMIC_RELEASE);
        } else {
            seen_y = __atomic_load_n(&y[0], __ATOMIC_ACQUIRE);
            __atomic_store_n(&x[0], 1, __ATOMIC_RELEASE);
        }
        pthread_barrier_wait(&barrier);
        if (number == 0) {
            if (seen_x == 1 && seen_y == 1) forbidden++;
            x[0] = y[0] = 0;
        }
    }
    return argument;
}

/* Two threads store, and two others must agree on which came first. */
static long seen[2][2];
static long turn;

static void *independent(void *argument) {
    long number = __atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < pairs; i++) {
        pthread_barrier_wait(&barrier);
        long *first = number % 2 ? x : y, *second = number % 2 ? y : x;
        if (number < 2) {
            __atomic_store_n(first, 1, __ATOMIC_SEQ_CST);
        } else {
            seen[number - 2][0] = __atomic_load_n(first, __ATOMIC_SEQ_CST);
            seen[number - 2][1] = __atomic_load_n(second, __ATOMIC_SEQ_CST);
        }
        pthread_barrier_wait(&barrier);
        if (number == 0) {
            if (seen[0][0] == 1 && seen[0][1] == 0 && seen[1][0] == 1 && seen[1][1] == 0)
                forbidden++;
            x[0] = y[0] = 0;
        }
    }
    return argument;
}

/* A reader that saw the same even number before and after has seen all of one write. */
static long sequence, halves[2];

static void *write_halves(void *argument) {
    for (long i = 1; i <= 10L * pairs; i++) {
        __atomic_store_n(&sequence, 2 * i - 1, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_RELEASE);
        __atomic_store_n(&halves[0], i, __ATOMIC_RELAXED);
        __atomic_store_n(&halves[1], -i, __ATOMIC_RELAXED);
        __atomic_store_n(&sequence, 2 * i, __ATOMIC_RELEASE);
    }
    return argument;
}

static void *read_halves(void *argument) {
    long before, after;
    do {
        before = __atomic_load_n(&sequence, __ATOMIC_ACQUIRE);
        long first = __atomic_load_n(&halves[0], __ATOMIC_RELAXED);
        long second = __atomic_load_n(&halves[1], __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        after = __atomic_load_n(&sequence, __ATOMIC_RELAXED);
        if (before == after && before % 2 == 0 && first + second != 0) forbidden++;
    } while (before != 20L * pairs);
    return argument;
}

static void run(void *(*first)(void *), void *(*second)(void *), int count) {
    pthread_t threads[2 * THREADS];
    for (long i = 0; i < 2 * count; i++)
        pthread_create(&threads[i], NULL, i % 2 ? second : first, (void *)(intptr_t)(i % 2));
    for (int i = 0; i < 2 * count; i++) pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        pairs = atoi(argv[1]);
        rounds = 10 * pairs;
    }
    run(send, receive, 1);
    printf("message passing: forbidden %ld\n", forbidden);
    pthread_barrier_init(&barrier, NULL, 2);
    run(store_buffer, store_buffer, 1);
    printf("store buffering: forbidden %ld of %ld\n", forbidden, counted);
    run(load_buffer, load_buffer, 1);
    printf("load buffering: forbidden %ld\n", forbidden);
    run(write_halves, read_halves, 1);
    printf("sequence lock: forbidden %ld\n", forbidden);
    pthread_barrier_destroy(&barrier);
    pthread_barrier_init(&barrier, NULL, 4);
    run(independent, independent, 2);
    printf("independent reads: forbidden %ld\n", forbidden);
    run(contend, contend, THREADS / 2);
    printf("lr/sc %ld, amo %ld, xor %d, ticket lock %ld\n", lr_sc_word, amo_word, small_word,
           protected_word);
    return 0;
}
