// The kernels of `hartline bench compute`: one executable, which looks at its first
// argument, so that the C library in it is translated once and not once per kernel.
#ifndef KERNELS_H
#define KERNELS_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

// Every kernel does its work `rounds` times and prints checksums that depend on all of it.
typedef void kernel(unsigned rounds);
kernel calls, chase, fft, fibonacci, indirect, interpreter, mandelbrot, matmul, mixed, nbody,
    quicksort, search, sieve;

// Marsaglia's xorshift generator; the state must not be 0.
static inline uint32_t next_random(uint32_t *state) {
    *state ^= *state << 13, *state ^= *state >> 17, *state ^= *state << 5;
    return *state;
}

// A number in [0, 1) that a double holds exactly.
static inline double next_fraction(uint32_t *state) {
    return (next_random(state) >> 8) * (1.0 / 16777216.0);
}

// Memory or the end of the program.
static inline void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) {
        fputs("kernels: no memory\n", stderr);
        exit(1);
    }
    return memory;
}

// FNV-1a over the bytes of `data`: any different bit gives another number.
static inline uint64_t checksum(const void *data, size_t length) {
    const unsigned char *bytes = data;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

#endif
