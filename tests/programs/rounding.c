// Instructions that name a rounding mode, conversions out of range, and fclass, in a loop:
//
//   rounding ROUNDS [handler]    with a handler of SIGSEGV, which selects precise code
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t hash = 14695981039346656037ull;
static void mix(uint64_t v) { hash = (hash ^ v) * 1099511628211ull; }

#define TO_INTEGER(text, value)                                              \
    ({                                                                       \
        uint64_t result;                                                     \
        __asm__ volatile("fcvt." text : "=r"(result) : "f"(value));          \
        result;                                                              \
    })
// In the name of an operand is the rounding mode.
#define CONVERT(type, format, mode, value)                                   \
    TO_INTEGER(#type "." #format " %0, %1, " #mode, value)
#define ALL_MODES(type, format, value)                                       \
    mix(CONVERT(type, format, rne, value));                                  \
    mix(CONVERT(type, format, rtz, value));                                  \
    mix(CONVERT(type, format, rdn, value));                                  \
    mix(CONVERT(type, format, rup, value));                                  \
    mix(CONVERT(type, format, rmm, value));                                  \
    mix(CONVERT(type, format, dyn, value))

static const double values[] = {
    0.5, -0.5, 2.5, -1.5, 1e10, -1e10, 1e19, 1e30, -1e30, INFINITY, -INFINITY, NAN, 2147483647.5,
    -2147483648.5, 0x1p63, -0x1p63, 4.9e-324,
};

static uint64_t flags(void) {
    uint64_t flags;
    __asm__ volatile("frflags %0\n\tfsflags zero" : "=r"(flags));
    return flags;
}

static void doubles(double value) {
    ALL_MODES(w, d, value);
    ALL_MODES(wu, d, value);
    ALL_MODES(l, d, value);
    ALL_MODES(lu, d, value);
    uint64_t class, bits;
    __asm__ volatile("fclass.d %0, %1" : "=r"(class) : "f"(value));
    mix(class);
    double sum, product;
    __asm__ volatile("fadd.d %0, %1, %2, rne" : "=f"(sum) : "f"(value), "f"(0.1));
    __asm__ volatile("fmul.d %0, %1, %2, rne" : "=f"(product) : "f"(sum), "f"(1.1));
    memcpy(&bits, &product, 8);
    mix(bits);
    double floor;
    uint64_t integer = CONVERT(l, d, rdn, value * 0x1p-12);
    if (integer + (1ull << 52) < 1ull << 53) {
        __asm__ volatile("fcvt.d.l %0, %1, rdn" : "=f"(floor) : "r"(integer));
        memcpy(&bits, &floor, 8);
        mix(bits);
    }
    mix(flags());
}

static void singles(float value) {
    ALL_MODES(w, s, value);
    ALL_MODES(wu, s, value);
    ALL_MODES(l, s, value);
    ALL_MODES(lu, s, value);
    uint64_t class;
    uint32_t bits;
    __asm__ volatile("fclass.s %0, %1" : "=r"(class) : "f"(value));
    mix(class);
    float quotient;
    __asm__ volatile("fdiv.s %0, %1, %2, rne" : "=f"(quotient) : "f"(value), "f"(3.0f));
    memcpy(&bits, &quotient, 4);
    mix(bits);
    mix(flags());
}

#define NEAREST(op, a, b)                                                    \
    ({                                                                       \
        double result;                                                       \
        __asm__ volatile(op ".d %0, %1, %2, rne" : "=f"(result) : "f"(a), "f"(b)); \
        result;                                                              \
    })
#define CURRENT(op, a, b)                                                    \
    ({                                                                       \
        double result;                                                       \
        __asm__ volatile(op ".d %0, %1, %2" : "=f"(result) : "f"(a), "f"(b)); \
        result;                                                              \
    })

__attribute__((noinline)) static double callee(double a, uint64_t *count) {
    *count += 3;
    double sum = CURRENT("fadd", a, 0.7);
    return sum > 10 ? NEAREST("fdiv", sum, 3.0) : NEAREST("fmul", sum, 1.7);
}

// The nearest mode beside another one of frm: translated code leaves in the middle of the function, with
// integers, sums and a NaN in registers.
__attribute__((noinline)) static void beside(uint64_t mode, uint64_t steps) {
    double nearest = 0.1, current = 0.1, nan = NAN, third = 1;
    uint64_t count = mode, bits[4];
    for (uint64_t step = 0; step < steps; step++) {
        __asm__ volatile("fsrm %0" : : "r"(step % 5 == 3 ? 0 : mode));
        current = CURRENT("fadd", current, 0.1);
        nan = CURRENT("fmul", -nan, current);
        nearest = NEAREST("fadd", nearest, 0.1);
        count = count * 31 + step;
        third = NEAREST("fdiv", nearest, current);
        if (step % 3 == 0) third = callee(CURRENT("fsub", third, 0.2), &count);
        __asm__ volatile("fsrmi 2");
        current = NEAREST("fmul", current, 1.1);
        nearest = CURRENT("fmul", nearest, 0.9);
    }
    __asm__ volatile("fsrmi 0");
    memcpy(bits, (double[]){nearest, current, nan, third}, sizeof bits);
    for (int i = 0; i < 4; i++) mix(bits[i]);
    mix(count);
    mix(flags());
}

static void give_up(int number) { _Exit(number); }

int main(int argc, char **argv) {
    if (argc > 2) signal(SIGSEGV, give_up);
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    // RMM, the mode 4, leaves all code to the interpreter.
    for (uint64_t mode = 0; mode < 5; mode++) beside(mode, 50);
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            double value = values[i] * (1 + round * 0x1p-20);
            doubles(value);
            singles((float)value);
        }
    }
    printf("%016llx\n", (unsigned long long)hash);
    return 0;
}
