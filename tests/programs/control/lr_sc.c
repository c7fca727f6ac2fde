// LR/SC and AMOs on one hart: when SC must fail, every AMO with every ordering, and
// misaligned loads and stores within and across pages.
#include <signal.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t hash = 1;
static void mix(uint64_t value) { hash = (hash ^ value) * 1099511628211ull + (hash >> 29); }

#define LR(suffix, order, type)                                                              \
    static inline type lr_##suffix##_##order(type *p)
#define PAIR(w, type, lr_order, sc_order, name)                                              \
    static int name(type *p, type add) {                                                     \
        type old;                                                                            \
        long failed;                                                                         \
        __asm__ volatile("lr." w lr_order " %0, %2\n add %0, %0, %3\n sc." w sc_order        \
                         " %1, %0, %2" : "=&r"(old), "=&r"(failed), "+A"(*p) : "r"(add));     \
        mix((uint64_t)old);                                                                  \
        return (int)failed;                                                                  \
    }
PAIR("w", int32_t, "", "", pair_w)
PAIR("w", int32_t, ".aq", ".rl", pair_w_aqrl)
PAIR("w", int32_t, ".aqrl", ".aqrl", pair_w_both)
PAIR("d", int64_t, "", "", pair_d)
PAIR("d", int64_t, ".aq", ".rl", pair_d_aqrl)
PAIR("d", int64_t, ".aqrl", ".aqrl", pair_d_both)

static uint64_t cells[8] __attribute__((aligned(64)));

#define LOAD_RESERVED(w, p) \
    ({ int64_t v_; __asm__ volatile("lr." w " %0, (%1)" : "=r"(v_) : "r"(p) : "memory"); v_; })
#define STORE_CONDITIONAL(w, p, v)                                                             \
    ({ int64_t f_; __asm__ volatile("sc." w " %0, %2, (%1)" : "=&r"(f_) : "r"(p), "r"(v) : "memory"); f_; })

__attribute__((noinline)) static void between(void) { mix(hash); }

static void reservations(void) {
    int32_t w = 5;
    int64_t d = 6;
    int failed = 0;
    for (int i = 0; i < 500; i++) {
        failed += pair_w(&w, i) + pair_w_aqrl(&w, -i) + pair_w_both(&w, i * 0x10001);
        failed += pair_d(&d, i) + pair_d_aqrl(&d, -i) + pair_d_both(&d, i * 0x100000001);
    }
    printf("pairs: %d %ld, failed %d\n", w, (long)d, failed);

    // Without a reservation, and with a used reservation.
    cells[0] = 1;
    LOAD_RESERVED("d", &cells[0]);
    printf("%ld", (long)STORE_CONDITIONAL("d", &cells[0], 2));
    printf(" %ld %lu", (long)STORE_CONDITIONAL("d", &cells[0], 3), (unsigned long)cells[0]);
    // For another address; then for the first one, whose reservation is gone.
    LOAD_RESERVED("d", &cells[0]);
    printf(" %ld", (long)STORE_CONDITIONAL("d", &cells[7], 4));
    printf(" %ld %lu %lu\n", (long)STORE_CONDITIONAL("d", &cells[0], 5), (unsigned long)cells[0],
           (unsigned long)cells[7]);
    // A later LR replaces an earlier one.
    LOAD_RESERVED("d", &cells[0]);
    LOAD_RESERVED("d", &cells[1]);
    printf("%ld", (long)STORE_CONDITIONAL("d", &cells[0], 6));
    LOAD_RESERVED("w", &cells[0]);
    LOAD_RESERVED("w", &cells[1]);
    printf(" %ld %lx\n", (long)STORE_CONDITIONAL("w", &cells[1], -2), (unsigned long)cells[1]);
    // LR of a negative word is sign-extended; SC.W takes the low half.
    cells[2] = 0xfedcba9889abcdef;
    printf("%lx", (unsigned long)LOAD_RESERVED("w", &cells[2]));
    printf(" %ld %lx\n", (long)STORE_CONDITIONAL("w", &cells[2], 0x123456789), (unsigned long)cells[2]);
    // Calls and other accesses in between.
    LOAD_RESERVED("d", &cells[3]);
    between();
    cells[5] = 9;
    printf("%ld %lu\n", (long)STORE_CONDITIONAL("d", &cells[3], 8), (unsigned long)cells[3]);
    // The hart itself changed the value.
    LOAD_RESERVED("d", &cells[4]);
    *(volatile uint64_t *)&cells[4] = 77;
    printf("%ld %lu\n", (long)STORE_CONDITIONAL("d", &cells[4], 8), (unsigned long)cells[4]);
    // A destination that is also the address or the value.
    register long at __asm__("a0") = (long)&cells[6];
    __asm__ volatile("lr.d a1, (a0)\n addi a1, a1, 5\n sc.d a0, a1, (a0)" : "+r"(at) : : "a1", "memory");
    printf("%ld %lu\n", at, (unsigned long)cells[6]);
}

#define AMO(name, w, order, type)                                                    \
    {                                                                                \
        type old;                                                                    \
        __asm__ volatile("amo" #name "." #w order " %0, %2, %1" : "=r"(old), "+A"(*p_##w) : "r"(v)); \
        mix((uint64_t)(int64_t)old);                                                 \
        mix((uint64_t)*p_##w);                                                       \
    }
#define ORDERS(name, w, type) \
    AMO(name, w, "", type) AMO(name, w, ".aq", type) AMO(name, w, ".rl", type) AMO(name, w, ".aqrl", type)
#define BOTH(name) ORDERS(name, w, int64_t) ORDERS(name, d, int64_t)

static void amos(void) {
    static uint64_t area[3] = {0x1111111111111111, 0x8000000000000000, 0x7777777777777777};
    uint32_t *p_w = (uint32_t *)&area[0] + 1;
    uint64_t *p_d = &area[1];
    static const uint64_t operands[] = {
        0, 1, ~0ull, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000, INT64_MAX, 1ull << 63,
        0x5555555555555555, 0x123456789abcdef0,
    };
    for (unsigned i = 0; i < sizeof operands / 8; i++)
        for (unsigned j = 0; j < sizeof operands / 8; j++) {
            uint64_t v = operands[j];
#define WITH(name) *p_w = (uint32_t)operands[i], *p_d = operands[i]; BOTH(name)
            WITH(swap) WITH(add) WITH(xor) WITH(and) WITH(or)
            WITH(min) WITH(max) WITH(minu) WITH(maxu)
        }
    // The neighbours are untouched; x0 as destination and as operand.
    mix(area[0]), mix(area[2]);
    __asm__ volatile("amoadd.d zero, %1, %0" : "+A"(*p_d) : "r"(5l));
    __asm__ volatile("amoswap.w.aqrl zero, zero, %0" : "+A"(*p_w));
    mix(*p_d), mix(*p_w);
    printf("amos %016lx %lx %lx\n", (unsigned long)hash, (unsigned long)area[0], (unsigned long)area[2]);
}

#define ACCESS(load, store, p)                                                        \
    {                                                                                 \
        uint64_t v;                                                                   \
        __asm__ volatile(load " %0, 0(%1)" : "=r"(v) : "r"(p) : "memory");            \
        mix(v);                                                                       \
        __asm__ volatile(store " %0, 0(%1)" : : "r"(v * 3 + 1), "r"(p) : "memory");   \
    }

static void misaligned(void) {
    unsigned char *area = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3 * 4096; i++) area[i] = (unsigned char)(i * 7);
    for (int at = 4096 - 12; at < 4096 + 12; at++) {
        ACCESS("lh", "sh", area + at)
        ACCESS("lhu", "sh", area + at)
        ACCESS("lw", "sw", area + at)
        ACCESS("lwu", "sw", area + at)
        ACCESS("ld", "sd", area + at)
        double d;
        float f;
        __asm__ volatile("fld %0, 0(%1)" : "=f"(d) : "r"(area + at) : "memory");
        __asm__ volatile("fsd %0, 3(%1)" : : "f"(d), "r"(area + at) : "memory");
        __asm__ volatile("flw %0, 1(%1)" : "=f"(f) : "r"(area + at) : "memory");
        __asm__ volatile("fsw %0, 6(%1)" : : "f"(f), "r"(area + at) : "memory");
    }
    for (int i = 4000; i < 4200; i++) mix(area[i]);
    printf("misaligned %016lx\n", (unsigned long)hash);
    munmap(area, 3 * 4096);
}

static sigjmp_buf faulted;
static void caught(int number, siginfo_t *info, void *context) {
    (void)context;
    printf("signal %d code %d at %ld\n", number, info->si_code,
           (long)((char *)info->si_addr - (char *)cells));
    siglongjmp(faulted, 1);
}

// A misaligned LR is refused at every address.
static void refused(void) {
    struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    for (volatile int at = 0; at < 16; at++) {
        if (sigsetjmp(faulted, 1)) continue;
        int64_t w = LOAD_RESERVED("w", (char *)cells + at);
        printf("lr.w at %d: %ld\n", at, (long)w);
        int64_t d = LOAD_RESERVED("d", (char *)cells + at);
        printf("lr.d at %d: %ld\n", at, (long)d);
    }
}

int main(void) {
    reservations();
    amos();
    misaligned();
    refused();
    return 0;
}
