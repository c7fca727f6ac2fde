// A main loop that goes on after its host frames are gone: a signal handler returned,
// recursion used up the host stack, longjmp came out of nested calls.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

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
    return 0;
}
