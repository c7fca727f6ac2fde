// Threads that compute without sharing anything: how many processors they keep busy.
//
//   threads COUNT ROUNDS
//
// Each thread does ROUNDS rounds. Prints the nanoseconds from the start of the first thread to the end of
// the last one. Fails if a thread computes another value than the others.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 64, CELLS = 64 };

static uint64_t rounds;

// Integer work with loads, stores and branches that depend on the data.
static void *work(void *unused) {
    uint64_t cells[CELLS] = {0}, state = 1, sum = 0;
    (void)unused;
    for (uint64_t i = 0; i < rounds; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        cells[state >> 58] += i;
        if (state & (UINT64_C(1) << 40))
            sum += cells[i % CELLS];
        else
            sum ^= state;
    }
    return (void *)(uintptr_t)sum;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int argc, char **argv) {
    unsigned long count = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
    if (count < 1 || count > MOST) {
        fprintf(stderr, "usage: threads COUNT ROUNDS, with at most %d threads\n", MOST);
        return 2;
    }
    rounds = strtoul(argv[2], NULL, 10);
    pthread_t threads[MOST];
    void *results[MOST];
    uint64_t start = now();
    for (unsigned long i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0) {
            perror("pthread_create");
            return 1;
        }
    for (unsigned long i = 0; i < count; i++)
        pthread_join(threads[i], &results[i]);
    uint64_t end = now();
    for (unsigned long i = 1; i < count; i++)
        if (results[i] != results[0]) {
            fputs("threads: the threads have different results\n", stderr);
            return 1;
        }
    printf("%llu\n", (unsigned long long)(end - start));
    return 0;
}
