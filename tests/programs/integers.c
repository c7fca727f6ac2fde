// Multiplication, division and shifts: corner cases of every width and sign.
#include <limits.h>
#include <stdint.h>
#include <stdio.h>

static uint64_t divide(uint64_t a, uint64_t b, int which) {
    uint64_t r;
    switch (which) {
    case 0: __asm__("div %0, %1, %2" : "=r"(r) : "r"(a), "r"(b)); break;
    case 1: __asm__("divu %0, %1, %2" : "=r"(r) : "r"(a), "r"(b)); break;
    case 2: __asm__("rem %0, %1, %2" : "=r"(r) : "r"(a), "r"(b)); break;
    case 3: __asm__("remu %0, %1, %2" : "=r"(r) : "r"(a), "r"(b)); break;
    case 4: __asm__("divw %0, %1, %2" : "=r"(r) : "r"(a), "r"(b)); break;
    case 5: __asm__("divuw %0, %1, %2" : "=r"(r) : "r"(a), "r"(b)); break;
    case 6: __asm__("remw %0, %1, %2" : "=r"(r) : "r"(a), "r"(b)); break;
    case 7: __asm__("remuw %0, %1, %2" : "=r"(r) : "r"(a), "r"(b)); break;
    case 8: __asm__("mulh %0, %1, %2" : "=r"(r) : "r"(a), "r"(b)); break;
    case 9: __asm__("mulhu %0, %1, %2" : "=r"(r) : "r"(a), "r"(b)); break;
    case 10: __asm__("mulhsu %0, %1, %2" : "=r"(r) : "r"(a), "r"(b)); break;
    default: __asm__("mulw %0, %1, %2" : "=r"(r) : "r"(a), "r"(b)); break;
    }
    return r;
}

int main(void) {
    const uint64_t values[] = {
        0, 1, 2, 7, 10, -1ull, -2ull, -7ull, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
        INT64_MAX, (uint64_t)INT64_MIN, INT64_MIN + 1ull, 0xffffffff80000000, 0xdeadbeefcafebabe,
    };
    const int count = sizeof values / sizeof *values;
    for (int which = 0; which < 12; which++)
        for (int i = 0; i < count; i++)
            for (int j = 0; j < count; j++)
                printf("%d %llx %llx = %llx\n", which, (unsigned long long)values[i],
                       (unsigned long long)values[j],
                       (unsigned long long)divide(values[i], values[j], which));
    uint64_t total = 0;
    for (int i = 0; i < count; i++)
        for (int s = 0; s < 64; s++) {
            volatile uint64_t v = values[i];
            volatile int shift = s;
            total = total * 31 + (v << shift) + (v >> shift) + (uint64_t)((int64_t)v >> shift);
            total += (uint32_t)v << (shift & 31);
            total ^= (uint64_t)(int64_t)((int32_t)v >> (shift & 31));
            total += (uint64_t)__builtin_popcountll(v) + (v ? __builtin_ctzll(v) : 64);
            total += v ? (uint64_t)__builtin_clzll(v) : 64;
            total ^= __builtin_bswap64(v);
        }
    unsigned __int128 wide = 1;
    for (int i = 0; i < 200; i++) wide = wide * 1000003 + (wide >> 77) / 13 + i;
    printf("%016llx %016llx %016llx\n", (unsigned long long)total,
           (unsigned long long)(wide >> 64), (unsigned long long)wide);
    return 0;
}
