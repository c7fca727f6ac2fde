// Floating point: arithmetic, rounding modes, flags, conversions, NaNs, fma, libm.
#include <fenv.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const double values[] = {
    0.0, -0.0, 1.0, -1.0, 1.0 / 3, -2.0 / 3, 1e308, -1e308, 1e-308, 4.9e-324, 0.5, 1.5, 2.5, -2.5,
    16777217.0, 9007199254740993.0, 2147483647.5, -2147483648.5, 4294967295.9, 9.3e18, 1.9e19,
    INFINITY, -INFINITY, NAN,
};
#define COUNT (int)(sizeof values / sizeof *values)

static uint64_t bits(double d) {
    uint64_t u;
    memcpy(&u, &d, 8);
    return u;
}
static uint32_t bits32(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static uint64_t hash = 14695981039346656037ull;
static void mix(uint64_t v) { hash = (hash ^ v) * 1099511628211ull; }

static void arithmetic(volatile double a, volatile double b) {
    volatile float fa = (float)a, fb = (float)b;
    feclearexcept(FE_ALL_EXCEPT);
    mix(bits(a + b));
    mix(bits(a - b));
    mix(bits(a * b));
    mix(bits(a / b));
    mix(bits(sqrt(a)));
    mix(bits(fma(a, b, 0.1)));
    mix(bits(fmin(a, b)));
    mix(bits(fmax(a, b)));
    mix((uint64_t)fetestexcept(FE_ALL_EXCEPT));
    mix(bits32(fa + fb));
    mix(bits32(fa * fb));
    mix(bits32(fa / fb));
    mix(bits32(sqrtf(fa)));
    mix(bits32(fmaf(fa, fb, 0.1f)));
    mix((uint64_t)(a < b) | (uint64_t)(a <= b) << 1 | (uint64_t)(a == b) << 2);
    mix((uint64_t)fetestexcept(FE_ALL_EXCEPT));
}

// A double of any bits, signalling NaNs and NaNs with payloads included.
static const uint64_t odd[] = {
    0x7ff0000000000001, 0xfff4000000000002, 0x7ff8000000000000, 0xfff8000000000123,
    0xffffffff7f800001, 0xffffffffffc00000, 0xffffffff3f800000, 0x7ff0000000000000, 0x3ff0000000000000, 0,
};
#define ODD (int)(sizeof odd / sizeof *odd)

// NaNs between operations, in the other format or as bits; comparisons that restore the
// flags.
static void chains(uint64_t a, uint64_t b, unsigned long flags) {
    uint64_t r[8];
    unsigned long f[4];
    __asm__ volatile(
        "fmv.d.x fa0, %[a]\n fmv.d.x fa1, %[b]\n fsflags %[flags]\n"
        "fmul.d fa2, fa0, fa1\n fsub.d fa3, fa2, fa0\n fmv.x.d %[r0], fa3\n"
        "fadd.s fa4, fa2, fa3\n fmv.x.d %[r1], fa4\n"
        "fadd.s fa5, fa0, fa1\n fadd.d fa6, fa5, fa0\n fmv.x.d %[r2], fa6\n"
        "fsgnjn.d fa7, fa6, fa6\n fmv.x.d %[r3], fa7\n"
        "fcvt.s.d ft0, fa2\n fmul.s ft1, ft0, fa0\n fcvt.d.s ft2, ft1\n fmv.x.d %[r4], ft1\n"
        "fmin.d ft3, ft2, fa2\n fmv.x.d %[r5], ft3\n fclass.d %[r6], fa2\n"
        "frflags %[f0]\n"
        : [r0] "=&r"(r[0]), [r1] "=&r"(r[1]), [r2] "=&r"(r[2]), [r3] "=&r"(r[3]), [r4] "=&r"(r[4]),
          [r5] "=&r"(r[5]), [r6] "=&r"(r[6]), [f0] "=&r"(f[0])
        : [a] "r"(a), [b] "r"(b), [flags] "r"(flags)
        : "fa0", "fa1", "fa2", "fa3", "fa4", "fa5", "fa6", "fa7", "ft0", "ft1", "ft2", "ft3");
    __asm__ volatile(
        "fmv.d.x fa0, %[a]\n fmv.d.x fa1, %[b]\n fsflags %[flags]\n"
        "frflags t0\n flt.d %[r7], fa0, fa1\n fsflags t0\n frflags %[f1]\n"
        "frflags t1\n feq.d t2, fa0, fa1\n fsflags t1\n frflags %[f2]\n"
        "fmul.d fa2, fa0, fa1\n frflags t0\n fle.d t3, fa2, fa1\n fsflags t0\n frflags %[f3]\n"
        "slli t2, t2, 1\n slli t3, t3, 2\n or %[r7], %[r7], t2\n or %[r7], %[r7], t3\n"
        : [r7] "=&r"(r[7]), [f1] "=&r"(f[1]), [f2] "=&r"(f[2]), [f3] "=&r"(f[3])
        : [a] "r"(a), [b] "r"(b), [flags] "r"(flags)
        : "t0", "t1", "t2", "t3", "fa0", "fa1", "fa2");
    for (int i = 0; i < 8; i++) mix(r[i]);
    for (int i = 0; i < 4; i++) mix(f[i]);
}

static void conversions(volatile double a) {
    volatile float f = (float)a;
    feclearexcept(FE_ALL_EXCEPT);
    mix((uint64_t)lrint(a));
    mix((uint64_t)llrintf(f));
    mix((uint64_t)(int64_t)nearbyint(fmod(a, 1000.0)));
    mix((uint64_t)fpclassify(a) * 16 + (uint64_t)!!signbit(a));
    mix((uint64_t)fetestexcept(FE_ALL_EXCEPT & ~FE_INEXACT));
    for (int64_t i = -3; i < 3; i++) {
        volatile int64_t big = INT64_MAX / 3 * i + 12345;
        volatile uint64_t unsigned_big = (uint64_t)big;
        mix(bits((double)big));
        mix(bits32((float)big));
        mix(bits((double)unsigned_big));
        mix(bits32((float)unsigned_big));
        mix(bits((double)(int32_t)big));
    }
}

int main(void) {
    const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    for (int m = 0; m < 4; m++) {
        fesetround(modes[m]);
        for (int i = 0; i < COUNT; i++) {
            conversions(values[i]);
            for (int j = 0; j < COUNT; j++) arithmetic(values[i], values[j]);
        }
        printf("mode %d %d hash %016llx\n", m, fegetround() == modes[m],
               (unsigned long long)hash);
    }
    fesetround(FE_TONEAREST);
    for (int i = 0; i < ODD; i++)
        for (int j = 0; j < ODD; j++)
            for (unsigned long flags = 0; flags < 32; flags++) chains(odd[i], odd[j], flags);
    printf("chains %016llx\n", (unsigned long long)hash);
    double x = 0.3;
    printf("%.17g %.17g %.17g %.17g %.17g\n", sin(x), exp(x), log(x), pow(x, 2.7), atan2(x, 2));
    printf("%.17g %.17g %.17g %.17g\n", tgamma(4.5), erf(x), cbrt(27.1), hypot(3, 4.0001));
    printf("%.9g %.9g %.9g\n", sinf(0.7f), expf(1.1f), powf(2.0f, 0.5f));
    double sum = 0;
    for (int i = 1; i < 200000; i++) sum += 1.0 / ((double)i * i);
    printf("%.17g\n", sum);
    long double wide = 1.0L / 3;
    for (int i = 0; i < 10; i++) wide = wide * 1.7L - 0.2L;
    printf("%.33Lg\n", wide);
    return 0;
}
