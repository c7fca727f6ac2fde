// Deep and mutual recursion, large frames, many arguments, variable arguments.
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

__attribute__((noinline)) static long ackermann(long m, long n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

static int odd(unsigned n);
__attribute__((noinline)) static int even(unsigned n) {
    volatile unsigned keep = n;
    return n == 0 ? 1 : odd(n - 1) + (keep != n);
}
__attribute__((noinline)) static int odd(unsigned n) {
    volatile unsigned keep = n;
    return n == 0 ? 0 : even(n - 1) + (keep != n);
}

__attribute__((noinline)) static unsigned large_frame(int depth) {
    unsigned char block[16384];
    memset(block, depth, sizeof block);
    unsigned below = depth ? large_frame(depth - 1) : 0;
    unsigned sum = 0;
    for (unsigned i = 0; i < sizeof block; i += 1000) sum += block[i];
    return below * 3 + sum;
}

__attribute__((noinline)) static double many(int a, double b, long c, float d, int e, double f,
                                             long g, float h, int i, double j, long k, float l,
                                             double m, double n, double o, double p, double q) {
    return a + b * 2 + (double)c * 3 + d * 4 + e * 5 + f * 6 + (double)g * 7 + h * 8 + i * 9 +
           j * 10 + (double)k * 11 + l * 12 + m + n / 2 + o / 4 + p / 8 + q / 16;
}

static double total(const char *kinds, ...) {
    va_list list, copy;
    va_start(list, kinds);
    va_copy(copy, list);
    double sum = 0;
    for (const char *k = kinds; *k; k++) switch (*k) {
        case 'i': sum += va_arg(list, int); break;
        case 'l': sum += (double)va_arg(list, long); break;
        case 'd': sum += va_arg(list, double); break;
        case 's': sum += (double)strlen(va_arg(list, char *)); break;
        }
    sum += va_arg(copy, int);
    va_end(copy);
    va_end(list);
    return sum;
}

struct small { int a; float b; };
struct pair { double x, y; };
struct big { long v[9]; };
__attribute__((noinline)) static struct small make_small(struct small s) { s.a++; s.b *= 2; return s; }
__attribute__((noinline)) static struct pair make_pair(struct pair p) { return (struct pair){p.y, p.x}; }
__attribute__((noinline)) static struct big make_big(struct big b, int n) {
    for (int i = 0; i < 9; i++) b.v[i] += n * i;
    return b;
}

int main(void) {
    printf("%ld %ld\n", ackermann(2, 300), ackermann(3, 6));
    printf("%d %d\n", even(50000), even(50001));
    printf("%u\n", large_frame(300));
    printf("%f\n", many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17));
    printf("%f\n", total("ildsdilsdli", 1, 2l, 3.5, "four", 5.25, 6, 7l, "eight", 9.125, 10l, 11));
    struct small s = make_small((struct small){1, 2.5f});
    struct pair p = make_pair((struct pair){1.5, -2});
    struct big b = {{1, 2, 3, 4, 5, 6, 7, 8, 9}};
    for (int i = 0; i < 100; i++) b = make_big(b, i);
    printf("%d %f %f %f %ld\n", s.a, s.b, p.x, p.y, b.v[8]);
    return 0;
}
