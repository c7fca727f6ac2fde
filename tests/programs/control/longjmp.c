// Non-local jumps: out of signal handlers, off an alternate stack, out of callbacks of
// the C library, with every callee-saved register in use.
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sigjmp_buf from_handler;
static jmp_buf from_callback, outer, inner;
static volatile int handled;

static void leave(int number) {
    handled++;
    siglongjmp(from_handler, number);
}

static void nested(int number) {
    handled++;
    if (number == SIGUSR1) raise(SIGUSR2);
    siglongjmp(from_handler, 100 + number);
}

static int is_blocked(int number) {
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    return sigismember(&now, number);
}

__attribute__((noinline)) static int dig(int depth, void (*bottom)(void)) {
    volatile int keep = depth;
    if (depth == 0) return bottom(), 0;
    return dig(depth - 1, bottom) + keep;
}

static void raise_it(void) { raise(SIGUSR1); }
static void jump_inner(void) { longjmp(inner, 3); }
static void jump_outer(void) { longjmp(outer, 4); }

static void signals(void) {
    signal(SIGUSR1, leave);
    for (volatile int i = 0; i < 200; i++) {
        int code = sigsetjmp(from_handler, 1);
        if (code == 0) dig(i, raise_it);
        if (code != SIGUSR1 || is_blocked(SIGUSR1)) printf("wrong at %d\n", i);
    }
    printf("handled %d\n", handled);

    // Without a saved mask, the signal stays blocked.
    int code = sigsetjmp(from_handler, 0);
    if (code == 0) dig(3, raise_it);
    printf("code %d, blocked %d\n", code, is_blocked(SIGUSR1));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_UNBLOCK, &set, NULL);

    // A handler interrupts a handler; one longjmp leaves both.
    struct sigaction action = {.sa_handler = nested};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    code = sigsetjmp(from_handler, 1);
    if (code == 0) dig(5, raise_it);
    printf("nested %d, handled %d, blocked %d %d\n", code, handled, is_blocked(SIGUSR1),
           is_blocked(SIGUSR2));

    static char area[65536];
    stack_t stack = {.ss_sp = area, .ss_size = sizeof area}, now;
    sigaltstack(&stack, NULL);
    action.sa_handler = leave;
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &action, NULL);
    for (volatile int i = 0; i < 50; i++) {
        code = sigsetjmp(from_handler, 1);
        if (code == 0) dig(i, raise_it);
    }
    sigaltstack(NULL, &now);
    printf("alternate stack: %d, handled %d, flags %d\n", code, handled, now.ss_flags);
}

static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    if (x == 777 || y == 777) longjmp(from_callback, 7);
    return (x > y) - (x < y);
}

static void callbacks(void) {
    static int values[2000];
    for (int i = 0; i < 2000; i++) values[i] = i * 7919 % 2003;
    values[1234] = 777;
    int code = setjmp(from_callback);
    if (code == 0) qsort(values, 2000, sizeof *values, compare);
    printf("out of qsort: %d\n", code);
}

// Two environments in one function; which one is used changes.
__attribute__((noinline)) static int two(void) {
    volatile int trace = 0, round = 0;
    int code = setjmp(outer);
    trace = trace * 10 + code;
    if (round < 3) {
        int deeper = setjmp(inner);
        trace = trace * 10 + deeper;
        round++;
        if (deeper == 0) dig(4, jump_inner);
        dig(round, jump_outer);
    }
    return trace;
}

// long saved(set, jump, environment): all callee-saved registers hold values across setjmp
// and must be restored. Returns a checksum of them.
long saved(int (*set)(jmp_buf), void (*jump)(jmp_buf, int), jmp_buf environment);
__asm__(
    ".macro each op\n .irp r, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11\n \\op \\r\n .endr\n .endm\n"
    ".macro floats op\n .irp r, fs0, fs1, fs2, fs3, fs4, fs5, fs6, fs7, fs8, fs9, fs10, fs11\n"
    " \\op \\r\n .endr\n .endm\n"
    ".macro save r\n addi t0, t0, 8\n sd \\r, 0(t0)\n .endm\n"
    ".macro restore r\n addi t0, t0, 8\n ld \\r, 0(t0)\n .endm\n"
    ".macro fsave r\n addi t0, t0, 8\n fsd \\r, 0(t0)\n .endm\n"
    ".macro frestore r\n addi t0, t0, 8\n fld \\r, 0(t0)\n .endm\n"
    ".macro number r\n addi t1, t1, 3\n mv \\r, t1\n .endm\n"
    ".macro fnumber r\n addi t1, t1, 3\n fcvt.d.l \\r, t1\n .endm\n"
    ".macro wipe r\n li \\r, -1\n .endm\n"
    ".macro fwipe r\n fmv.d.x \\r, zero\n .endm\n"
    ".macro fold r\n mul a0, a0, t1\n add a0, a0, \\r\n .endm\n"
    ".macro ffold r\n fcvt.l.d t2, \\r\n fold t2\n .endm\n"
    ".text\n.globl saved\n.type saved, @function\n"
    "saved: addi sp, sp, -224\n sd ra, 0(sp)\n sd s0, 8(sp)\n sd s1, 16(sp)\n"
    "addi t0, sp, 16\n each save\n floats fsave\n"
    "mv s0, a1\n mv s1, a2\n li t1, 1\n each number\n floats fnumber\n"
    "mv t0, a0\n mv a0, a2\n jalr t0\n bnez a0, 1f\n"
    "each wipe\n floats fwipe\n mv a0, s1\n li a1, 9\n jalr s0\n"
    "1: li t1, 13\n each fold\n floats ffold\n"
    "addi t0, sp, 16\n each restore\n floats frestore\n"
    "ld ra, 0(sp)\n ld s0, 8(sp)\n ld s1, 16(sp)\n addi sp, sp, 224\n ret\n"
    ".size saved, . - saved\n");

int main(void) {
    signals();
    callbacks();
    printf("two environments: %d\n", two());
    for (int i = 0; i < 3; i++) printf("saved %lx\n", saved(_setjmp, longjmp, outer));
    return 0;
}
