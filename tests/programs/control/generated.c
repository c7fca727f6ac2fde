// Code made at run time: written, called, changed and called again.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef long function(long, long);
enum { RD = 7, RS1 = 15, RS2 = 20, A0 = 10, A1 = 11, T0 = 5 };

static uint32_t addi(int rd, int rs, int value) {
    return (uint32_t)value << 20 | (uint32_t)rs << RS1 | (uint32_t)rd << RD | 0x13;
}
static uint32_t add(int rd, int a, int b) { return (uint32_t)(b << RS2 | a << RS1 | rd << RD | 0x33); }
static uint32_t mul(int rd, int a, int b) { return add(rd, a, b) | 1 << 25; }
static uint32_t jal(int rd, int offset) {
    uint32_t o = (uint32_t)offset;
    return (o >> 20 & 1) << 31 | (o >> 1 & 0x3ff) << 21 | (o >> 11 & 1) << 20 | (o & 0xff000) |
           (uint32_t)rd << RD | 0x6f;
}
static const uint32_t RET = 0x8067, JUMP_A1 = 0x58067;

static void fence(void) { __asm__ volatile("fence.i" ::: "memory"); }
static void by_call(void *start, void *end) { syscall(259, start, end, 1); }
static void *pages(size_t count, int protection) {
    void *p = mmap(NULL, count * 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(3);
    return p;
}
static long call(const void *code, long a, long b) { return ((function *)(uintptr_t)code)(a, b); }
static long helper(long a, long b) { return a * 1000 + b; }

// One instruction changed repeatedly, in a page that is writable and executable.
static void patched(void) {
    uint32_t *code = pages(1, PROT_READ | PROT_WRITE | PROT_EXEC);
    code[1] = RET;
    long sum = 0;
    for (int i = 0; i < 2000; i++) {
        code[0] = addi(A0, A0, i);
        if (i & 1) fence();
        else by_call(code, code + 2);
        sum = sum * 3 + call(code, i, 0);
    }
    printf("patched %ld\n", sum);
    munmap(code, 4096);
}

// Written, then made executable; never both at once.
static void exclusive(void) {
    uint32_t *code = pages(1, PROT_READ | PROT_WRITE);
    long sum = 0;
    for (int i = 1; i < 200; i++) {
        mprotect(code, 4096, PROT_READ | PROT_WRITE);
        for (int j = 0; j < i; j++) code[j] = j % 3 ? add(A0, A0, A1) : mul(A0, A0, A1);
        code[i] = RET;
        mprotect(code, 4096, PROT_READ | PROT_EXEC);
        by_call(code, code + i + 1);
        sum = sum * 5 + call(code, i, 3);
    }
    printf("exclusive %ld\n", sum);
}

// An instruction across a page boundary, for each change.
static void across(void) {
    unsigned char *area = pages(2, PROT_READ | PROT_WRITE | PROT_EXEC);
    uint16_t *code = (uint16_t *)(area + 4094);
    long sum = 0;
    for (int i = 0; i < 300; i++) {
        uint32_t words[2] = {addi(A0, A1, i), RET};
        memcpy(code, words, 8);
        fence();
        sum += call(code, 0, i);
        if (i % 50 == 0) {
            // The second page only.
            mprotect(area + 4096, 4096, PROT_READ);
            mprotect(area + 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
            sum += call(code, 0, 1);
        }
    }
    printf("across %ld\n", sum);
}

// Other code at the same address, after unmapping and by mapping over.
static void remapped(void) {
    uint32_t *code = pages(1, PROT_READ | PROT_WRITE | PROT_EXEC);
    long sum = 0;
    for (int i = 0; i < 200; i++) {
        if (i % 2) munmap(code, 4096);
        code = mmap(code, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        code[0] = i % 3 ? addi(A0, A0, i) : mul(A0, A0, A0);
        code[1] = RET;
        fence();
        sum = sum * 3 + call(code, i, 0);
    }
    printf("remapped %ld\n", sum);
}

// Generated code and the program call each other; the code moves itself.
static long rounds;
static uint32_t *bouncer;
static long bounce(long a, long b) {
    if (rounds-- <= 0) return a + b;
    bouncer[0] = addi(A0, A0, (int)(rounds % 100));
    fence();
    return call(bouncer, b, (long)(uintptr_t)bounce) + a % 7;
}
static void turns(void) {
    bouncer = pages(1, PROT_READ | PROT_WRITE | PROT_EXEC);
    const uint32_t rest[] = {addi(T0, A1, 0), addi(A1, A0, 5), 0x28067 /* jr t0 */};
    memcpy(bouncer + 1, rest, sizeof rest);
    rounds = 400;
    printf("turns %ld\n", bounce(3, 4));
    bouncer[0] = JUMP_A1;
    fence();
    printf("tail %ld\n", call(bouncer, 9, (long)(uintptr_t)helper) / 1000);
}

// Code that changes the code after it, then executes it.
static void itself(void) {
    uint32_t *code = pages(1, PROT_READ | PROT_WRITE | PROT_EXEC);
    // sw a1, 12(a0); fence.i; li a0, 1 (skipped over); <word>; ret
    const uint32_t body[] = {0x00b52623, 0x0000100f, addi(A0, 0, 1), addi(A0, A0, 1), RET};
    memcpy(code, body, sizeof body);
    fence();
    long sum = 0;
    for (int i = 0; i < 500; i++)
        sum = sum * 3 + call(code, (long)(uintptr_t)code, (long)addi(A0, A0, i));
    printf("itself %ld\n", sum);
}

// A loop long enough to become hot, written again with another body.
static void loops(void) {
    uint32_t *code = pages(1, PROT_READ | PROT_WRITE | PROT_EXEC);
    for (int i = 0; i < 4; i++) {
        const uint32_t body[] = {addi(T0, A0, 0), addi(A0, 0, 0), add(A0, A0, A1), addi(A0, A0, i),
                                 addi(T0, T0, -1), 0xfe029ae3 /* bnez t0, -12 */, RET};
        memcpy(code, body, sizeof body);
        by_call(code, code + 7);
        printf("loop %ld\n", call(code, 30000, i));
    }
}

// On the stack, which must be made executable.
__attribute__((noinline)) static long on_stack(void) {
    uint32_t code[4] __attribute__((aligned(64))) = {mul(A0, A0, A1), addi(A0, A0, 1), RET};
    uintptr_t page = (uintptr_t)code & ~4095ul;
    mprotect((void *)page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    fence();
    long result = call(code, 6, 7);
    code[0] = add(A0, A0, A1);
    fence();
    result = result * 100 + call(code, 6, 7);
    mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
    return result;
}

// A long run over many pages with a jump from each to the next, some backwards.
static void chain(void) {
    enum { PAGES = 64 };
    unsigned char *area = pages(PAGES, PROT_READ | PROT_WRITE | PROT_EXEC);
    long sum = 0;
    for (int stride = 1; stride < 8; stride += 2) {
        int page = 0;
        for (int i = 0; i < PAGES; i++) {
            int next = (page + stride * 5) % PAGES;
            uint32_t *code = (uint32_t *)(area + page * 4096 + 16 * i);
            code[0] = addi(A0, A0, page + stride);
            code[1] = i == PAGES - 1 ? RET : jal(0, (next - page) * 4096 + 16 - 4);
            page = next;
        }
        fence();
        sum = sum * 31 + call(area, 0, 0);
    }
    printf("chain %ld\n", sum);
}

// A function that returns results in temporary registers, which callers must not use by the
// psABI. Only its one caller, generated code, uses them.
long own_way(void);
__asm__(".text\n.type own_way, @function\nown_way: li t3, 40\n li t4, 2\n li a5, 100\n ret\n"
        ".size own_way, .-own_way\n");
static void convention(void) {
    uint32_t *code = pages(1, PROT_READ | PROT_WRITE | PROT_EXEC);
    const uint32_t words[] = {
        addi(2, 2, -16), 0x00113423,                          // addi sp, sp, -16; sd ra, 8(sp)
        0x000500e7,                                           // jalr ra, a0
        add(A0, 28, 29), add(A0, A0, 15),                     // add a0, t3, t4; add a0, a0, a5
        0x00813083, addi(2, 2, 16), RET,                      // ld ra, 8(sp); addi sp, sp, 16; ret
    };
    memcpy(code, words, sizeof words);
    fence();
    long sum = 0;
    for (int i = 0; i < 1000; i++) sum += call(code, (long)own_way, 0);
    printf("convention %ld\n", sum);
}

int main(void) {
    patched();
    exclusive();
    across();
    remapped();
    turns();
    itself();
    loops();
    printf("stack %ld\n", on_stack());
    chain();
    convention();
    return 0;
}
