// Code made at run time that runs for long, so that LLVM translates it while it runs: loops in loops with
// calls, patched code, threads, and faults, at which a handler looks at all registers. Each row prints the
// number of wrong results.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <ucontext.h>

#include "include/assembler.h"

enum { TURNS = 20000, WORDS = 512 };

// The number of calls in a row of this program is a multiple of it.
static int rounds = 300;

typedef long Loop(long turns, long (*call)(long), const long *from);

static __attribute__((noinline)) long twice(long value) { return 2 * value + 1; }

// Adds `step` in an inner loop of `turns` turns and calls a function, in an outer loop of five turns.
static int make_loops(uint32_t *code, int step) {
    int at = 0;
    code[at++] = addi(SP, SP, -48);
    code[at++] = store(RA, SP, 0);
    code[at++] = store(S0, SP, 8);
    code[at++] = store(S1, SP, 16);
    code[at++] = store(S2, SP, 24);
    code[at++] = store(S3, SP, 32);
    code[at++] = addi(S0, A0, 0);
    code[at++] = addi(S1, A1, 0);
    code[at++] = addi(S2, ZERO, 5);
    code[at++] = addi(A0, ZERO, 0);
    int outer = at;
    code[at++] = addi(S3, S0, 0);
    int inner = at;
    code[at++] = addi(T3, A0, step);
    code[at++] = add(A0, T3, S2);
    code[at++] = addi(S3, S3, -1);
    code[at] = bnez(S3, 4 * (inner - at));
    at++;
    code[at++] = jalr(RA, S1);
    code[at++] = addi(S2, S2, -1);
    code[at] = bnez(S2, 4 * (outer - at));
    at++;
    code[at++] = load(RA, SP, 0);
    code[at++] = load(S0, SP, 8);
    code[at++] = load(S1, SP, 16);
    code[at++] = load(S2, SP, 24);
    code[at++] = load(S3, SP, 32);
    code[at++] = addi(SP, SP, 48);
    code[at++] = RET;
    return 4 * at;
}

static long loops_in_c(long turns, int step) {
    long sum = 0;
    for (long outer = 5; outer; outer--) {
        sum = twice(sum + turns * (step + outer));
    }
    return sum;
}

static int wrong_loops(const uint32_t *code, int step) {
    return ((Loop *)code)(TURNS, twice, NULL) != loops_in_c(TURNS, step);
}

static long loops(void) {
    uint32_t *code = map(RWX);
    publish(code, make_loops(code, 3));
    long wrong = 0;
    for (int round = 0; round < 2 * rounds; round++) {
        wrong += wrong_loops(code, 3);
    }
    return wrong;
}

// The same code with another step, 18 times; each step comes several times.
static long patched(void) {
    uint32_t *code = map(RWX);
    long wrong = 0;
    for (int round = 0; round < 3 * rounds; round++) {
        int step = round / (rounds / 6) % 4;
        if (round % (rounds / 6) == 0) {
            publish(code, make_loops(code, step));
        }
        wrong += wrong_loops(code, step);
    }
    return wrong;
}

// Memory that is writable and executable in turn, and other code at the same addresses.
static long flipped(void) {
    uint32_t *code = map(RW);
    long wrong = 0;
    for (int round = 0; round < rounds; round++) {
        int step = round / (rounds / 6);
        if (round % (rounds / 12) == 0) {
            mprotect(code, PAGE, RW);
            publish(code, make_loops(code, step));
            mprotect(code, PAGE, RX);
        }
        wrong += wrong_loops(code, step);
    }
    return wrong;
}

static uint32_t *shared_code;
static atomic_int wanted;
enum { STEP_AT = 11 };

// A result is right if it lies between those with the steps that were current before and after the call: the
// step only grows, and may change during the call.
static void *run_shared(void *unused) {
    long wrong = 0;
    for (int round = 0; round < rounds; round++) {
        int before = atomic_load(&wanted);
        long result = ((Loop *)shared_code)(TURNS, twice, NULL);
        int after = atomic_load(&wanted);
        // The thread that patches is one step ahead of what it has published.
        long least = loops_in_c(TURNS, before), most = loops_in_c(TURNS, after + 1);
        wrong += result < least || result > most;
    }
    (void)unused;
    return (void *)wrong;
}

static long patched_below_threads(void) {
    shared_code = map(RWX);
    publish(shared_code, make_loops(shared_code, 0));
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, run_shared, NULL);
    }
    struct timespec pause = {.tv_nsec = 1000000};
    for (int step = 1; step < rounds / 3; step++) {
        __atomic_store_n(shared_code + STEP_AT, addi(T3, A0, step), __ATOMIC_RELEASE);
        publish(shared_code, 256);
        atomic_store(&wanted, step);
        // Shorter and longer than it takes until the code is hot.
        for (int i = 0; i < step % 7 * 5; i++) {
            nanosleep(&pause, NULL);
        }
    }
    long wrong = 0;
    for (int i = 0; i < 2; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong += (long)result;
    }
    return wrong;
}

enum { FT6 = 6, FT7, FT8 = 28, FT9, FT10, FT11 };

static uint32_t fadd(int rd, int first, int second) {
    return 0x02000053 | rd << 7 | first << 15 | (uint32_t)second << 20;
}
static uint32_t to_double(int rd, int rs) { return 0xd2207053 | rd << 7 | rs << 15; }
static uint32_t to_long(int rd, int rs) { return 0xc2201053 | rd << 7 | rs << 15; }

typedef double Passer(long turns, const void *next, double, double, double, double, double, double, double,
                      double);

// A loop that only passes on all registers for floating-point arguments, to the function that it calls last.
static int make_passer(uint32_t *code) {
    int at = 0;
    code[at++] = addi(T0, ZERO, 1);
    code[at++] = to_double(FT6, ZERO);
    code[at++] = to_double(FT7, T0);
    code[at++] = to_double(FT8, ZERO);
    int loop = at;
    code[at++] = fadd(FT6, FT6, FT7);
    code[at++] = fadd(FT8, FT8, FT6);
    code[at++] = fadd(FT9, FT8, FT7);
    code[at++] = fadd(FT10, FT9, FT6);
    code[at++] = fadd(FT11, FT10, FT8);
    code[at++] = addi(A0, A0, -1);
    code[at] = bnez(A0, 4 * (loop - at));
    at++;
    code[at++] = to_long(A0, FT11);
    code[at++] = jalr(ZERO, A1);
    return 4 * at;
}

static double weigh(long result, const void *next, double a, double b, double c, double d, double e,
                    double f, double g, double h) {
    (void)next;
    return (double)result + a + 2 * b + 4 * c + 8 * d + 16 * e + 32 * f + 64 * g + 128 * h;
}

static long passed(void) {
    uint32_t *code = map(RWX);
    publish(code, make_passer(code));
    double third = 0, fourth = 0, kept = 0;
    for (int turn = 1; turn <= TURNS; turn++) {
        third += turn;
        fourth = third + 1 + turn + third;
    }
    long wrong = 0;
    for (int round = 0; round < rounds; round++) {
        double r = round;
        double got = ((Passer *)code)(TURNS, (void *)weigh, r, r + 1, r + 2, r + 3, r + 4, r + 5, r + 6, r + 7);
        wrong += got != weigh((long)fourth, NULL, r, r + 1, r + 2, r + 3, r + 4, r + 5, r + 6, r + 7);
        // In registers that the loop passes on too.
        kept += r;
        wrong += kept != (double)round * (round + 1) / 2;
    }
    return wrong;
}

// Reads words until a word is in a page that is not mapped. Changes t0, t1, t3 and t4 on the way.
static int make_reader(uint32_t *code) {
    int at = 0;
    code[at++] = addi(A0, ZERO, 0);
    code[at++] = addi(T0, ZERO, 0);
    code[at++] = addi(T4, ZERO, 1);
    int loop = at;
    code[at++] = addi(T0, T0, 1);
    code[at++] = add(T1, T0, T0);
    code[at++] = load(T3, A2, 0);
    code[at++] = add(A0, A0, T3);
    code[at++] = addi(A2, A2, 8);
    code[at++] = add(T4, T4, T1);
    code[at] = bnez(T4, 4 * (loop - at));
    at++;
    code[at++] = RET;
    return 4 * at;
}

enum { FAULT_AT = 5 };
static volatile long wrong_registers;
static long *words;

static void look(int signal, siginfo_t *info, void *context) {
    ucontext_t *state = context;
    unsigned long *registers = state->uc_mcontext.__gregs;
    // The first PC is that of the fault; x0 is in its place.
    uint32_t *pc = (uint32_t *)registers[REG_PC];
    long turns = WORDS + 1, sum = 0, other = 1;
    for (long turn = 1; turn <= turns; turn++) {
        other += turn < turns ? 2 * turn : 0;
        sum += turn < turns ? words[turn - 1] : 0;
    }
    wrong_registers += signal != SIGSEGV || info->si_addr != words + WORDS;
    wrong_registers += pc != shared_code + FAULT_AT;
    wrong_registers += (long)registers[T0] != turns || (long)registers[T1] != 2 * turns;
    wrong_registers += (long)registers[A0] != sum || (long)registers[T4] != other;
    wrong_registers += registers[A2] != (unsigned long)(words + WORDS);
    // The function ends.
    registers[REG_PC] = registers[RA];
}

static long faults(void) {
    struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    shared_code = map(RWX);
    publish(shared_code, make_reader(shared_code));
    words = mmap(NULL, 2 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap((char *)words + PAGE, PAGE);
    long sum = 0, wrong = 0;
    for (int i = 0; i < WORDS; i++) {
        words[i] = i * 7919L % 1000 - 500;
        sum += words[i];
    }
    for (int round = 0; round < 60 * rounds; round++) {
        wrong += ((Loop *)shared_code)(0, twice, words) != sum;
    }
    return wrong + wrong_registers;
}

int main(int count, char **arguments) {
    if (count > 1) {
        rounds = atoi(arguments[1]);
    }
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("loops: %ld wrong\n", loops());
    printf("patched: %ld wrong\n", patched());
    printf("flipped: %ld wrong\n", flipped());
    printf("patched below threads: %ld wrong\n", patched_below_threads());
    printf("passed: %ld wrong\n", passed());
    printf("faults: %ld wrong\n", faults());
    printf("passed: %ld wrong\n", passed());
    printf("loops: %ld wrong\n", loops());
    printf("patched: %ld wrong\n", patched());
    return 0;
}
