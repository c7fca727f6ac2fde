// The Fibonacci function by its definition: only calls and returns.
#include "kernels.h"

static NOINLINE uint64_t fib(unsigned n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

void fibonacci(unsigned rounds) {
    uint64_t sum = 0;
    for (unsigned round = 0; round < rounds; round++)
        sum = sum * 3 + fib(32 + round % 2);
    printf("fibonacci %llu\n", (unsigned long long)sum);
}
