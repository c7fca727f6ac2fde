// Spends three quarters of its time in one function and one quarter in another, for
// profiles. ARG is the number of rounds.
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned long sink;

static inline unsigned long work(unsigned long n) {
    unsigned long a = 1;
    for (unsigned long i = 0; i < n; i++) a = a * 6364136223846793005UL + i;
    return a;
}

__attribute__((noinline)) void three_quarters(unsigned long n) { sink = work(3 * n); }

__attribute__((noinline)) void one_quarter(unsigned long n) { sink = work(n) + 1; }

__attribute__((noinline)) void rounds(unsigned long count, unsigned long n) {
    for (unsigned long i = 0; i < count; i++) {
        three_quarters(n);
        one_quarter(n);
    }
}

int main(int argc, char **argv) {
    rounds(argc > 1 ? strtoul(argv[1], 0, 0) : 1, 20000);
    printf("%lx\n", sink);
    return 0;
}
