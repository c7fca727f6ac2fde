// Programs that a first run must get translated code for while it runs. Run as
// `converge WAY ROUNDS`; prints one number.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t step(uint64_t x) {
    x ^= x << 13;
    x ^= x >> 7;
    return x ^ x << 17;
}

// Called in each round of 100 steps.
static __attribute__((noinline)) uint64_t stretch(uint64_t x) {
    for (int i = 0; i < 100; i++)
        x = step(x);
    return x;
}

static void handle(int signal) {
    (void)signal;
    abort();
}

// The program needs the precise variant: it handles SIGSEGV.
static uint64_t handler(uint64_t rounds) {
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGSEGV, &action, NULL);
    uint64_t x = 1;
    for (uint64_t i = 0; i < rounds; i++)
        x = stretch(x);
    return x;
}

// The interpreter stays in one loop, which calls nothing.
static __attribute__((noinline)) uint64_t loop(uint64_t rounds) {
    uint64_t x = 1;
    for (uint64_t i = 0; i < 100 * rounds; i++)
        x = step(x);
    return x;
}

// A function of some 10,000 instructions, 16 of which run in each step.
#define ONE(n) \
    case n: \
        x = x * (2 * (n) + 3) + (n); \
        x ^= x >> ((n) % 31 + 1); \
        table[(n) & 15] += x; \
        break;
#define FOUR(n) ONE(n) ONE(n + 1) ONE(n + 2) ONE(n + 3)
#define SIXTEEN(n) FOUR(n) FOUR(n + 4) FOUR(n + 8) FOUR(n + 12)
#define MANY(n) SIXTEEN(n) SIXTEEN(n + 16) SIXTEEN(n + 32) SIXTEEN(n + 48)
#define ALL(n) MANY(n) MANY(n + 64) MANY(n + 128) MANY(n + 192)

static __attribute__((noinline)) uint64_t giant(uint64_t x, unsigned count) {
    uint64_t table[16] = {0};
    for (unsigned i = 0; i < count; i++) {
        switch (x >> 17 & 1023) {
            ALL(0)
            ALL(256)
            ALL(512)
            ALL(768)
        }
        x += table[i & 15];
    }
    return x;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    uint64_t rounds = strtoull(arguments[2], NULL, 10), x = 1;
    if (!strcmp(arguments[1], "handler"))
        x = handler(rounds);
    else if (!strcmp(arguments[1], "loop"))
        x = loop(rounds);
    else if (!strcmp(arguments[1], "giant"))
        for (uint64_t i = 0; i < rounds; i++)
            x = giant(x, 40);
    else
        return 2;
    printf("%llu\n", (unsigned long long)x);
    return 0;
}
