// Fast Fourier transform of complex doubles, radix 2, forwards and back.
#include "kernels.h"

enum { LOG2 = 14, LENGTH = 1 << LOG2 };

typedef struct {
    double re, im;
} complex_number;

// roots[k] is the angle 2πk / LENGTH. Angles are halved and added, because libm's sine
// may differ between libraries, but a square root does not.
static void make_roots(complex_number *roots) {
    roots[0] = (complex_number){1, 0};
    double cosine = 0, sine = 1;
    for (unsigned step = LENGTH / 4; step > 0; step /= 2) {
        for (unsigned i = 0; i < LENGTH / 2; i += 2 * step)
            roots[i + step] = (complex_number){
                roots[i].re * cosine - roots[i].im * sine,
                roots[i].re * sine + roots[i].im * cosine,
            };
        cosine = sqrt((1 + cosine) / 2);
        sine /= 2 * cosine;
    }
}

static NOINLINE void transform(complex_number *data, const complex_number *roots, double sign) {
    for (unsigned i = 0, reversed = 0; i < LENGTH; i++) {
        if (i < reversed) {
            complex_number other = data[i];
            data[i] = data[reversed];
            data[reversed] = other;
        }
        unsigned bit = LENGTH / 2;
        while (reversed & bit)
            reversed ^= bit, bit /= 2;
        reversed |= bit;
    }
    for (unsigned half = 1; half < LENGTH; half *= 2)
        for (unsigned start = 0; start < LENGTH; start += 2 * half)
            for (unsigned k = 0; k < half; k++) {
                complex_number root = roots[k * (LENGTH / 2 / half)];
                complex_number *low = &data[start + k], *high = low + half;
                double imaginary = sign * root.im;
                double re = high->re * root.re - high->im * imaginary;
                double im = high->re * imaginary + high->im * root.re;
                high->re = low->re - re, high->im = low->im - im;
                low->re += re, low->im += im;
            }
}

void fft(unsigned rounds) {
    static complex_number data[LENGTH], roots[LENGTH / 2];
    make_roots(roots);
    uint32_t random = 3;
    for (unsigned i = 0; i < LENGTH; i++)
        data[i] = (complex_number){next_fraction(&random), next_fraction(&random)};
    for (unsigned round = 0; round < rounds; round++) {
        transform(data, roots, -1);
        // A low-pass filter, so that every round has a different input.
        for (unsigned i = LENGTH / 4; i < 3 * LENGTH / 4; i++)
            data[i].re *= 0.75, data[i].im *= 0.75;
        transform(data, roots, 1);
        for (unsigned i = 0; i < LENGTH; i++)
            data[i].re /= LENGTH, data[i].im /= LENGTH;
    }
    printf("fft %016llx %.17g\n", (unsigned long long)checksum(data, sizeof data), data[99].re);
}
