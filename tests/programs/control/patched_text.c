// The program changes its own code after it was translated: it makes the text writable,
// replaces a function and restores it; a writable section of code; the running function.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define FUNCTION(name) ".globl " #name "\n.type " #name ", @function\n" #name ":\n"
#define END(name) ".size " #name ", . - " #name "\n"

__asm__(
    ".text\n.option push\n.option norvc\n"
    FUNCTION(victim) "addi a0, a0, 1\n ret\n" END(victim)
    FUNCTION(caller)
    "addi sp, sp, -16\n sd ra, 8(sp)\n call victim\n slli a0, a0, 1\n ld ra, 8(sp)\n"
    "addi sp, sp, 16\n ret\n" END(caller)
    // Stores a1 over the instruction at label 1 and then executes it.
    FUNCTION(changes_itself)
    "lla t0, 1f\n sw a1, 0(t0)\n fence.i\n li t1, 3\n2: addi a0, a0, 100\n1: addi a0, a0, 0\n"
    "addi t1, t1, -1\n bnez t1, 2b\n ret\n" END(changes_itself)
    ".section .writable, \"awx\", @progbits\n"
    FUNCTION(in_writable) "addi a0, a0, 7\n ret\n" END(in_writable)
    ".text\n.option pop\n");
long victim(long), caller(long), changes_itself(long, uint32_t), in_writable(long);

static uint32_t addi_a0(int value) { return (uint32_t)value << 20 | 0x50513; }
static void fence(void) { __asm__ volatile("fence.i" ::: "memory"); }

static void protect(const void *at, int protection) {
    uintptr_t page = (uintptr_t)at & ~4095ul;
    if (mprotect((void *)page, 8192, protection)) puts("mprotect failed");
}

static void patch(const void *at, uint32_t word) {
    memcpy((void *)(uintptr_t)at, &word, 4);
    fence();
}

// From the loop that calls it.
__attribute__((noinline)) static long in_loop(void) {
    long sum = 0;
    for (int i = 0; i < 50; i++) {
        if (i % 10 == 5) {
            protect((const void *)victim, PROT_READ | PROT_WRITE | PROT_EXEC);
            patch((const void *)victim, addi_a0(i));
            protect((const void *)victim, PROT_READ | PROT_EXEC);
        }
        sum = sum * 3 + caller(i);
    }
    return sum;
}

int main(void) {
    // In pages that contain code and data from the start.
    printf("writable section: %ld", in_writable(1));
    for (int i = 10; i < 13; i++) {
        patch((const void *)in_writable, addi_a0(i));
        printf(" %ld", in_writable(1));
    }
    puts("");
    printf("before: %ld %ld\n", victim(1), caller(1));
    printf("loop: %ld\n", in_loop());
    printf("after: %ld %ld\n", victim(1), caller(1));
    // Writable and not executable in between.
    protect((const void *)changes_itself, PROT_READ | PROT_WRITE | PROT_EXEC);
    for (int i = 0; i < 4; i++) printf("%ld ", changes_itself(1, addi_a0(i)));
    puts("");
    protect((const void *)changes_itself, PROT_READ | PROT_EXEC);
    printf("%ld\n", caller(5));
    return 0;
}
