// Code made at run time: as JIT compilers make it, patch it, move it and throw it away. Each row
// prints a number that depends on every result.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "include/assembler.h"

enum { CALLS = 1000, MANY_CALLS = 4000 };

typedef long Function(long);
typedef long Caller(long, Function *);

// `a0 + value`
static void make_adder(uint32_t *code, int value) {
    code[0] = addi(A0, A0, value);
    code[1] = RET;
}

// `value` times a loop that adds `step`
static void make_loop(uint32_t *code, int step) {
    code[0] = addi(A1, A0, 0);
    code[1] = addi(A0, ZERO, 0);
    code[2] = addi(A0, A0, step);
    code[3] = addi(A1, A1, -1);
    code[4] = bnez(A1, -8);
    code[5] = RET;
}

// A function of its own: when host frames are dropped, execution leaves the interpreter at its entry.
static __attribute__((noinline)) long calls(const uint32_t *code, int count) {
    long sum = 0;
    for (int i = 1; i <= count; i++) {
        sum = sum * 3 + ((Function *)code)(i);
    }
    return sum;
}

static long patched(void) {
    uint32_t *code = map(RWX);
    long sum = 0;
    for (int value = 0; value < 40; value++) {
        make_adder(code, value);
        publish(code, 8);
        sum = sum * 7 + calls(code, value < 4 ? CALLS : value);
    }
    return sum;
}

static long loops(void) {
    uint32_t *code = map(RWX);
    long sum = 0;
    for (int step = 1; step < 20; step++) {
        make_loop(code, step);
        publish(code, 24);
        sum = sum * 7 + ((Function *)code)(10000);
    }
    return sum;
}

static long flipped(void) {
    uint32_t *code = map(RW);
    long sum = 0;
    for (int value = 0; value < 60; value++) {
        mprotect(code, PAGE, RW);
        // Every third time the same code again.
        make_adder(code, value % 3 ? value : 1);
        make_adder(code + 64, value % 5);
        mprotect(code, PAGE, RX);
        publish(code, PAGE);
        sum = sum * 7 + calls(code, CALLS) + calls(code + 64, CALLS);
    }
    return sum;
}

// One page mapped twice. QEMU notices stores only through the mapping with the code.
static long aliases(void) {
    int memory = memfd_create("code", 0);
    if (memory < 0 || ftruncate(memory, PAGE)) {
        perror("memfd");
        exit(1);
    }
    uint32_t *data = mmap(NULL, PAGE, RW, MAP_SHARED, memory, 0);
    uint32_t *code = mmap(NULL, PAGE, RX, MAP_SHARED, memory, 0);
    long wrong = 0;
    for (int value = 0; value < 40; value++) {
        make_adder(data, value);
        publish(code, 8);
        for (int i = 0; i < CALLS; i++) {
            wrong += ((Function *)code)(i) != i + value;
        }
    }
    return wrong;
}

static long reused(void) {
    long sum = 0;
    void *at = NULL;
    for (int value = 0; value < 40; value++) {
        int fixed = at ? MAP_FIXED : 0;
        uint32_t *code = mmap(at, PAGE, RWX, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
        at = code;
        value & 1 ? make_adder(code, value) : make_loop(code, value);
        publish(code, 24);
        sum = sum * 7 + calls(code, CALLS) - calls(code, 1);
        if (value % 4 == 3) {
            munmap(code, PAGE);
            at = NULL;
        }
    }
    return sum;
}

static uint32_t *victim;

// Changes the caller behind the call that it is in.
static long change_caller(long value) {
    if (value == 150) {
        victim[4] = addi(A0, A0, 1000);
        publish(victim, 64);
    }
    return value;
}

// A caller of `a1` that goes on in changed code after the call.
static long changed_below(void) {
    victim = map(RWX);
    victim[0] = addi(SP, SP, -16);
    victim[1] = store(RA, SP, 8);
    victim[2] = addi(T0, A1, 0);
    victim[3] = jalr(RA, T0);
    victim[4] = addi(A0, A0, 1);
    victim[5] = load(RA, SP, 8);
    victim[6] = addi(SP, SP, 16);
    victim[7] = RET;
    publish(victim, 64);
    long sum = 0;
    for (int i = 0; i < 2 * CALLS; i++) {
        sum = sum * 3 + ((Caller *)victim)(i, change_caller);
    }
    return sum;
}

// Code that changes itself: it stores `a1` to the instruction after its own `fence.i`.
static long changes_itself(void) {
    uint32_t *code = map(RWX);
    // `sw a1, 0(a2)`, where a2 is the address of the next instruction but one.
    code[0] = 0x2023 | A2 << 15 | A1 << 20;
    code[1] = FENCE_I;
    code[2] = addi(A0, A0, 0);
    code[3] = RET;
    publish(code, 16);
    long sum = 0;
    for (int i = 0; i < CALLS; i++) {
        long (*function)(long, long, uint32_t *) = (void *)code;
        sum = sum * 3 + function(i, addi(A0, A0, i / 8), code + 2);
    }
    return sum;
}

static atomic_int generation;
static atomic_int ready;
static uint32_t *shared_code;

static void *runs(void *argument) {
    (void)argument;
    long bad = 0;
    int seen = 0, rounds = 0;
    while (seen < 50) {
        int before = atomic_load(&generation);
        long value = ((Function *)shared_code)(1000) - 1000;
        int after = atomic_load(&generation);
        // The old code or the new code, but never older than what was published before.
        bad += value < before || value > after + 1;
        seen = before;
        if (++rounds % 64 == 0) {
            atomic_store(&ready, 1);
            sched_yield();
        }
    }
    return (void *)bad;
}

static long patched_below_threads(void) {
    shared_code = map(RWX);
    make_adder(shared_code, 0);
    publish(shared_code, 8);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        pthread_create(&threads[i], NULL, runs, NULL);
    }
    while (!ready) {
        sched_yield();
    }
    for (int value = 1; value <= 50; value++) {
        // One aligned word: a thread sees the old or the new instruction.
        __atomic_store_n(shared_code, addi(A0, A0, value), __ATOMIC_RELEASE);
        publish(shared_code, 8);
        atomic_store(&generation, value);
        for (int i = 0; i < 20; i++) {
            sched_yield();
        }
    }
    long bad = 0;
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        bad += (long)result;
    }
    return bad;
}

static volatile long caught, caught_at;

static void skip(int signal, siginfo_t *info, void *context) {
    ucontext_t *state = context;
    caught = caught * 31 + signal + info->si_code;
    caught_at = (long)state->uc_mcontext.__gregs[REG_PC];
    state->uc_mcontext.__gregs[REG_A0] += 7;
    state->uc_mcontext.__gregs[REG_PC] += 4;
}

static void handle(int signal) {
    struct sigaction action = {.sa_sigaction = skip, .sa_flags = SA_SIGINFO};
    sigaction(signal, &action, NULL);
}

// A load from an address that is not mapped, with the address in the handler, and an illegal word,
// often.
static long faults(void) {
    uint32_t *code = map(RWX);
    code[0] = addi(A0, A0, 1);
    code[1] = load(A1, ZERO, 16);
    code[2] = addi(A0, A0, 1);
    code[3] = RET;
    memset(code + 16, 0, 16);
    code[16 + 4] = RET;
    publish(code, 256);
    handle(SIGSEGV);
    handle(SIGILL);
    long sum = 0, wrong = 0;
    for (int i = 0; i < CALLS; i++) {
        sum = sum * 3 + ((Function *)code)(i);
        wrong += caught_at != (long)(code + 1);
        sum = sum * 3 + ((Function *)(code + 16))(i);
        wrong += caught_at != (long)(code + 19);
    }
    signal(SIGSEGV, SIG_DFL);
    signal(SIGILL, SIG_DFL);
    return sum + caught - wrong * 1000003;
}

// Two instructions that overlap: the second one starts in the middle of the first one.
static long overlapping(void) {
    uint16_t *code = (uint16_t *)map(RWX);
    // `lui a1, 0x05058` in which `addi a0, a0, 1` (c.addi, 0x0505) is the upper half.
    code[0] = 0x85b7;
    code[1] = 0x0505;
    code[2] = 0x0509;
    code[3] = 0x8082;
    publish(code, 16);
    long sum = 0;
    for (int i = 0; i < CALLS; i++) {
        sum = sum * 3 + ((Function *)code)(i);
        sum = sum * 3 + ((Function *)(code + 1))(i);
    }
    return sum;
}

static long forked(void) {
    uint32_t *code = map(RWX);
    make_adder(code, 5);
    publish(code, 8);
    long sum = calls(code, CALLS);
    int pipes[2];
    if (pipe(pipes)) {
        return -1;
    }
    for (int child = 1; child <= 3; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            make_adder(code, 100 * child);
            publish(code, 8);
            long result = calls(code, CALLS);
            _exit(write(pipes[1], &result, sizeof result) != sizeof result);
        }
        long result;
        if (read(pipes[0], &result, sizeof result) != sizeof result) {
            return -1;
        }
        waitpid(pid, NULL, 0);
        sum = sum * 7 + result;
    }
    return sum * 7 + calls(code, CALLS);
}

// More functions than a JIT compiler keeps.
static long many(int count) {
    long sum = 0;
    for (int round = 0; round < count; round++) {
        uint32_t *code = map(RWX);
        for (int i = 0; i < 64; i++) {
            make_adder(code + 128 * i, (round * 64 + i) % 2000);
        }
        publish(code, 16 * PAGE);
        for (int i = 0; i < 64; i++) {
            sum = sum * 3 + calls(code + 128 * i, 20);
        }
        munmap(code, 16 * PAGE);
    }
    return sum;
}

// Functions that all stay, and are called again at the end.
static long kept(int count) {
    uint32_t **code = calloc(count, sizeof *code);
    long sum = 0;
    for (int round = 0; round < 2 * count; round++) {
        int at = round % count;
        if (round < count) {
            code[at] = map(RWX);
            for (int i = 0; i < 64; i++) {
                make_adder(code[at] + 128 * i, (round * 64 + i) % 2000);
            }
            publish(code[at], 16 * PAGE);
        }
        for (int i = 0; i < 64; i++) {
            sum = sum * 3 + calls(code[at] + 128 * i, MANY_CALLS);
        }
    }
    return sum;
}

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (count > 2 && strcmp(arguments[1], "kept") == 0) {
        printf("kept %ld\n", kept(atoi(arguments[2])));
        return 0;
    }
    if (count > 2) {
        printf("many %ld\n", many(atoi(arguments[2])));
        return 0;
    }
    if (count > 1) {
        printf("aliases: %ld wrong\n", aliases());
        return 0;
    }
    printf("patched %ld\n", patched());
    printf("loops %ld\n", loops());
    printf("flipped %ld\n", flipped());
    printf("reused %ld\n", reused());
    printf("changed below %ld\n", changed_below());
    printf("changes itself %ld\n", changes_itself());
    printf("patched below threads %ld\n", patched_below_threads());
    printf("faults %ld\n", faults());
    printf("overlapping %ld\n", overlapping());
    printf("forked %ld\n", forked());
    return 0;
}
