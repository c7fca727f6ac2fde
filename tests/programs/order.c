// Litmus tests of RVWMO: outcomes that the specification forbids must never appear, whichever
// CPU the threads run on. The accesses are assembly, so the test covers the translation of exactly
// these instructions. The names are from the literature about litmus tests: MP is message passing,
// SB store buffering, LB load buffering, and so on.
//
//   order [ROUNDS [counts]]
//
// In each round, every thread executes its part of a test on each cell of an array, so that the
// threads meet in some cells. With `counts`, the program prints how often SB without a fence had
// the allowed outcome.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELLS 1024
// Number of cells after which the threads meet again.
#define RUN 128
#define THREADS 4

struct location {
    long value;
    // The address of x, in z: the compiler cannot know that the addresses are equal.
    long *alias;
    long apart[14];
};

struct cell {
    struct location x, y, z;
    // The values that each thread read.
    long seen[THREADS][2];
} __attribute__((aligned(128)));

typedef void part(struct cell *cell, long *seen);

struct test {
    const char *name;
    part *parts[THREADS];
    // Whether the values read and the final values of x, y and z are forbidden.
    int (*forbidden)(const struct cell *cell);
    int allowed;
};

#ifdef __riscv
// r0 and r1 are the values that the thread reads; t and u are free. x, y and z are addresses.
#define PART(name, code)                                                                       \
    static void name(struct cell *cell, long *seen) {                                          \
        long r0 = -1, r1 = -1, t = 0, u = 0;                                                   \
        asm volatile(code                                                                      \
                     : [r0] "+&r"(r0), [r1] "+&r"(r1), [t] "+&r"(t), [u] "+&r"(u)              \
                     : [x] "r"(&cell->x.value), [y] "r"(&cell->y.value),                       \
                       [z] "r"(&cell->z.value), [one] "r"(1L), [two] "r"(2L)                   \
                     : "memory");                                                              \
        seen[0] = r0;                                                                          \
        seen[1] = r1;                                                                          \
    }
#else
// On other architectures, only the table is needed.
#define PART(name, code)                                                                       \
    static void name(struct cell *cell, long *seen) { (void)cell, (void)seen; }
#endif

#define W(where, value) "sd %[" #value "], 0(%[" #where "])\n"
#define R(where, register) "ld %[" #register "], 0(%[" #where "])\n"
// Depends on r0 without use of its value.
#define NOTHING_OF(register) "xor %[t], %[" #register "], %[" #register "]\n"
#define R_AFTER(register, where, result)                                                       \
    NOTHING_OF(register) "add %[t], %[t], %[" #where "]\nld %[" #result "], 0(%[t])\n"
#define W_DATA(register, where)                                                                \
    NOTHING_OF(register) "addi %[t], %[t], 1\nsd %[t], 0(%[" #where "])\n"
#define W_ADDR(register, where)                                                                \
    NOTHING_OF(register) "add %[t], %[t], %[" #where "]\nsd %[one], 0(%[t])\n"
// Depends on a branch; both edges lead there.
#define W_CTRL(register, where) "bnez %[" #register "], 1f\n1:\n" W(where, one)
#define FENCE(predecessor, successor) "fence " #predecessor ", " #successor "\n"
#define FENCE_TSO "fence.tso\n"
#define AMO_W(order, where) "amoswap.d" order " zero, %[one], (%[" #where "])\n"
#define AMO_R(order, where, register) "amoadd.d" order " %[" #register "], zero, (%[" #where "])\n"
#define LR(order, where, register) "lr.d" order " %[" #register "], (%[" #where "])\n"
#define SC_W(order, where)                                                                     \
    "2: lr.d %[t], (%[" #where "])\nsc.d" order " %[u], %[one], (%[" #where "])\nbnez %[u], 2b\n"

// Writers of x, then y.
PART(xy_fence, W(x, one) FENCE(rw, rw) W(y, one))
PART(xy_fence_ww, W(x, one) FENCE(w, w) W(y, one))
PART(xy_fence_rww, W(x, one) FENCE(rw, w) W(y, one))
PART(xy_tso, W(x, one) FENCE_TSO W(y, one))
PART(xy_amo_rl, W(x, one) AMO_W(".rl", y))
PART(xy_amo_aqrl, W(x, one) AMO_W(".aqrl", y))
PART(xy_sc_rl, W(x, one) SC_W(".rl", y))
// Readers of y, then x.
PART(yx_fence, R(y, r0) FENCE(rw, rw) R(x, r1))
PART(yx_fence_rr, R(y, r0) FENCE(r, r) R(x, r1))
PART(yx_fence_rrw, R(y, r0) FENCE(r, rw) R(x, r1))
PART(yx_tso, R(y, r0) FENCE_TSO R(x, r1))
PART(yx_addr, R(y, r0) R_AFTER(r0, x, r1))
PART(yx_lr_aq, LR(".aq", y, r0) R(x, r1))
PART(yx_lr_aqrl, LR(".aqrl", y, r0) R(x, r1))
PART(yx_amo_aq, AMO_R(".aq", y, r0) R(x, r1))
PART(yx_amo_aqrl, AMO_R(".aqrl", y, r0) R(x, r1))
// x is read before the acquiring load; the later load must not use this value.
PART(xyx_lr_aq, R(x, u) LR(".aq", y, r0) R(x, r1))
PART(xyx_addr, R(x, u) R(y, r0) R_AFTER(r0, x, r1))
PART(xy_fence_rr, R(x, r0) FENCE(r, r) R(y, r1))
PART(xy_addr, R(x, r0) R_AFTER(r0, y, r1))

// y contains the address of x; the reader compares it with the address of x.
PART(publish, W(x, one) FENCE(w, w) W(y, x))
PART(compare, R(x, u) R(y, r0) "bne %[r0], %[x], 1f\nld %[r1], 0(%[r0])\nli %[r0], 1\n1:\n")

// Store buffering: one location written, the other one read.
PART(sb_x_none, W(x, one) R(y, r0))
PART(sb_y_none, W(y, one) R(x, r0))
PART(sb_x_fence, W(x, one) FENCE(rw, rw) R(y, r0))
PART(sb_y_fence, W(y, one) FENCE(rw, rw) R(x, r0))
PART(sb_x_wr, W(x, one) FENCE(w, r) R(y, r0))
PART(sb_y_wr, W(y, one) FENCE(w, r) R(x, r0))
PART(sb_x_amo, AMO_W(".aqrl", x) AMO_R(".aqrl", y, r0))
PART(sb_y_amo, AMO_W(".aqrl", y) AMO_R(".aqrl", x, r0))
PART(sb_x_lr, W(x, one) LR(".aqrl", y, r0))
PART(sb_y_lr, W(y, one) LR(".aqrl", x, r0))
PART(sb_x_sc, SC_W(".rl", x) LR(".aq", y, r0))
PART(sb_y_sc, SC_W(".rl", y) LR(".aq", x, r0))

// Load buffering: one location read, the other one written.
PART(lb_x_data, R(x, r0) W_DATA(r0, y))
PART(lb_y_data, R(y, r0) W_DATA(r0, x))
PART(lb_x_addr, R(x, r0) W_ADDR(r0, y))
PART(lb_y_addr, R(y, r0) W_ADDR(r0, x))
PART(lb_x_ctrl, R(x, r0) W_CTRL(r0, y))
PART(lb_y_ctrl, R(y, r0) W_CTRL(r0, x))
PART(lb_x_fence, R(x, r0) FENCE(r, w) W(y, one))
PART(lb_y_fence, R(y, r0) FENCE(r, w) W(x, one))
PART(lb_x_amo, R(x, r0) AMO_W(".rl", y))
PART(lb_y_amo, R(y, r0) AMO_W(".rl", x))

// Three and more threads.
PART(x_one, W(x, one))
PART(y_one, W(y, one))
PART(yz_data, R(y, r0) W_DATA(r0, z))
PART(zx_addr, R(z, r0) R_AFTER(r0, x, r1))
PART(yz_amo, AMO_R(".aq", y, r0) AMO_W(".rl", z))
PART(zx_lr, LR(".aq", z, r0) R(x, r1))

// Coherence.
PART(x_one_two, W(x, one) W(x, two))
PART(xx, R(x, r0) R(x, r1))
// Through another address, and the second value is used first.
#define ALIAS "ld %[u], 8(%[z])\n"
PART(xx_alias, ALIAS "ld %[r0], 0(%[x])\nld %[r1], 0(%[u])\nsub %[t], %[r1], %[r0]\n")
PART(xxx_alias, ALIAS "ld %[t], 0(%[x])\nld %[r0], 0(%[u])\nld %[r1], 0(%[x])\n")
PART(x_two, W(x, two))
PART(x_read_one, R(x, r0) W(x, one))
PART(x_one_read, W(x, one) R(x, r0))
PART(x_one_y_two, W(x, one) FENCE(w, w) W(y, two))
PART(y_one_x_two, W(y, one) FENCE(w, w) W(x, two))
PART(x_two_y_one, W(x, two) FENCE(w, w) W(y, one))
PART(y_x_data, R(y, r0) W_DATA(r0, x))
PART(y_two_x, W(y, two) FENCE(rw, rw) R(x, r0))

// The thread reads its own store back.
PART(ppoca, R(y, r0) "beqz %[r0], 1f\n1:\nsd %[one], 0(%[z])\nld %[u], 0(%[z])\n" R_AFTER(u, x, r1))
PART(ppoaa, R(y, r0) W_ADDR(r0, z) "ld %[u], 0(%[z])\n" R_AFTER(u, x, r1))

#define SEEN(thread, number) (cell->seen[thread][number])
static int message(const struct cell *cell) { return SEEN(1, 0) == 1 && SEEN(1, 1) == 0; }
static int both_zero(const struct cell *cell) { return SEEN(0, 0) == 0 && SEEN(1, 0) == 0; }
static int both_one(const struct cell *cell) { return SEEN(0, 0) == 1 && SEEN(1, 0) == 1; }
static int causality(const struct cell *cell) {
    return SEEN(1, 0) == 1 && SEEN(2, 0) == 1 && SEEN(2, 1) == 0;
}
static int disagree(const struct cell *cell) {
    return SEEN(2, 0) == 1 && SEEN(2, 1) == 0 && SEEN(3, 0) == 1 && SEEN(3, 1) == 0;
}
static int backwards(const struct cell *cell) { return SEEN(1, 0) > SEEN(1, 1); }
static int first_is_last(const struct cell *cell) { return cell->x.value != 2; }
static int from_the_future(const struct cell *cell) {
    return SEEN(0, 0) == 1 || (SEEN(0, 0) == 2 && cell->x.value != 1);
}
static int overtaken(const struct cell *cell) {
    return SEEN(0, 0) == 0 || (SEEN(0, 0) == 2 && cell->x.value != 2);
}
static int both_first(const struct cell *cell) {
    return cell->x.value == 1 && cell->y.value == 1;
}
static int s(const struct cell *cell) { return SEEN(1, 0) == 1 && cell->x.value == 2; }
static int r(const struct cell *cell) { return SEEN(1, 0) == 0 && cell->y.value == 2; }

static const struct test tests[] = {
    {"MP+fence.rw.rw+fence.rw.rw", {xy_fence, yx_fence}, message, 0},
    {"MP+fence.w.w+fence.r.r", {xy_fence_ww, yx_fence_rr}, message, 0},
    {"MP+fence.rw.w+fence.r.rw", {xy_fence_rww, yx_fence_rrw}, message, 0},
    {"MP+fence.tso+fence.tso", {xy_tso, yx_tso}, message, 0},
    {"MP+fence.w.w+addr", {xy_fence_ww, yx_addr}, message, 0},
    {"MP+fence.w.w+po+addr", {xy_fence_ww, xyx_addr}, message, 0},
    {"MP+fence.w.w+equal-addr", {publish, compare}, message, 0},
    {"MP+amo.rl+amo.aq", {xy_amo_rl, yx_amo_aq}, message, 0},
    {"MP+amo.aqrl+amo.aqrl", {xy_amo_aqrl, yx_amo_aqrl}, message, 0},
    {"MP+sc.rl+lr.aq", {xy_sc_rl, yx_lr_aq}, message, 0},
    {"MP+sc.rl+lr.aqrl", {xy_sc_rl, yx_lr_aqrl}, message, 0},
    {"MP+fence.w.w+po+lr.aq", {xy_fence_ww, xyx_lr_aq}, message, 0},
    {"SB", {sb_x_none, sb_y_none}, both_zero, 1},
    {"SB+fence.rw.rw+fence.rw.rw", {sb_x_fence, sb_y_fence}, both_zero, 0},
    {"SB+fence.w.r+fence.w.r", {sb_x_wr, sb_y_wr}, both_zero, 0},
    {"SB+amo.aqrl+amo.aqrl", {sb_x_amo, sb_y_amo}, both_zero, 0},
    {"SB+lr.aqrl+lr.aqrl", {sb_x_lr, sb_y_lr}, both_zero, 0},
    {"SB+sc.rl-lr.aq+sc.rl-lr.aq", {sb_x_sc, sb_y_sc}, both_zero, 0},
    {"LB+data+data", {lb_x_data, lb_y_data}, both_one, 0},
    {"LB+addr+addr", {lb_x_addr, lb_y_addr}, both_one, 0},
    {"LB+ctrl+ctrl", {lb_x_ctrl, lb_y_ctrl}, both_one, 0},
    {"LB+fence.r.w+fence.r.w", {lb_x_fence, lb_y_fence}, both_one, 0},
    {"LB+amo.rl+amo.rl", {lb_x_amo, lb_y_amo}, both_one, 0},
    {"S+fence.w.w+data", {x_two_y_one, y_x_data}, s, 0},
    {"R+fence.rw.rw+fence.rw.rw", {xy_fence, y_two_x}, r, 0},
    {"2+2W+fence.w.w+fence.w.w", {x_one_y_two, y_one_x_two}, both_first, 0},
    {"WRC+data+addr", {x_one, lb_x_data, yx_addr}, causality, 0},
    {"ISA2+fence.w.w+data+addr", {xy_fence_ww, yz_data, zx_addr}, causality, 0},
    {"ISA2+amo.rl+amo.aq-amo.rl+lr.aq", {xy_amo_rl, yz_amo, zx_lr}, causality, 0},
    {"IRIW+addr+addr", {x_one, y_one, xy_addr, yx_addr}, disagree, 0},
    {"IRIW+fence.r.r+fence.r.r", {x_one, y_one, xy_fence_rr, yx_fence_rr}, disagree, 0},
    {"CoRR", {x_one_two, xx}, backwards, 0},
    {"CoRR, two addresses", {x_one_two, xx_alias}, backwards, 0},
    {"CoRR, a load before", {x_one_two, xxx_alias}, backwards, 0},
    {"CoWW", {x_one_two, xx}, first_is_last, 0},
    {"CoRW", {x_read_one, x_two}, from_the_future, 0},
    {"CoWR", {x_one_read, x_two}, overtaken, 0},
    // RVWMO allows this outcome; x86 does not show it.
    {"PPOCA", {xy_fence, ppoca}, message, 0},
    {"PPOAA", {xy_fence, ppoaa}, message, 0},
};

static struct cell cells[CELLS];
static pthread_barrier_t barrier;
static const struct test *current;
static int rounds = 20;
static int arrived;
static long appeared;

static void clear(void) {
    memset(cells, 0, sizeof cells);
    for (int i = 0; i < CELLS; i++) cells[i].z.alias = &cells[i].x.value;
}

// Returns when `count` threads have arrived, so that all continue at the same moment. It does not
// wait long, because the threads may not run at the same time.
static void meet(int count) {
    __atomic_fetch_add(&arrived, 1, __ATOMIC_SEQ_CST);
    for (int i = 1; i < 4000 && __atomic_load_n(&arrived, __ATOMIC_RELAXED) < count; i++)
        if (i % 1000 == 0) sched_yield();
}

static void *thread(void *argument) {
    long number = (long)argument;
    part *const run = current->parts[number];
    int threads = 0;
    while (threads < THREADS && current->parts[threads]) threads++;
    for (int round = 0; round < rounds; round++) {
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < CELLS; i++) {
            if (i % RUN == 0) meet(threads * (i / RUN + 1));
            run(&cells[i], cells[i].seen[number]);
        }
        pthread_barrier_wait(&barrier);
        if (number == 0) {
            for (int i = 0; i < CELLS; i++) appeared += current->forbidden(&cells[i]);
            clear();
            __atomic_store_n(&arrived, 0, __ATOMIC_SEQ_CST);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) rounds = atoi(argv[1]);
    int counts = argc > 2, failed = 0;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        pthread_t threads[THREADS];
        current = &tests[i];
        appeared = 0;
        clear();
        int count = 0;
        while (count < THREADS && current->parts[count]) count++;
        pthread_barrier_init(&barrier, NULL, count);
        for (long n = 0; n < count; n++) pthread_create(&threads[n], NULL, thread, (void *)n);
        for (int n = 0; n < count; n++) pthread_join(threads[n], NULL);
        pthread_barrier_destroy(&barrier);
        if (!current->allowed) {
            printf("%s: forbidden %ld\n", current->name, appeared);
            failed |= appeared != 0;
        } else if (counts) {
            printf("%s: allowed, appeared %ld times\n", current->name, appeared);
        }
    }
    return failed;
}
