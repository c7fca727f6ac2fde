// What threads that share memory may see of one another: message passing, store
// buffering, locks made of LR/SC and AMOs. Exact also where threads are interrupted
// between two instructions.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#define PAIRS 2000
#define ROUNDS 20000
#define THREADS 4

static long data[8], flag[8];
static long x[8], y[8], seen_x, seen_y;
static pthread_barrier_t barrier;
static long forbidden, counted;
static long lr_sc_word, amo_word, ticket_next, ticket_serving, protected_word;
static int small_word;

static void *send(void *argument) {
    for (long i = 1; i <= PAIRS; i++) {
        data[0] = i;
        __atomic_store_n(&flag[0], i, __ATOMIC_RELEASE);
        while (__atomic_load_n(&flag[4], __ATOMIC_ACQUIRE) != i) sched_yield();
    }
    return argument;
}

static void *receive(void *argument) {
    for (long i = 1; i <= PAIRS; i++) {
        while (__atomic_load_n(&flag[0], __ATOMIC_ACQUIRE) != i) sched_yield();
        if (data[0] != i) forbidden++;
        __atomic_store_n(&flag[4], i, __ATOMIC_RELEASE);
    }
    return argument;
}

static void *store_buffer(void *argument) {
    long number = (long)(intptr_t)argument;
    for (int i = 0; i < PAIRS; i++) {
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
    for (int i = 0; i < ROUNDS; i++) {
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

static void run(void *(*first)(void *), void *(*second)(void *), int pairs) {
    pthread_t threads[2 * THREADS];
    for (long i = 0; i < 2 * pairs; i++)
        pthread_create(&threads[i], NULL, i % 2 ? second : first, (void *)(intptr_t)(i % 2));
    for (int i = 0; i < 2 * pairs; i++) pthread_join(threads[i], NULL);
}

int main(void) {
    run(send, receive, 1);
    printf("message passing: forbidden %ld\n", forbidden);
    pthread_barrier_init(&barrier, NULL, 2);
    run(store_buffer, store_buffer, 1);
    printf("store buffering: forbidden %ld of %ld\n", forbidden, counted);
    run(contend, contend, THREADS / 2);
    printf("lr/sc %ld, amo %ld, xor %d, ticket lock %ld\n", lr_sc_word, amo_word, small_word,
           protected_word);
    return 0;
}
