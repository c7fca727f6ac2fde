// Handlers of signals that instructions cause: the reported state, changes to it, and ways
// to leave a handler.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

// A function that runs one instruction with a known value in every register except sp, gp
// and tp; the addresses of this instruction and of the next one.
#define FAULTING(name, text) FAULTING_IN(name, "", text, "")

// The same with code before and after it.
#define FAULTING_IN(name, before, text, after)                                       \
    extern const char name##_at[], name##_next[];                                    \
    __attribute__((noinline, naked)) void name(void *address) {                      \
        __asm__ volatile(                                                            \
            ".option push\n.option norvc\n"                                          \
            "addi sp, sp, -144\n"                                                    \
            "sd ra, 0(sp)\n sd s0, 8(sp)\n sd s1, 16(sp)\n sd s2, 24(sp)\n"          \
            "sd s3, 32(sp)\n sd s4, 40(sp)\n sd s5, 48(sp)\n sd s6, 56(sp)\n"        \
            "sd s7, 64(sp)\n sd s8, 72(sp)\n sd s9, 80(sp)\n sd s10, 88(sp)\n"       \
            "sd s11, 96(sp)\n"                                                       \
            "fcvt.d.l fa5, a0\n"                                                     \
            "li ra, 0x101\n li t0, 0x105\n li t1, 0x106\n li t2, 0x107\n"            \
            "li s0, 0x108\n li s1, 0x109\n li a1, 0x10b\n li a2, 0x10c\n"            \
            "li a3, 0x10d\n li a4, 0x10e\n li a5, 0x10f\n li a6, 0x110\n"            \
            "li a7, 0x111\n li s2, 0x112\n li s3, 0x113\n li s4, 0x114\n"            \
            "li s5, 0x115\n li s6, 0x116\n li s7, 0x117\n li s8, 0x118\n"            \
            "li s9, 0x119\n li s10, 0x11a\n li s11, 0x11b\n li t3, 0x11c\n"          \
            "li t4, 0x11d\n li t5, 0x11e\n li t6, 0x11f\n"                           \
            "add a6, a5, a4\n slli s5, s5, 40\n xor t6, t6, s5\n"                    \
            before "\n"                                                              \
            ".globl " #name "_at\n" #name "_at:\n"                                   \
            ".option pop\n" text "\n"                                                \
            ".globl " #name "_next\n" #name "_next:\n"                               \
            after "\n"                                                               \
            ".option push\n.option norvc\n"                                          \
            /* Everything above is dead from here on but for these two. */           \
            "add a0, a6, t6\n li a6, 0\n li t6, 0\n li t0, 0\n"                      \
            "ld ra, 0(sp)\n ld s0, 8(sp)\n ld s1, 16(sp)\n ld s2, 24(sp)\n"          \
            "ld s3, 32(sp)\n ld s4, 40(sp)\n ld s5, 48(sp)\n ld s6, 56(sp)\n"        \
            "ld s7, 64(sp)\n ld s8, 72(sp)\n ld s9, 80(sp)\n ld s10, 88(sp)\n"       \
            "ld s11, 96(sp)\n"                                                       \
            "addi sp, sp, 144\n"                                                     \
            "ret\n.option pop\n");                                                   \
    }

FAULTING(do_lb, "lb a1, 0(a0)")
FAULTING(do_lbu, "lbu a1, 1(a0)")
FAULTING(do_lh, "lh a1, 2(a0)")
FAULTING(do_lhu, "lhu a1, -2(a0)")
FAULTING(do_lw, "lw a1, 4(a0)")
FAULTING(do_lwu, "lwu a1, 4(a0)")
FAULTING(do_ld, "ld a1, 8(a0)")
FAULTING(do_ld_base, "ld a0, 8(a0)")
FAULTING(do_ld_zero, "ld x0, 8(a0)")
FAULTING(do_c_ld, "c.ld a1, 8(a0)")
FAULTING(do_flw, "flw fa0, 4(a0)")
FAULTING(do_fld, "fld fa0, 8(a0)")
FAULTING(do_sb, "sb a2, 0(a0)")
FAULTING(do_sh, "sh a2, 2(a0)")
FAULTING(do_sw, "sw a2, 4(a0)")
FAULTING(do_sd, "sd a2, 8(a0)")
FAULTING(do_c_sd, "c.sd a2, 8(a0)")
FAULTING(do_sd_zero, "sd x0, 8(a0)")
FAULTING(do_fsw, "fsw fa5, 4(a0)")
FAULTING(do_fsd, "fsd fa5, 8(a0)")
FAULTING(do_amo, "amoadd.d a1, a2, (a0)")
FAULTING(do_amo_w, "amomaxu.w.aqrl a1, a2, (a0)")
FAULTING(do_lr, "lr.d a1, (a0)")
// Several stores to the stack, registers that change between them, and the results.
FAULTING_IN(do_ld_after_stores,
    "sd t0, 104(sp)\n addi t0, t0, 1\n sd t0, 112(sp)\n li t1, 0x77\n sd t1, 120(sp)\n li t2, 0x78\n",
    "ld a1, 8(a0)",
    "ld t0, 112(sp)\n ld t1, 120(sp)\n ld t2, 104(sp)\n add t0, t0, t1\n add t6, t0, t2\n")
// The last of them faults.
FAULTING_IN(do_sd_stack,
    "sd sp, -48(a0)\n mv sp, a0\n sd t0, -40(sp)\n addi t0, t0, 1\n sd t0, -32(sp)\n li t1, 0x77\n",
    "sd t1, 8(sp)",
    "ld t6, -32(sp)\n ld sp, -48(sp)\n")
// Words that are combined from bytes, of which only some can be read; and loads of which only a
// part is used. In the second function of each kind the result is dead.
#define LITTLE                                                                       \
    "lbu a1, 0(a0)\n lbu a2, 1(a0)\n slli a2, a2, 8\n or a1, a1, a2\n"               \
    "lbu a3, 2(a0)\n slli a3, a3, 16\n or a1, a1, a3\n"                             \
    "lbu a2, 3(a0)\n slli a2, a2, 24\n or a1, a1, a2\n"
#define BIG                                                                          \
    "lbu a1, 0(a0)\n lbu a2, 1(a0)\n slli a1, a1, 8\n or a1, a1, a2\n"
#define NONE_LEFT "li a1, 1\n li a2, 2\n li a3, 3\n"
FAULTING(do_little, LITTLE)
FAULTING_IN(do_little_dead, "", LITTLE, NONE_LEFT)
FAULTING_IN(do_big, "sd t0, 104(sp)\n addi t0, t0, 1\n", BIG "mulw a2, a1, a2\n", "ld t6, 104(sp)\n")
FAULTING_IN(do_big_dead, "", BIG, NONE_LEFT)
FAULTING_IN(do_byte_of_ld, "", "ld a1, 0(a0)\n andi a1, a1, 255\n", "add a6, a6, a1\n")
FAULTING_IN(do_byte_of_ld_dead, "", "ld a1, 0(a0)\n andi a1, a1, 255\n", NONE_LEFT)
FAULTING_IN(do_lw_twice, "", "lw a1, 0(a0)\n lbu a1, 1(a0)\n lw a1, 1(a0)\n xori a2, a1, -1\n", "li a1, 1\n")
FAULTING_IN(do_lw_one_way, "", "lw a1, 0(a0)\n beqz t0, 1f\n li a1, 0x77\n 1: addi a2, a1, 1\n", "")
FAULTING(do_ebreak, "ebreak")
FAULTING(do_c_ebreak, "c.ebreak")
FAULTING(do_illegal, ".word 0xffffffff")
FAULTING(do_c_illegal, ".half 0")

struct row {
    const char *name;
    void (*run)(void *);
    const char *at, *next;
};
#define ROW(name) {#name, name, name##_at, name##_next}
static const struct row *current;
static int skip = 1;
static char *unmapped, *read_only, *none, *edge;
static sigjmp_buf out;

static unsigned long place(unsigned long address) {
    char *p = (char *)address;
    if (p >= unmapped - 4096 && p < unmapped + 4096) return 0x10000 + (p - unmapped);
    if (p >= read_only && p < read_only + 4096) return 0x20000 + (p - read_only);
    if (p >= edge && p < edge + 8192) return 0x40000 + (p - edge);
    if (p >= none - 4096 && p < none + 4096) return 0x30000 + (p - none);
    return address;
}

static void show(int signal, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    unsigned long *x = u->uc_mcontext.__gregs;
    printf("  signal %d code %d", signal, info->si_code);
    // qemu does not report an address that is not canonical on x86-64.
    if ((x[10] >> 48) != 0) printf(" address none");
    else if (signal == SIGSEGV || signal == SIGBUS) printf(" address %lx", place((unsigned long)info->si_addr));
    else printf(" address %s", info->si_addr == current->at ? "pc" : "other");
    printf(" pc %+ld\n ", (long)(x[REG_PC] - (unsigned long)current->at));
    for (int n = 1; n < 32; n++)
        if (n != 2 && n != 3 && n != 4) printf(" %lx", n == 10 ? place(x[n]) : x[n]);
    double d;
    memcpy(&d, &u->uc_mcontext.__fpregs.__d.__f[15], 8);
    printf(" fa5 %s\n", d != 0 ? "set" : "zero");
    if (skip) {
        x[REG_PC] = (unsigned long)current->next;
        x[16] = 0xaaaa;
    } else {
        siglongjmp(out, signal);
    }
}

static void install(int flags, void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    for (int n = 0; n < 5; n++)
        sigaction((int[]){SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP}[n], &action, 0);
}

static void every_instruction(void) {
    static const struct row rows[] = {
        ROW(do_lb), ROW(do_lbu), ROW(do_lh), ROW(do_lhu), ROW(do_lw), ROW(do_lwu), ROW(do_ld),
        ROW(do_ld_base), ROW(do_ld_zero), ROW(do_ld_after_stores), ROW(do_c_ld), ROW(do_flw), ROW(do_fld), ROW(do_sb),
        ROW(do_sh), ROW(do_sw), ROW(do_sd), ROW(do_c_sd), ROW(do_sd_zero), ROW(do_fsw),
        ROW(do_fsd), ROW(do_amo), ROW(do_amo_w), ROW(do_lr), ROW(do_ebreak), ROW(do_c_ebreak),
        ROW(do_illegal), ROW(do_c_illegal),
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        current = &rows[i];
        // The last address is not canonical on x86-64.
        char *places[] = {unmapped, read_only + 64, none + 64, (char *)0x1234567812345600};
        int lr = !strncmp(current->name, "do_lr", 5), amo = !strncmp(current->name, "do_amo", 6);
        for (int p = 0; p < 4; p++) {
            // Kernels differ in whether the load or the store faults.
            if ((lr || amo) && p == 1) continue;
            printf("%s %d\n", current->name, p);
            skip = 1;
            long result = ((long (*)(void *))current->run)(places[p]);
            printf("  result %lx\n", result);
            skip = 0;
            int signal = sigsetjmp(out, 1);
            if (!signal) current->run(places[p]), puts("  no fault");
            else printf("  jumped out of %d\n", signal);
        }
    }
}

// Halves of misaligned accesses in different pages.
static void page_boundary(void) {
    static const struct row rows[] = {ROW(do_lh), ROW(do_lw), ROW(do_ld), ROW(do_sd), ROW(do_fld)};
    skip = 1;
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        current = &rows[i];
        for (int offset = -13; offset < -7; offset += 2) {
            long before = edge[4095];
            ((long (*)(void *))current->run)(edge + 4096 + offset);
            printf("%s %d: %d\n", current->name, offset, before == edge[4095]);
        }
    }
}

// Words and parts of words.
static void words(void) {
    static const struct row rows[] = {
        ROW(do_little), ROW(do_little_dead), ROW(do_big), ROW(do_big_dead), ROW(do_byte_of_ld),
        ROW(do_byte_of_ld_dead), ROW(do_lw_twice), ROW(do_lw_one_way),
    };
    skip = 1;
    for (int i = 1; i <= 16; i++) edge[4096 - i] = 0x1d * i;
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        current = &rows[i];
        for (int offset = -8; offset <= 0; offset++) {
            printf("%s %d\n", current->name, offset);
            printf("  result %lx\n", ((long (*)(void *))current->run)(edge + 4096 + offset));
        }
    }
}

// A run of stores to a stack that ends inside the run. The handler needs an alternate stack.
static void stack_end(void) {
    static const struct row row = ROW(do_sd_stack);
    current = &row;
    skip = 1;
    printf("%s: %lx\n", row.name, ((long (*)(void *))row.run)(edge + 4096));
    printf("  left %lx %lx\n", *(long *)(edge + 4096 - 40), *(long *)(edge + 4096 - 32));
}

// A garbage collector's write barrier: pages are protected repeatedly, and the handler
// makes the written page writable.
static char *heap;
static volatile unsigned faults;
enum { PAGES = 100, ROUNDS = 100 };

static void open_page(int signal, siginfo_t *info, void *context) {
    char *page = (char *)((unsigned long)info->si_addr & ~4095ul);
    if (page < heap || page >= heap + PAGES * 4096 || mprotect(page, 4096, PROT_READ | PROT_WRITE))
        _exit(90 + signal);
    faults++;
}

__attribute__((noinline)) static unsigned long write_all(unsigned long *p, unsigned long seed) {
    unsigned long sum = 0;
    for (unsigned long i = 0; i < PAGES; i++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        p[i * 512 + seed % 512] = seed;
        sum += p[i * 512 + seed % 512] ^ i;
    }
    return sum;
}

static void barrier(void) {
    heap = mmap(0, PAGES * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    install(0, open_page);
    unsigned long sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        sum += write_all((unsigned long *)heap, round);
        mprotect(heap, PAGES * 4096, PROT_READ);
    }
    printf("%u faults, %lx\n", faults, sum);
}

// A store of two bytes of code, which a handler steps over.
__attribute__((noinline)) static void step_over(char *p) {
    __asm__ volatile(".option push\n.option arch, +c\n c.sw %1, 0(%0)\n.option pop" : : "r"(p), "r"(0) : "memory");
}

static int level;

static void nested(int signal, siginfo_t *info, void *context) {
    char here;
    int mine = ++level;
    printf("level %d on the %s stack\n", mine, &here > edge - (1 << 20) && &here < edge ? "other" : "own");
    if (mine < 4) step_over(unmapped + 16);
    printf("back from level %d\n", mine + 1);
    ((ucontext_t *)context)->uc_mcontext.__gregs[REG_PC] += 2;
}

static unsigned long deep(unsigned long n) {
    volatile char frame[1024];
    frame[0] = n;
    return n + deep(n + 1) + frame[0];
}

static void overflow(int signal, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    long distance = (long)info->si_addr - (long)u->uc_mcontext.__gregs[REG_SP];
    printf("overflow: %d, near the stack pointer: %d\n", signal, distance > -65536 && distance < 65536);
    siglongjmp(out, 1);
}

static void jump_to(int signal, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    printf("signal %d code %d: pc is the address: %d, the target: %d, ra is in code: %d\n", signal,
           info->si_code, u->uc_mcontext.__gregs[REG_PC] == (unsigned long)info->si_addr,
           info->si_addr == read_only + 64, u->uc_mcontext.__gregs[REG_RA] > 0x10000);
    u->uc_mcontext.__gregs[REG_PC] = u->uc_mcontext.__gregs[REG_RA];
}

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IOFBF, 1 << 16);
    char *area = mmap(0, 1 << 21, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    edge = area + (1 << 20);
    none = edge + 0x10000;
    mprotect(none - 4096, 3 * 4096, PROT_NONE);
    read_only = none + 0x10000;
    memset(read_only, 7, 4096);
    mprotect(read_only, 4096, PROT_READ);
    unmapped = read_only + 0x10000;
    munmap(unmapped - 4096, 3 * 4096);
    edge[4095] = 1;
    mprotect(edge + 4096, 4096, PROT_NONE);
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "blocked")) {
        sigset_t set;
        install(0, show);
        sigemptyset(&set);
        sigaddset(&set, SIGSEGV);
        sigprocmask(SIG_BLOCK, &set, 0);
        puts("to be killed");
        fflush(stdout);
        *(volatile char *)unmapped = 1;
        return 0;
    }
    if (!strcmp(what, "barrier")) return barrier(), 0;
    install(0, show);
    every_instruction();
    page_boundary();
    words();
    install(0, jump_to);
    ((void (*)(void))(read_only + 64))();
    puts("back");
    stack_t stack = {.ss_sp = edge - (1 << 20), .ss_size = 1 << 19};
    sigaltstack(&stack, 0);
    for (int flags = 0; flags <= SA_ONSTACK; flags += SA_ONSTACK) {
        level = 0;
        struct sigaction action = {.sa_sigaction = nested, .sa_flags = SA_SIGINFO | SA_NODEFER | flags};
        sigaction(SIGSEGV, &action, 0);
        step_over(unmapped);
        printf("level %d\n", level);
    }
    install(SA_ONSTACK, show);
    stack_end();
    install(SA_ONSTACK, overflow);
    for (int i = 0; i < 3; i++)
        if (!sigsetjmp(out, 1)) printf("%lx\n", deep(0));
    barrier();
    puts("done");
    return 0;
}
