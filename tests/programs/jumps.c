// setjmp and longjmp: out of deep calls, in loops, coroutine-like, with signal masks.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

static jmp_buf top;
static sigjmp_buf masked;
static volatile int unwound;

__attribute__((noinline)) static int descend(int depth, int stop) {
    volatile char frame[64];
    frame[depth % 64] = (char)depth;
    if (depth == stop) longjmp(top, depth);
    int r = descend(depth + 1, stop) + frame[depth % 64];
    unwound++;
    return r;
}

__attribute__((noinline)) static int attempt(int stop) {
    volatile int local = stop * 3;
    double volatile fp = stop / 7.0;
    int code = setjmp(top);
    if (code == 0) {
        local++;
        return descend(1, stop);
    }
    return local * 1000 + code + (int)(fp * 7.0 + 0.5);
}

static void handler(int number) {
    (void)number;
    siglongjmp(masked, 5);
}

int main(void) {
    long total = 0;
    for (int stop = 1; stop <= 2000; stop += 7) total += attempt(stop);
    printf("total %ld unwound %d\n", total, unwound);

    jmp_buf again;
    volatile int count = 0;
    int value = setjmp(again);
    printf("setjmp gave %d\n", value);
    if (count++ < 3) longjmp(again, count == 2 ? 0 : count + 10);

    signal(SIGUSR1, handler);
    sigset_t now;
    int code = sigsetjmp(masked, 1);
    if (code == 0) raise(SIGUSR1);
    sigprocmask(SIG_BLOCK, NULL, &now);
    printf("siglongjmp gave %d, blocked %d\n", code, sigismember(&now, SIGUSR1));
    return 0;
}
