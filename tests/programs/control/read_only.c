// Constants that change: their pages are made writable and written, replaced, or unmapped.
// In between runs code that was translated while the constants were as in the file.
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096

struct constants {
    int64_t doubleword;
    int32_t word;
    uint32_t unsigned_word;
    int16_t half;
    uint16_t unsigned_half;
    int8_t byte;
    uint8_t unsigned_byte;
    float single;
    double wide;
    double nan;
};

// In assembly, so that the compiler does not know the values. On a separate page, and hidden, so
// that the code computes their address.
extern const struct constants constants __attribute__((visibility("hidden")));
__asm__(
    ".section .rodata\n.balign 4096\n.globl constants\n.hidden constants\nconstants:\n"
    ".dword 0x8123456789abcdef\n.word 0x87654321, 0x87654321\n.half 0x8765, 0x8765\n"
    ".byte 0x87, 0x87\n.balign 4\n.word 0x3fc00000\n.balign 8\n.dword 0x4004000000000000\n"
    // A signalling NaN with a payload.
    ".dword 0x7ff4000000012345\n.balign 4096\n.text\n");

#define READER(type, field) \
    __attribute__((noipa)) static type read_##field(void) { return constants.field; }
READER(int64_t, doubleword)
READER(int64_t, word)
READER(uint64_t, unsigned_word)
READER(int64_t, half)
READER(uint64_t, unsigned_half)
READER(int64_t, byte)
READER(uint64_t, unsigned_byte)
READER(float, single)
READER(double, wide)
READER(double, nan)

// A constant in arithmetic, in a loop that does not call.
__attribute__((noipa)) static double polynomial(double x, int rounds) {
    double sum = 0;
    for (int i = 0; i < rounds; i++) sum = sum * x + constants.wide;
    return sum;
}

static void show(const char *when) {
    double nan = read_nan();
    uint64_t bits;
    memcpy(&bits, &nan, sizeof bits);
    printf("%s: %lx %ld %lu %ld %lu %ld %lu %g %g %lx %g\n", when, (long)read_doubleword(),
           (long)read_word(), (long)read_unsigned_word(), (long)read_half(),
           (long)read_unsigned_half(), (long)read_byte(), (long)read_unsigned_byte(),
           read_single(), read_wide(), (long)bits, polynomial(0.5, 5));
}

// The compiler must not see that this is the address of the constants.
__attribute__((noipa)) static void *page(void) { return (void *)(uintptr_t)&constants; }

static void protect(int protection) {
    if (mprotect(page(), PAGE, protection)) puts("mprotect failed");
}

static void change(int by) {
    struct constants *changed = page();
    changed->doubleword += by;
    changed->word += by;
    changed->unsigned_word += by;
    changed->half += by;
    changed->unsigned_half += by;
    changed->byte += by;
    changed->unsigned_byte += by;
    changed->single += by;
    changed->wide += by;
}

// In a function that has read the constant before and continues.
__attribute__((noipa)) static int64_t in_between(int protection) {
    int64_t before = read_word() + constants.word;
    protect(PROT_READ | PROT_WRITE);
    change(1);
    protect(protection);
    return before - read_word() - constants.word;
}

static void replace(int flags) {
    void *at = mmap(page(), PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (at != page()) puts("mmap failed");
}

static sigjmp_buf out;
static void leave(int signal) { siglongjmp(out, signal); }

int main(void) {
    show("in the file");
    show("again");
    printf("in between: %ld\n", (long)in_between(PROT_READ));
    show("changed");
    printf("in between: %ld\n", (long)in_between(PROT_READ | PROT_EXEC));
    show("executable");
    replace(MAP_FIXED);
    show("zero");
    change(7);
    show("seven");
    if (munmap(page(), PAGE)) puts("munmap failed");
    replace(MAP_FIXED_NOREPLACE);
    change(3);
    show("mapped anew");
    signal(SIGSEGV, leave);
    int how = sigsetjmp(out, 1);
    if (how == 0) {
        protect(PROT_NONE);
        printf("not there: %ld\n", (long)read_word());
    }
    printf("signal %d\n", how);
    protect(PROT_READ);
    show("back");
    return 0;
}
