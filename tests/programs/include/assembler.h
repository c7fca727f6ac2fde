// An assembler for code that a program makes at run time, and memory for it.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { ZERO, RA, SP, T0 = 5, T1, S0 = 8, S1, A0 = 10, A1, A2, A3, S2 = 18, S3, T3 = 28, T4 };
enum { PAGE = 4096 };

// Each function returns an instruction.
static inline uint32_t addi(int rd, int rs, int value) {
    return 0x13 | rd << 7 | rs << 15 | (uint32_t)value << 20;
}
static inline uint32_t load(int rd, int rs, int at) {
    return 0x3003 | rd << 7 | rs << 15 | (uint32_t)at << 20;
}
static inline uint32_t store(int rt, int rs, int at) {
    return 0x3023 | (at & 31) << 7 | rs << 15 | rt << 20 | (uint32_t)(at >> 5) << 25;
}
static inline uint32_t jalr(int rd, int rs) { return 0x67 | rd << 7 | rs << 15; }
static inline uint32_t bnez(int rs, int back) {
    uint32_t to = (uint32_t)back;
    return 0x1063 | rs << 15 | (to >> 11 & 1) << 7 | (to >> 1 & 15) << 8 | (to >> 5 & 63) << 25 |
           (to >> 12 & 1) << 31;
}
static inline uint32_t add(int rd, int first, int second) {
    return 0x33 | rd << 7 | first << 15 | (uint32_t)second << 20;
}
enum { RET = 0x8067, FENCE_I = 0x100f };

static inline void publish(void *code, size_t length) {
    __builtin___clear_cache((char *)code, (char *)code + length);
}

static inline uint32_t *map(int protection) {
    void *at = mmap(NULL, 16 * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return at;
}

enum { RW = PROT_READ | PROT_WRITE, RX = PROT_READ | PROT_EXEC, RWX = RW | PROT_EXEC };
