// Runs the kernels over directed and random operands:
//
//   cases SEED RANDOM STRIDE              a line per kernel and rounding mode: checksum
//   cases SEED RANDOM STRIDE LINE         that line's checksums, one per block of cases
//   cases SEED RANDOM STRIDE LINE BLOCK   that block's cases: operands, results, flags
//
// The directed cases are every STRIDE-th combination of the special values. RANDOM random
// cases follow. There is no C library, so there is little code to translate.
#include <stddef.h>
#include <stdint.h>

enum { BLOCK = 256 };
typedef uint64_t cases[BLOCK][3];

struct kernel {
    void (*run)(const cases, cases, size_t);
    const char *name, *kinds;
};
extern const struct kernel __start_kernels[], __stop_kernels[];

// Registers with a double: zeros, ones and their neighbours, limits of both formats and
// of the integers, halves, NaNs.
static const uint64_t doubles[] = {
    0, 1ull << 63, 0x3ff0000000000000, 0xbff0000000000000, 0x3ff0000000000001, 0x3fefffffffffffff,
    0x3fe0000000000000, 0xbfe0000000000001, 0x3ff8000000000000, 0xc004000000000000,
    1, 0x8000000000000001, 0x000fffffffffffff, 0x0010000000000000, 0x8010000000000000,
    0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000, 0xfff0000000000000,
    0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000001, 0xfff7ffffffffffff,
    0x7fffffffffffffff,
    // 2^31, 2^32, 2^53, 2^63, 2^64 and their neighbours.
    0x41dfffffffc00000, 0x41dfffffffe00000, 0x41e0000000000000, 0xc1e0000000000000,
    0xc1e0000000100000, 0xc1e0000000200000, 0x41efffffffe00000, 0x41effffffff00000,
    0x41f0000000000000, 0x4340000000000001, 0x43dfffffffffffff, 0x43e0000000000000,
    0xc3e0000000000000, 0xc3e0000000000001, 0x43efffffffffffff, 0x43f0000000000000,
    // Limits of binary32: largest, its rounding, smallest normal and subnormal, halves.
    0x47efffffe0000000, 0x47efffffefffffff, 0x47effffff0000000, 0x3810000000000000,
    0x380fffffffffffff, 0x380fffffe0000000, 0x36a0000000000000, 0x3690000000000000,
    0x3690000000000001, 0x3ff0000010000000, 0x3ff0000030000000,
    // Rounding to integers: -1/2, the number below 1/2, 2^52 - 1/2, a negative 2^32 - 1.
    0xbfe0000000000000, 0x3fdfffffffffffff, 0x432fffffffffffff, 0xc1efffffffe00000,
};

#define BOXED(single) (0xffffffff00000000 | (single))
static const uint64_t singles[] = {
    BOXED(0), BOXED(0x80000000), BOXED(0x3f800000), BOXED(0xbf800000), BOXED(0x3f800001),
    BOXED(0x3f7fffff), BOXED(0x3f000000), BOXED(0xbf000001), BOXED(0x3fc00000), BOXED(0xc0200000),
    BOXED(1), BOXED(0x80000001), BOXED(0x007fffff), BOXED(0x00800000), BOXED(0x80800000),
    BOXED(0x00800001), BOXED(0x1f800000), BOXED(0x20000001), BOXED(0x7f7fffff), BOXED(0xff7fffff),
    BOXED(0x7f800000), BOXED(0xff800000), BOXED(0x7fc00000), BOXED(0xffc00000), BOXED(0x7f800001),
    BOXED(0xffbfffff), BOXED(0x7fffffff), BOXED(0x4effffff), BOXED(0x4f000000), BOXED(0xcf000000),
    BOXED(0xcf000001), BOXED(0x4f7fffff), BOXED(0x4f800000), BOXED(0x4b800001), BOXED(0x5effffff),
    BOXED(0x5f000000), BOXED(0xdf000000), BOXED(0xdf000001), BOXED(0x5f7fffff), BOXED(0x5f800000),
    BOXED(0xbf000000), BOXED(0x3effffff), BOXED(0x4affffff),
    // Not boxed: the canonical NaN.
    0x3f800000, 0xfffffffe3f800000, 0x7fffffff00000000, 0x3ff0000000000000,
};

static const uint64_t integers[] = {
    0, 1, ~0ull, 2, 3, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0x100000000,
    0xffffffff80000000, 0xffffffff7fffffff, 0x00ffffff, 0x01000001, 0x01000003, 0x7fffff80,
    0x7fffffc0, 0x7fffffbf, 0xffffff80, 0xffffff7f, 1ull << 53, (1ull << 53) + 1,
    (1ull << 53) + 3, (1ull << 54) + 2, INT64_MAX, 1ull << 63, (1ull << 63) + 1, INT64_MAX - 511,
    INT64_MAX - 512, INT64_MAX - 513, 0xfffffffffffff800, 0xfffffffffffffbff, 0xfffffffffffffc00,
    0xffffff0000000000, 0xffffff7fffffffff, 0xffffff8000000000, 0xffffff8000000001,
    0x7fffff4000000000, 0x8000008000000000, 0x8000008000000001, 0xff12345612345678, 31, 96, 127,
};

#define COUNT(table) (sizeof table / sizeof *table)
static const uint64_t *table(char kind, size_t *count) {
    switch (kind) {
    case 'd': *count = COUNT(doubles); return doubles;
    case 's': *count = COUNT(singles); return singles;
    default: *count = COUNT(integers); return integers;
    }
}

static uint64_t scramble(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

// A number of a format: exponents anywhere, near 1, or at the ends; mantissas anywhere,
// with few bits, or almost all.
static uint64_t number(uint64_t r, unsigned mantissa_bits, unsigned exponent_bits) {
    uint64_t bits = scramble(r), bias = (1ull << (exponent_bits - 1)) - 1;
    uint64_t exponent = bits >> 40 & ((1ull << exponent_bits) - 1);
    uint64_t mantissa = bits & ((1ull << mantissa_bits) - 1);
    switch (r & 7) {
    case 0: case 1: exponent = bias - 4 + exponent % 9; break;
    case 2: exponent = bias + exponent % 70; break;
    case 3: exponent = exponent % 4; break;
    case 4: exponent = 2 * bias + 1 - exponent % 4; break;
    }
    switch (r >> 3 & 7) {
    case 0: mantissa = 1ull << (bits >> 58) % mantissa_bits; break;
    case 1: mantissa = ~(1ull << (bits >> 58) % mantissa_bits); break;
    case 2: mantissa &= ~0ull << (bits >> 58) % mantissa_bits; break;
    }
    mantissa &= (1ull << mantissa_bits) - 1;
    return (r >> 6 & 1) << (mantissa_bits + exponent_bits) | exponent << mantissa_bits | mantissa;
}

static uint64_t any(char kind, uint64_t r) {
    size_t count;
    const uint64_t *special = table(kind, &count);
    if (r >> 60 == 0) return special[r % count];
    switch (kind) {
    case 'd': return number(r, 52, 11);
    case 's': return BOXED(number(r, 23, 8));
    default: return (int64_t)scramble(r) >> (r & 63);
    }
}

static uint64_t seed, random_cases, stride;

static uint64_t directed(const char *kinds) {
    uint64_t product = 1;
    for (; *kinds; kinds++) {
        size_t count;
        table(*kinds, &count);
        product *= count;
    }
    return (product + stride - 1) / stride;
}

static void fill(const char *kinds, uint64_t number, uint64_t limit, uint64_t operands[3]) {
    uint64_t index = number * stride;
    for (unsigned i = 0; i < 3; i++) operands[i] = scramble(number + i);
    for (unsigned i = 0; kinds[i]; i++) {
        size_t count;
        const uint64_t *special = table(kinds[i], &count);
        operands[i] = number < limit ? special[index % count]
                                     : any(kinds[i], scramble(seed + number * 3 + i));
        index /= count;
    }
}

static char output[1 << 14];
static size_t length;

static long system_call(long number, long a, long b, long c) {
    register long a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c;
    register long a7 __asm__("a7") = number;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
    return a0;
}

static void flush(void) {
    for (size_t done = 0; done < length;) {
        long count = system_call(64, 1, (long)(output + done), (long)(length - done));
        if (count <= 0) system_call(94, 1, 0, 0);
        done += (size_t)count;
    }
    length = 0;
}

static void put(char c) {
    if (length == sizeof output) flush();
    output[length++] = c;
}
static void text(const char *s) { while (*s) put(*s++); }
static void hex(uint64_t value, int digits) {
    while (digits-- > 0) put("0123456789abcdef"[value >> digits * 4 & 15]);
}

static cases in, out;

// Runs one block and gives its checksum. The interpreter, which runs RMM, goes on to translated code
// at calls.
__attribute__((noinline)) static uint64_t block(const struct kernel *kernel, uint64_t mode, uint64_t first, uint64_t end,
                      uint64_t limit) {
    size_t count = end - first < BLOCK ? end - first : BLOCK;
    for (size_t i = 0; i < count; i++) fill(kernel->kinds, first + i, limit, in[i]);
    // Only the kernel runs in this mode: RMM makes the interpreter execute all code.
    __asm__ volatile("fscsr %0" : : "r"(mode << 5) : "memory");
    kernel->run((const void *)in, out, count);
    __asm__ volatile("fscsr zero" : : : "memory");
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        for (int j = 0; j < 3; j++) sum = (sum ^ out[i][j]) * 0x100000001b3 + (sum >> 31);
    return sum;
}

static void run(const struct kernel *kernel, uint64_t mode, uint64_t chosen) {
    uint64_t limit = directed(kernel->kinds), end = limit + random_cases, sum = 0;
    for (uint64_t number = 0; number * BLOCK < end; number++) {
        if (chosen != ~0ull && chosen != ~1ull && chosen != number) continue;
        uint64_t one = block(kernel, mode, number * BLOCK, end, limit);
        sum = sum * 31 + one;
        if (chosen == ~1ull) {
            hex(one, 16);
            put('\n');
        }
        for (size_t i = 0; chosen == number && i < BLOCK && number * BLOCK + i < end; i++) {
            for (int j = 0; j < 3; j++) hex(in[i][j], 16), put(' ');
            text("-> "), hex(out[i][0], 16), put(' '), hex(out[i][1], 16), put(' ');
            hex(out[i][2], 2), put('\n');
        }
    }
    if (chosen != ~0ull) return;
    hex(sum, 16), text(" frm "), put((char)('0' + mode)), text(": "), text(kernel->name), put('\n');
}

static uint64_t argument(char **arguments, int index, int count, uint64_t otherwise) {
    if (index >= count) return otherwise;
    uint64_t value = 0;
    for (const char *p = arguments[index]; *p; p++) value = value * 10 + (uint64_t)(*p - '0');
    return value;
}

static int is_dynamic(const struct kernel *kernel) {
    // Kernels that use the dynamic mode: their names have it, or they have several instructions.
    for (const char *p = kernel->name; *p; p++)
        if (*p == ';' || (p[0] == 'd' && p[1] == 'y') || (p[0] == 'b' && p[1] == 'e')) return 1;
    return 0;
}

// Whether the kernel names the nearest mode, for which translated code compares frm.
static int is_nearest(const struct kernel *kernel) {
    for (const char *p = kernel->name; *p; p++)
        if (p[0] == 'r' && p[1] == 'n' && p[2] == 'e') return 1;
    return 0;
}

void run_all(long *stack) {
    int count = (int)stack[0];
    char **arguments = (char **)(stack + 1);
    seed = argument(arguments, 1, count, 1);
    random_cases = argument(arguments, 2, count, 1000);
    stride = argument(arguments, 3, count, 1);
    uint64_t chosen_line = argument(arguments, 4, count, ~0ull);
    uint64_t part = argument(arguments, 5, count, chosen_line == ~0ull ? ~0ull : ~1ull);
    uint64_t line = 0, other = 0;
    for (const struct kernel *kernel = __start_kernels; kernel < __stop_kernels; kernel++) {
        // A static mode overrides the dynamic one.
        uint64_t first = 0, last = 4;
        if (!is_nearest(kernel) && !is_dynamic(kernel)) first = last = other++ % 4;
        for (uint64_t mode = first; mode <= last; mode++, line++)
            if (chosen_line == ~0ull || chosen_line == line) run(kernel, mode, part);
    }
    flush();
    system_call(94, 0, 0, 0);
}

__asm__(".globl _start\n_start:\n.option push\n.option norelax\nlla gp, __global_pointer$\n"
        ".option pop\nmv a0, sp\nandi sp, sp, -16\ncall run_all\n");
