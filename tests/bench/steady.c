// Computes in rounds until a time has passed, for `hartline bench debug`.
//
//   steady SECONDS PAUSE
//
// Prints the nanoseconds of a round: the median of the rounds in the last third of the time. With a PAUSE,
// in milliseconds, a second thread calls marked() after each pause, and nothing else.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { KEYS = 2000, MOST_ROUNDS = 1 << 20 };

struct node {
    struct node *below[2];
    uint32_t key;
};

static struct node nodes[KEYS];
static uint32_t sorted[KEYS];
static uint64_t times[MOST_ROUNDS];
static volatile unsigned calls;

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// For breakpoints.
__attribute__((noinline)) void marked(void) { calls++; }
__attribute__((noinline)) void unused(void) { calls--; }

static void *mark(void *pause) {
    for (;;) {
        usleep((useconds_t)(uintptr_t)pause * 1000);
        marked();
    }
    return NULL;
}

static int by_value(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

__attribute__((noinline)) static void insert(struct node **root, struct node *node) {
    while (*root)
        root = &(*root)->below[node->key > (*root)->key];
    *root = node;
}

__attribute__((noinline)) static unsigned depth(const struct node *node) {
    if (!node)
        return 0;
    unsigned left = depth(node->below[0]), right = depth(node->below[1]);
    return 1 + (left > right ? left : right);
}

// A tree of pseudo-random keys, and the same keys sorted by the library.
static unsigned round_of(uint32_t seed) {
    struct node *root = NULL;
    for (int i = 0; i < KEYS; i++) {
        seed = seed * 1664525u + 1013904223u;
        nodes[i] = (struct node){.key = seed};
        sorted[i] = seed;
        insert(&root, &nodes[i]);
    }
    qsort(sorted, KEYS, sizeof *sorted, by_value);
    return depth(root);
}

static int by_time(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fputs("usage: steady SECONDS PAUSE\n", stderr);
        return 2;
    }
    uint64_t length = (uint64_t)(strtod(argv[1], NULL) * 1e9), start = now(), last = start;
    uintptr_t pause = strtoul(argv[2], NULL, 10);
    pthread_t other;
    if (pause == (uintptr_t)-1)
        unused();
    if (pause > 0 && pthread_create(&other, NULL, mark, (void *)pause) != 0) {
        perror("pthread_create");
        return 1;
    }
    size_t count = 0;
    unsigned sum = 0;
    while (last - start < length) {
        sum += round_of((uint32_t)count);
        uint64_t end = now();
        if (end - start > length / 3 * 2 && count < MOST_ROUNDS)
            times[count++] = end - last;
        last = end;
    }
    if (count == 0 || sum == 0) {
        fputs("steady: no round in the time\n", stderr);
        return 1;
    }
    qsort(times, count, sizeof *times, by_time);
    printf("%llu\n", (unsigned long long)times[count / 2]);
    return 0;
}
