// Words combined from bytes, in all orders, and searches for the highest byte: code that
// compilers generate for CPUs without misaligned accesses and bit manipulation.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned char memory[64];

#define NOINLINE __attribute__((noinline))

static NOINLINE uint64_t little(const unsigned char *p, int bytes) {
    switch (bytes) {
    case 2: return p[0] | p[1] << 8;
    case 4: return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
    default:
        return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 |
               (uint64_t)p[3] << 24 | (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40 |
               (uint64_t)p[6] << 48 | (uint64_t)p[7] << 56;
    }
}

static NOINLINE int64_t big(const unsigned char *p, int bytes) {
    switch (bytes) {
    case 2: return p[1] | p[0] << 8;
    // Signed: the top byte decides.
    case 4: return (int32_t)(p[3] | p[2] << 8 | p[1] << 16 | (uint32_t)p[0] << 24);
    default:
        return (int64_t)((uint64_t)p[7] | (uint64_t)p[6] << 8 | (uint64_t)p[5] << 16 |
                         (uint64_t)p[4] << 24 | (uint64_t)p[3] << 32 | (uint64_t)p[2] << 40 |
                         (uint64_t)p[1] << 48 | (uint64_t)p[0] << 56);
    }
}

// The bytes have other uses, before and after.
static NOINLINE uint64_t besides(const unsigned char *p, unsigned char *q) {
    uint32_t first = p[2], all = p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
    q[0] = p[1];
    uint32_t again = p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
    return all ^ (uint64_t)again << 20 ^ (uint64_t)first << 40 ^ (uint64_t)p[3] << 50;
}

// In a fixed order of instructions: an overwritten address register, a store between the
// byte loads, bytes in two positions, holes.
static NOINLINE uint64_t fixed(unsigned char *p) {
    uint64_t a, b, c, d, e;
    __asm__ volatile("mv t0, %5\n"
                     "lbu t1, 1(t0)\n"
                     "lbu t0, 0(t0)\n"
                     "slli t1, t1, 8\n"
                     "or %0, t1, t0\n"
                     // A store between.
                     "lbu t1, 4(%5)\n"
                     "sb t1, 5(%5)\n"
                     "lbu t2, 5(%5)\n"
                     "slli t2, t2, 8\n"
                     "or %1, t1, t2\n"
                     // The same address, moved in between.
                     "mv t0, %5\n"
                     "lbu t1, 8(t0)\n"
                     "addi t0, t0, 1\n"
                     "lbu t2, 8(t0)\n"
                     "slli t2, t2, 8\n"
                     "add %2, t1, t2\n"
                     // One byte in two positions is not a word.
                     "lbu t1, 10(%5)\n"
                     "slli t2, t1, 8\n"
                     "or %3, t1, t2\n"
                     // Sign of the fourth byte, then eight bytes; a hole at byte 5.
                     "lwu t1, 12(%5)\n"
                     "lbu t2, 16(%5)\n"
                     "slli t2, t2, 32\n"
                     "or t1, t1, t2\n"
                     "lhu t2, 18(%5)\n"
                     "slli t2, t2, 48\n"
                     "xor %4, t1, t2\n"
                     : "=&r"(a), "=&r"(b), "=&r"(c), "=&r"(d), "=&r"(e)
                     : "r"(p)
                     : "t0", "t1", "t2", "memory");
    return a ^ b << 16 ^ c << 32 ^ d << 48 ^ e;
}

// As in libgcc, with all its output registers.
static NOINLINE uint64_t top_byte(uint64_t value) {
    uint64_t shifted, byte, count;
    __asm__ volatile("li %2, 56\n"
                     "1: srl %0, %3, %2\n"
                     "andi %1, %0, 255\n"
                     "bnez %1, 2f\n"
                     "addi %2, %2, -8\n"
                     "bnez %2, 1b\n"
                     "2:\n"
                     : "=&r"(shifted), "=&r"(byte), "=&r"(count)
                     : "r"(value));
    return shifted * 31 + byte * 7 + count;
}

int main(void) {
    uint64_t state = 88172645463325252u, sum = 0;
    for (int round = 0; round < 300; round++) {
        for (size_t i = 0; i < sizeof memory; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            memory[i] = (unsigned char)(state >> 32);
        }
        unsigned char stored[2] = {0, 0};
        for (int at = 0; at < 9; at++) {
            for (int bytes = 2; bytes <= 8; bytes *= 2) {
                uint64_t expected = 0;
                memcpy(&expected, memory + at, (size_t)bytes);
                if (little(memory + at, bytes) != expected) printf("little %d %d\n", at, bytes);
                sum = sum * 31 + (uint64_t)big(memory + at, bytes);
            }
            sum = sum * 31 + besides(memory + at, stored);
            sum = sum * 31 + besides(memory + at, memory + at + 2);
            sum = sum * 31 + fixed(memory + at);
        }
        for (int bits = 0; bits < 64; bits++) {
            uint64_t value = state >> bits;
            sum = sum * 31 + top_byte(value) + top_byte(value & -value);
            if (value)
                sum += (uint64_t)__builtin_clzll(value) * 3 + (uint64_t)__builtin_ctzll(value);
        }
        sum = sum * 31 + top_byte(0) + top_byte(255) + top_byte(256);
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
