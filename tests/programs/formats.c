// printf and scanf: every conversion, flag and length, integers and floats.
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <wchar.h>

static const double doubles[] = {
    0.0, -0.0, 1.0, -1.5, 0.1, 1e-5, 123456.789, 1e15, 1e16, 1e17, 1e100, -1e-100,
    DBL_MAX, DBL_MIN, 4.9406564584124654e-324, 3.141592653589793, 2.5, 3.5, 0.5,
};

static void integers(void) {
    const long long values[] = {0, 1, -1, 42, -42, INT_MAX, INT_MIN, LLONG_MAX, LLONG_MIN};
    for (unsigned i = 0; i < sizeof values / sizeof *values; i++) {
        long long v = values[i];
        printf("[%lld|%+lld|% lld|%08lld|%-22lld|%22lld|%'lld]\n", v, v, v, v, v, v, v);
        printf("[%llu|%llx|%#llX|%llo|%#llo|%hhd|%hd|%d|%.30lld]\n", (unsigned long long)v,
               v, v, v, v, (signed char)v, (short)v, (int)v, v);
        printf("[%jd|%zu|%td|%*d|%-*d|%.*d]\n", (intmax_t)v, (size_t)v, (ptrdiff_t)v, 12,
               (int)v, 12, (int)v, 7, (int)v);
    }
}

static void floats(void) {
    for (unsigned i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        double v = doubles[i];
        printf("[%f|%e|%g|%a|%+.3f|%015.4f|%-15.2e|%#.0f]\n", v, v, v, v, v, v, v, v);
        printf("[%.0f|%.1f|%.17g|%.40f|%F|%E|%G|%A|%Lf|%Lg]\n", v, v, v, v, v, v, v, v,
               (long double)v, (long double)v / 3);
    }
    printf("%f %e %g %a %5.1f|%-6F|%06f\n", INFINITY, -INFINITY, NAN, -NAN, INFINITY, -INFINITY,
           INFINITY);
}

static void scanning(void) {
    int a, used;
    unsigned b;
    double d;
    float f;
    char word[16], set[16];
    long long big;
    int n = sscanf("  -17 0xff 3.25e2 1e-3 hello abc123 -9223372036854775808 tail",
                   "%d %x %lf %f %15s %[a-z]%*d %lld%n", &a, &b, &d, &f, word, set, &big, &used);
    printf("%d: %d %u %f %g %s %s %lld %d\n", n, a, b, d, f, word, set, big, used);
    printf("%d\n", sscanf("x", "%d", &a));
    printf("%d\n", sscanf("nan inf", "%lf %f", &d, &f));
    printf("%f %f\n", d, f);
}

int main(void) {
    char buffer[32];
    integers();
    floats();
    scanning();
    printf("%c%c%5c|%-5c|%s|%10s|%-10s|%.3s|%%|%p\n", 'a', 0, 'b', 'c', "str", "right", "left",
           "truncate", (void *)0);
    printf("%ls %lc\n", L"wide", (wint_t)L'w');
    int length = snprintf(buffer, sizeof buffer, "%0100d", 7);
    printf("%d %s\n", length, buffer);
    printf("%2$s %1$s %3$*4$d\n", "one", "two", 3, 9);
    return 0;
}
