// Primes up to some millions with the sieve of Eratosthenes, a segment at a time.
#include "kernels.h"

enum { LIMIT = 8000000, SEGMENT = 1 << 15, ROOT = 2829 };

// Number of primes below LIMIT; their sum is added to `sum`.
static NOINLINE unsigned primes(uint64_t *sum) {
    static unsigned char composite[SEGMENT];
    static unsigned small[512], next[512];
    unsigned smalls = 0, count = 1;
    *sum += 2;
    for (unsigned n = 3; n < ROOT; n += 2) {
        unsigned divisor = 3;
        while (divisor * divisor <= n && n % divisor != 0)
            divisor += 2;
        if (divisor * divisor > n)
            small[smalls] = n, next[smalls++] = n * n / 2;
    }
    // composite[i] is about the odd number 2 * (base + i) + 1.
    for (unsigned base = 0; base < LIMIT / 2; base += SEGMENT) {
        unsigned end = LIMIT / 2 - base < SEGMENT ? LIMIT / 2 - base : SEGMENT;
        memset(composite, 0, end);
        for (unsigned i = 0; i < smalls; i++) {
            unsigned place = next[i] - base;
            for (; place < end; place += small[i])
                composite[place] = 1;
            next[i] = base + place;
        }
        for (unsigned i = base == 0; i < end; i++)
            if (!composite[i])
                count++, *sum += 2 * (base + i) + 1;
    }
    return count;
}

void sieve(unsigned rounds) {
    uint64_t sum = 0;
    unsigned count = 0;
    for (unsigned round = 0; round < rounds; round++)
        count += primes(&sum);
    printf("sieve %u %llu\n", count, (unsigned long long)sum);
}
