// A main loop that continues after its host frames are dropped: a signal handler returns,
// recursion uses up the host stack, longjmp leaves nested calls. And a function that only
// this file calls, whose loop signals interrupt.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static jmp_buf top;
static volatile int signals;

static void count(int signal) {
    (void)signal;
    signals++;
}

__attribute__((noinline)) static int deep(int n) {
    volatile char frame[8];
    frame[0] = (char)n;
    return n == 0 ? 0 : deep(n - 1) + 1 + (frame[0] & 0);
}

__attribute__((noinline)) static void leave(int n) {
    if (n == 0) longjmp(top, 5);
    leave(n - 1);
}

__attribute__((noinline)) static unsigned step(unsigned x) {
    return x * 1664525u + 1013904223u;
}

// Saves registers at its start, and uses as many values in its loop as there are argument
// registers.
__attribute__((noinline)) static unsigned churn(unsigned seed, unsigned rounds) {
    unsigned a = step(seed), b = step(a), c = step(b), d = step(c), e = step(d), f = step(e);
    for (unsigned i = 0; i < rounds; i++) {
        a += b ^ i;
        b = b << 5 | b >> 27;
        c ^= a + e;
        d += c >> 3;
        e = e * 69069u + d;
        f ^= e - b;
    }
    return step(a) ^ step(b) ^ step(c) ^ step(d) ^ step(e) ^ step(f);
}

static unsigned interrupted(void) {
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, count);
    setitimer(ITIMER_REAL, &often, 0);
    unsigned result = 0;
    for (int before = signals; signals < before + 20;) result = churn(7, 100000);
    setitimer(ITIMER_REAL, &never, 0);
    return result ^ churn(8, 10000);
}

int main(void) {
    volatile long total = 0;
    volatile unsigned state = 1;
    signal(SIGUSR1, count);
    for (volatile int i = 0; i < 40; i++) {
        if (i % 20 == 0) raise(SIGUSR1);
        if (i % 20 == 10) total += deep(150000);
        if (i % 20 == 15) {
            int result = setjmp(top);
            if (result == 0) leave(50);
            total += result;
        }
        unsigned x = state;
        for (int j = 0; j < 20000; j++) x = step(x);
        state = x;
    }
    printf("%u %ld %d\n", state, total, signals);
    printf("%u\n", interrupted());
    return 0;
}
