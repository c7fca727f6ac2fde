// Functions that are entered in every way, for breakpoints in them.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define APART __attribute__((noipa))

volatile uint64_t sink;

// `first` and `second` end with the same code. `looped` has a loop without calls.
__asm__(".text\n"
        ".option push\n"
        ".option norvc\n"
        ".globl first, second, common, looped, in_loop\n"
        ".type first, @function\n"
        "first: addi a0, a0, 1\n"
        "j common\n"
        ".size first, . - first\n"
        ".type second, @function\n"
        "second: addi a0, a0, 2\n"
        "common: slli a0, a0, 1\n"
        "addi a0, a0, 5\n"
        "ret\n"
        ".size second, . - second\n"
        ".type looped, @function\n"
        "looped: mv t0, a0\n"
        "li a0, 0\n"
        "1: beqz t0, 2f\n"
        "in_loop: add a0, a0, t0\n"
        "addi t0, t0, -1\n"
        "j 1b\n"
        "2: ret\n"
        ".size looped, . - looped\n"
        ".option pop\n");

uint64_t first(uint64_t);
uint64_t second(uint64_t);
uint64_t looped(uint64_t);

APART uint64_t direct(uint64_t n) {
    sink += n;
    return n * 3 + 1;
}

APART uint64_t target(uint64_t n) {
    sink ^= n;
    return n * 5 + 2;
}

// A jump, not a call.
APART uint64_t tail(uint64_t n) {
    sink += 7;
    return target(n + 1);
}

APART uint64_t pointed(uint64_t n) {
    sink -= n;
    return n * 7 + 3;
}

APART uint64_t tiny(uint64_t n) {
    return n;
}

APART uint64_t deep(uint64_t n) {
    sink += n;
    uint64_t below = n ? deep(n - 1) : 0;
    return below + sink;
}

APART int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

// No breakpoint is here.
APART uint64_t busy(uint64_t n) {
    uint64_t state = n + 1;
    for (int i = 0; i < 2000; i++) {
        state = state * 6364136223846793005 + tiny(i);
    }
    return state;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    uint64_t (*volatile pointer)(uint64_t) = pointed;
    uint64_t sum = 0;
    for (int round = 0; round < rounds; round++) {
        sum = sum * 31 + direct(round);
        sum = sum * 31 + tail(round);
        sum = sum * 31 + pointer(round);
        sum = sum * 31 + first(round);
        sum = sum * 31 + second(round);
        sum = sum * 31 + deep(2);
        sum = sum * 31 + looped(3);
        int pair[2] = {round, 1};
        qsort(pair, 2, sizeof pair[0], compare);
        sum = sum * 31 + (uint64_t)pair[0];
        sum = sum * 31 + busy(round);
    }
    printf("%d rounds: %016llx\n", rounds, (unsigned long long)sum);
    return 0;
}
