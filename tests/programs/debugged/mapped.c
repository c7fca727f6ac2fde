// Code in memory that is unmapped, mapped anew and protected, for breakpoints in it.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static unsigned char *const page = (unsigned char *)0x50000000;

__attribute__((noipa)) void hit(int number) {
    __asm__ volatile("" : : "r"(number));
}

// Maps a function that returns `value`.
static void put(uint32_t value) {
    // addi a0, zero, value; jalr zero, 0(ra)
    uint32_t code[] = {0x00000513 | value << 20, 0x00008067};
    int protection = PROT_READ | PROT_WRITE | PROT_EXEC;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(page, 4096, protection, flags, -1, 0) != page) {
        exit(99);
    }
    memcpy(page, code, sizeof code);
    __builtin___clear_cache((char *)page, (char *)page + sizeof code);
}

static int call(void) {
    return ((int (*)(void))(uintptr_t)page)();
}

int main(void) {
    put(1);
    hit(1);
    int total = call();
    munmap(page, 4096);
    hit(2);
    put(2);
    hit(3);
    total += call();
    mprotect(page, 4096, PROT_NONE);
    hit(4);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    return total + call();
}
