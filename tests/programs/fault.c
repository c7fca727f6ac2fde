// Dies in the way that its argument names. Earlier output must not be lost.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile uint64_t sink;

__attribute__((noinline)) static uint64_t recurse(uint64_t n) {
    volatile uint64_t frame[8];
    frame[n % 8] = n;
    return recurse(n + 1) + frame[n % 8];
}

__attribute__((noinline)) static void large_frame(void) {
    volatile char block[64 << 20];
    block[0] = 1;
    sink = (uint64_t)block[0];
}

__attribute__((noipa)) static double sum(double a, double b) {
    double result;
    __asm__ volatile("fadd.d %0, %1, %2, dyn" : "=f"(result) : "f"(a), "f"(b));
    return result;
}

static void wild_jump(uintptr_t target) { ((void (*)(void))target)(); }

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    printf("before %s\n", how);
    fflush(stdout);
    if (!strcmp(how, "null-load")) sink = *(volatile uint64_t *)0;
    if (!strcmp(how, "null-store")) *(volatile uint64_t *)8 = 1;
    if (!strcmp(how, "wild-load")) sink = *(volatile uint32_t *)0x3ffffff000;
    if (!strcmp(how, "wild-store")) *(volatile uint8_t *)0x123456789a = 1;
    if (!strcmp(how, "non-canonical")) sink = *(volatile uint64_t *)0xdead000000000000;
    if (!strcmp(how, "kernel-address")) *(volatile uint64_t *)0xffffffffffffff00 = 1;
    if (!strcmp(how, "store-to-code")) *(volatile uint32_t *)(uintptr_t)&recurse = 0;
    if (!strcmp(how, "store-to-constant")) *(volatile char *)(uintptr_t)"constant" = 1;
    if (!strcmp(how, "null-jump")) wild_jump(0);
    if (!strcmp(how, "wild-jump")) wild_jump(0x7654321000);
    if (!strcmp(how, "jump-to-data")) wild_jump((uintptr_t)&sink);
    if (!strcmp(how, "high-jump")) wild_jump(0xfffffffffffff000);
    if (!strcmp(how, "stack-overflow")) sink = recurse(0);
    if (!strcmp(how, "large-frame")) large_frame();
    if (!strcmp(how, "illegal")) __asm__ volatile(".word 0");
    if (!strcmp(how, "illegal-word")) __asm__ volatile(".word 0xffffffff");
    if (!strcmp(how, "privileged")) __asm__ volatile("csrr t0, sstatus" ::: "t0");
    if (!strcmp(how, "reserved-rounding")) {
        __asm__ volatile("fsrmi 5");
        sink = (uint64_t)sum(1, 2);
    }
    static _Alignas(16) char area[32];
    if (!strcmp(how, "misaligned-lr")) __asm__ volatile("lr.d %0, (%1)" : "=r"(sink) : "r"(area + 4));
    if (!strcmp(how, "misaligned-sc")) __asm__ volatile("sc.w %0, zero, (%1)" : "=&r"(sink) : "r"(area + 1));
    if (!strcmp(how, "misaligned-amo")) __asm__ volatile("amoor.d %0, zero, (%1)" : "=r"(sink) : "r"(area + 7));
    if (!strcmp(how, "breakpoint")) __asm__ volatile("ebreak");
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "term")) raise(SIGTERM);
    if (!strcmp(how, "unmapped")) {
        volatile char *p = mmap(NULL, 1 << 22, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        p[0] = 1;
        munmap((void *)p, 1 << 22);
        p[0] = 2;
    }
    if (!strcmp(how, "protected")) {
        volatile char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        p[0] = 1, p[4096] = 1;
        mprotect((void *)(p + 4096), 4096, PROT_READ);
        sink = (uint64_t)p[4096];
        p[0] = 2;
        puts("first page still writable"), fflush(stdout);
        p[4096] = 2;
    }
    if (!strncmp(how, "exit-", 5)) exit(atoi(how + 5));
    if (!strcmp(how, "quick-exit")) quick_exit(7);
    if (!strcmp(how, "return")) return 300;
    puts("survived");
    return 0;
}
