// Code that is written and patched without `fence.i` and without riscv_flush_icache, as some JIT compilers do. On
// hardware the old code is displaced from the instruction cache by other code; between a store and the
// changed code, this program executes calls and loops only.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../include/assembler.h"

enum { HOT = 3000 };

typedef long Function(long);
typedef long Caller(long, Function *);

static __attribute__((noinline)) long call(const uint32_t *code, long value) {
    return ((Function *)code)(value);
}

static __attribute__((noinline)) long calls(const uint32_t *code, int count) {
    long sum = 0;
    for (int i = 0; i < count; i++) sum = sum * 3 + call(code, i);
    return sum;
}

static uint32_t beqz_over(void) { return bnez(A0, 12); }

// One instruction, hot or not.
static void patched(void) {
    uint32_t *code = map(RWX);
    long sum = 0;
    code[1] = RET;
    for (int i = 0; i < 60; i++) {
        code[0] = addi(A0, A0, i);
        sum = sum * 7 + calls(code, i % 5 ? i : HOT);
    }
    printf("patched %ld\n", sum);
}

// A rare case of a hot function jumps to a stub, which is replaced later by a better one.
static void stub(void) {
    uint32_t *code = map(RWX);
    code[0] = beqz_over();      // not zero: to 3
    code[1] = addi(A0, ZERO, 7); // the stub
    code[2] = RET;
    code[3] = addi(A0, A0, 1);
    code[4] = RET;
    long sum = calls(code, HOT);
    for (int i = 0; i < 200; i++) sum = sum * 5 + call(code, 0);
    code[1] = addi(A0, ZERO, 11);
    sum += calls(code, 2);
    for (int i = 0; i < 200; i++) sum = sum * 5 + call(code, 0);
    printf("stub %ld\n", sum);
}

static uint32_t *returned_to;

static __attribute__((noinline)) long patches_caller(long value) {
    if (value % 1000 == 999) returned_to[3] = addi(A0, A0, (int)(value / 1000));
    return call(returned_to + 32, value);
}

// A function that made code calls changes the instruction to which it returns.
static void under_a_return(void) {
    uint32_t *code = returned_to = map(RWX);
    code[0] = addi(SP, SP, -16);
    code[1] = store(RA, SP, 0);
    code[2] = jalr(RA, A1);
    code[3] = addi(A0, A0, 0);
    code[4] = load(RA, SP, 0);
    code[5] = addi(SP, SP, 16);
    code[6] = RET;
    code[32] = addi(A0, A0, 3);
    code[33] = RET;
    long sum = 0;
    for (int i = 0; i < 5 * HOT; i++) sum = sum * 3 + ((Caller *)code)(i, patches_caller);
    printf("under a return %ld\n", sum);
}

// A pipe has the new code.
static void by_call(void) {
    uint32_t *code = map(RWX);
    int ends[2];
    if (pipe(ends)) exit(1);
    code[1] = RET;
    long sum = 0;
    for (int i = 0; i < 12; i++) {
        uint32_t new = addi(A0, A0, i);
        if (write(ends[1], &new, 4) != 4 || read(ends[0], code, 4) != 4) exit(2);
        sum = sum * 7 + calls(code, HOT);
    }
    printf("by a call %ld\n", sum);
}

// An instruction of which one half is in the next page, and a function that goes on there.
static void across_pages(void) {
    uint32_t *code = map(RWX) + PAGE / 4;
    char *at = (char *)code - 6;
    long sum = 0;
    for (int i = 0; i < 30; i++) {
        uint32_t all[] = {addi(A0, A0, i), addi(A0, A0, i * 64), RET};
        memcpy(at + 4, all + 1, 8);
        if (i % 2) memcpy(at, all, 4);
        else if (!i) memcpy(at, all, 4);
        sum = sum * 7 + calls((uint32_t *)at, i % 3 ? i : HOT);
    }
    printf("across pages %ld\n", sum);
}

// Parent and child have the code, and patch their own copies.
static void forked(void) {
    uint32_t *code = map(RWX);
    code[0] = addi(A0, A0, 1);
    code[1] = RET;
    long sum = calls(code, HOT);
    pid_t child = fork();
    code[0] = addi(A0, A0, child ? 2 : 5);
    sum = sum * 3 + calls(code, HOT);
    if (!child) _exit((int)(sum & 127));
    int status;
    waitpid(child, &status, 0);
    printf("forked %ld %d\n", sum, WEXITSTATUS(status));
}

static uint32_t *raced;
static atomic_long seen[3];

static void *runs_raced(void *which) {
    atomic_long *last = which;
    long now = 0;
    while (now < 20) {
        now = call(raced, 0);
        *last = now;
    }
    return NULL;
}

// Threads see each patch of another one before long.
static void threads(void) {
    raced = map(RWX);
    raced[0] = addi(A0, A0, 1);
    raced[1] = RET;
    pthread_t all[3];
    for (int i = 0; i < 3; i++) pthread_create(&all[i], NULL, runs_raced, &seen[i]);
    for (int value = 2; value <= 20; value++) {
        atomic_store((_Atomic uint32_t *)raced, addi(A0, A0, value));
        for (int i = 0; i < 3; i++)
            while (seen[i] < value) usleep(100);
    }
    for (int i = 0; i < 3; i++) pthread_join(all[i], NULL);
    printf("threads %ld %ld %ld\n", seen[0], seen[1], seen[2]);
}

// Made code stores to its own page: to a counter, and to the value that it adds.
static void own_page(void) {
    uint32_t *code = map(RWX);
    long *counter = (long *)(code + 64);
    code[0] = load(T0, A1, 0);
    code[1] = addi(T0, T0, 1);
    code[2] = store(T0, A1, 0);
    code[3] = add(A0, A0, T0);
    code[4] = RET;
    long sum = 0;
    for (int i = 0; i < HOT; i++) {
        sum = sum * 3 + ((Caller *)code)(i, (Function *)counter);
        if (i % 100 == 50) code[1] = addi(T0, T0, i / 100);
    }
    printf("own page %ld %ld\n", sum, *counter);
}

// Code is moved, and its old place gets new code.
static void moved(void) {
    uint32_t *code = map(RWX);
    code[0] = addi(A0, A0, 1);
    code[1] = RET;
    long sum = calls(code, HOT);
    uint32_t *target = map(RWX);
    uint32_t *to = mremap(code, 16 * PAGE, 16 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target);
    sum = sum * 3 + calls(to, HOT);
    to[0] = addi(A0, A0, 2);
    sum = sum * 3 + calls(to, HOT);
    uint32_t *again =
        mmap(code, 16 * PAGE, RWX, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    again[0] = addi(A0, A0, 3);
    again[1] = RET;
    sum = sum * 3 + calls(again, HOT);
    again[0] = addi(A0, A0, 4);
    mprotect(again, 16 * PAGE, RWX);
    sum = sum * 3 + calls(again, HOT);
    again[0] = addi(A0, A0, 5);
    sum = sum * 3 + calls(again, HOT);
    printf("moved %ld\n", sum);
}

// One arena is announced, another one is not.
static void both(void) {
    uint32_t *silent = map(RWX);
    uint32_t *loud = mmap(NULL, PAGE, RWX, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    silent[1] = loud[1] = RET;
    long sum = 0;
    for (int i = 0; i < 20; i++) {
        silent[0] = addi(A0, A0, i);
        loud[0] = addi(A0, A0, 2 * i);
        publish(loud, 8);
        sum = sum * 3 + calls(silent, HOT) + 5 * calls(loud, HOT);
    }
    printf("both %ld\n", sum);
}

int main(void) {
    patched();
    stub();
    under_a_return();
    by_call();
    across_pages();
    forked();
    threads();
    own_page();
    moved();
    both();
    return 0;
}
