// Jump tables of the shapes that compilers and programmers make. The functions in assembly,
// long shape(long index), return a number for each case, and 0 for no case.
#include <stdint.h>
#include <stdio.h>

#define FUNCTION(name) ".globl " #name "\n.type " #name ", @function\n" #name ":\n"
#define END(name) ".size " #name ", . - " #name "\n"
#define BELOW(count) "li t0, " #count "\n bgeu a0, t0, 9f\n"
#define CASES                                                                     \
    "10: li a0, 101\n ret\n11: li a0, 202\n ret\n12: li a0, 303\n j 14f\n"          \
    "13: li a0, 404\n14: addi a0, a0, 1\n ret\n9: li a0, 0\n ret\n"

__asm__(
    ".text\n.option push\n.option arch, +zba\n"
    // 1-, 2-, 4- and 8-byte offsets from the table; and from the code, halved.
    FUNCTION(byte_offsets) BELOW(4)
    "la t1, 1f\n add t2, t1, a0\n lbu t2, 0(t2)\n la t1, 10f\n add t1, t1, t2\n jr t1\n"
    ".section .rodata\n1: .byte 10f - 10f, 11f - 10f, 12f - 10f, 13f - 10f\n.text\n" CASES
    END(byte_offsets)
    FUNCTION(halved_bytes) BELOW(4)
    "la t1, 1f\n add t2, t1, a0\n lbu t2, 0(t2)\n slli t2, t2, 1\n la t1, 10f\n add t1, t1, t2\n"
    "jr t1\n"
    ".section .rodata\n1: .byte (10f - 10f) / 2, (11f - 10f) / 2, (12f - 10f) / 2, (13f - 10f) / 2\n"
    ".text\n" CASES
    END(halved_bytes)
    FUNCTION(half_offsets) BELOW(4)
    "la t1, 1f\n sh1add t2, a0, t1\n lh t2, 0(t2)\n la t1, 12f\n add t1, t1, t2\n jr t1\n"
    ".section .rodata\n.balign 2\n1: .half 10f - 12f, 11f - 12f, 12f - 12f, 13f - 12f\n.text\n" CASES
    END(half_offsets)
    FUNCTION(word_offsets) BELOW(4)
    "la t1, 1f\n slli t2, a0, 2\n add t2, t2, t1\n lw t2, 0(t2)\n add t1, t1, t2\n jr t1\n"
    ".section .rodata\n.balign 4\n1: .word 10f - 1b, 11f - 1b, 12f - 1b, 13f - 1b\n.text\n" CASES
    END(word_offsets)
    FUNCTION(double_offsets) BELOW(4)
    "la t1, 1f\n slli t2, a0, 3\n add t2, t2, t1\n ld t2, 0(t2)\n add t1, t1, t2\n jr t1\n"
    ".section .rodata\n.balign 8\n1: .dword 10f - 1b, 11f - 1b, 12f - 1b, 13f - 1b\n.text\n" CASES
    END(double_offsets)
    // Addresses, in relocated constants and in writable data.
    FUNCTION(absolute) BELOW(4)
    "la t1, 1f\n slli t2, a0, 3\n add t2, t2, t1\n ld t2, 0(t2)\n jr t2\n"
    ".section .data.rel.ro, \"aw\"\n.balign 8\n1: .dword 10f, 11f, 12f, 13f\n.text\n" CASES
    END(absolute)
    FUNCTION(writable) BELOW(4)
    "la t1, writable_table\n slli t2, a0, 3\n add t2, t2, t1\n ld t2, 0(t2)\n jr t2\n"
    ".data\n.balign 8\n.globl writable_table\nwritable_table: .dword 10f, 11f, 12f, 13f\n.text\n" CASES
    END(writable)
    // The table between the functions' instructions.
    FUNCTION(in_text) BELOW(4)
    "la t1, 1f\n slli t2, a0, 2\n add t2, t2, t1\n lw t2, 0(t2)\n add t1, t1, t2\n jr t1\n"
    ".balign 4\n1: .word 10f - 1b, 11f - 1b, 12f - 1b, 13f - 1b\n" CASES
    END(in_text)
    // No table: all cases have the same length.
    FUNCTION(steps) BELOW(4)
    ".option push\n.option norvc\n.option norelax\n"
    "slli t2, a0, 3\n1: auipc t1, 0\n add t1, t1, t2\n jr 12(t1)\n"
    "li a0, 111\n ret\n li a0, 222\n ret\n li a0, 333\n ret\n li a0, 444\n ret\n"
    "9: li a0, 0\n ret\n.option pop\n"
    END(steps)
    // The index goes through a table of bytes first.
    FUNCTION(two_levels) BELOW(8)
    "la t1, 2f\n add t2, t1, a0\n lbu t2, 0(t2)\n la t1, 1f\n sh2add t2, t2, t1\n lw t2, 0(t2)\n"
    "add t1, t1, t2\n jr t1\n"
    ".section .rodata\n.balign 4\n1: .word 10f - 1b, 11f - 1b, 12f - 1b, 13f - 1b\n"
    "2: .byte 0, 3, 1, 1, 2, 0, 3, 2\n.text\n" CASES
    END(two_levels)
    // No comparison: the index is a masked value or a remainder.
    FUNCTION(masked)
    "andi a0, a0, 3\n la t1, 1f\n slli t2, a0, 2\n add t2, t2, t1\n lw t2, 0(t2)\n add t1, t1, t2\n"
    "jr t1\n.section .rodata\n.balign 4\n1: .word 10f - 1b, 11f - 1b, 12f - 1b, 13f - 1b\n.text\n" CASES
    END(masked)
    FUNCTION(modulo)
    "li t0, 3\n remu a0, a0, t0\n la t1, 1f\n slli t2, a0, 2\n add t2, t2, t1\n lw t2, 0(t2)\n"
    "add t1, t1, t2\n jr t1\n"
    ".section .rodata\n.balign 4\n1: .word 10f - 1b, 11f - 1b, 12f - 1b\n.text\n" CASES
    END(modulo)
    // The first case is 100; the base is before the table.
    FUNCTION(shifted)
    "addi t2, a0, -100\n li t0, 4\n bgeu t2, t0, 9f\n lla t1, 1f - 400\n slli t2, a0, 2\n"
    "add t2, t2, t1\n lw t2, 0(t2)\n la t1, 1f\n add t1, t1, t2\n jr t1\n"
    ".section .rodata\n.balign 4\n1: .word 10f - 1b, 11f - 1b, 12f - 1b, 13f - 1b\n.text\n" CASES
    END(shifted)
    // Backwards in memory.
    FUNCTION(backwards) BELOW(4)
    "la t1, 1f\n slli t2, a0, 2\n sub t2, t1, t2\n lw t2, -4(t2)\n sub t1, t1, t2\n jr t1\n"
    ".section .rodata\n.balign 4\n .word 1f - 13f, 1f - 12f, 1f - 11f, 1f - 10f\n1:\n.text\n" CASES
    END(backwards)
    // Entries that lead into other functions, to their beginnings and elsewhere.
    FUNCTION(elsewhere) BELOW(4)
    "la t1, 1f\n slli t2, a0, 2\n add t2, t2, t1\n lw t2, 0(t2)\n add t1, t1, t2\n jr t1\n"
    ".section .rodata\n.balign 4\n1: .word masked - 1b, 2f - 1b, shifted - 1b, 3f - 1b\n.text\n"
    "9: li a0, 0\n ret\n" END(elsewhere)
    FUNCTION(host_of_entries)
    "li a0, 1\n2: addi a0, a0, 50\n3: slli a0, a0, 2\n ret\n" END(host_of_entries)
    // Calls through a table, with t0 and with ra as link register.
    FUNCTION(calls) BELOW(4)
    "addi sp, sp, -16\n sd ra, 8(sp)\n la t1, 1f\n slli t2, a0, 2\n add t2, t2, t1\n lw t2, 0(t2)\n"
    "add t1, t1, t2\n jalr ra, t1\n ld ra, 8(sp)\n addi sp, sp, 16\n addi a0, a0, 7\n ret\n"
    ".section .rodata\n.balign 4\n1: .word 10f - 1b, 11f - 1b, 12f - 1b, 13f - 1b\n.text\n" CASES
    END(calls)
    // Two tables one after the other that share their cases.
    FUNCTION(shared) BELOW(4)
    "la t1, 1f\n slli t2, a0, 2\n add t2, t2, t1\n lw t2, 0(t2)\n add t1, t1, t2\n mv a1, a0\n jr t1\n"
    "10: li t0, 2\n bgtu a1, t0, 9f\n la t1, 2f\n slli t2, a1, 2\n add t2, t2, t1\n lw t2, 0(t2)\n"
    "add t1, t1, t2\n addi a1, a1, 1\n jr t1\n"
    "11: addi a0, a1, 600\n ret\n12: slli a1, a1, 1\n13: addi a1, a1, 1\n j 10b\n9: li a0, 0\n ret\n"
    ".section .rodata\n.balign 4\n1: .word 10b - 1b, 11b - 1b, 12b - 1b, 13b - 1b\n"
    "2: .word 13b - 2b, 10b - 2b, 11b - 2b\n.text\n" END(shared)
    // The table is most likely the first one, but a variable may select another.
    FUNCTION(two_bases) BELOW(8)
    "la t1, 1f\n li t0, 4\n bltu a0, t0, 3f\n addi a0, a0, -4\n la t1, 4f\n ld t1, 0(t1)\n"
    "3: bgeu a0, t0, 9f\n slli t2, a0, 2\n add t2, t2, t1\n lw t2, 0(t2)\n add t2, t2, t1\n jr t2\n"
    ".section .rodata\n.balign 4\n1: .word 10f - 1b, 11f - 1b, 12f - 1b, 13f - 1b\n"
    "2: .word 13f - 2b, 12f - 2b, 11f - 2b, 10f - 2b\n"
    ".data\n.balign 8\n4: .dword 2b\n.text\n" CASES
    END(two_bases)
    // The entry's address is computed early and spilled to memory.
    FUNCTION(spilled) BELOW(4)
    "la t1, 1f\n slli t2, a0, 2\n add t2, t2, t1\n addi sp, sp, -16\n sd t2, 8(sp)\n ld t2, 8(sp)\n"
    "addi sp, sp, 16\n la t1, 1f\n lw t2, 0(t2)\n add t2, t2, t1\n jr t2\n"
    ".section .rodata\n.balign 4\n1: .word 10f - 1b, 11f - 1b, 12f - 1b, 13f - 1b\n.text\n" CASES
    END(spilled)
    // Bytecode: every handler ends in the same jump, and the last one takes its own from
    // another table.
#define NEXT "lbu t2, 0(t3)\n addi t3, t3, 1\n slli t2, t2, 3\n add t2, t2, t1\n ld t2, 0(t2)\n jr t2\n"
    FUNCTION(threaded) BELOW(4)
    "la t1, 1f\n la t3, 2f\n slli t2, a0, 2\n add t3, t3, t2\n" NEXT
    "10: slli a0, a0, 1\n" NEXT "11: addi a0, a0, 5\n" NEXT "12: xori a0, a0, 9\n" NEXT
    "13: la t1, 3f\n" NEXT "14: la t1, 1f\n addi a0, a0, 100\n" NEXT "9: li a0, 0\n15: ret\n"
    ".section .data.rel.ro, \"aw\"\n.balign 8\n1: .dword 10b, 11b, 12b, 13b, 15b\n"
    "3: .dword 12b, 11b, 10b, 14b, 15b\n"
    ".section .rodata\n2: .byte 0, 1, 2, 3, 1, 2, 0, 3, 0, 0, 2, 3, 3, 1, 1, 4, 4, 4, 4\n.text\n"
    END(threaded)
    ".option pop\n");

typedef long shape(long);
extern shape byte_offsets, halved_bytes, half_offsets, word_offsets, double_offsets, absolute,
    writable, in_text, steps, two_levels, masked, modulo, shifted, backwards, elsewhere,
    host_of_entries, calls, shared, two_bases, spilled, threaded;
extern const void *writable_table[4];

__attribute__((noinline)) static int dense(int v) {
    switch (v) {
    case 0: return 17;
    case 1: return v * 3;
    case 2: v += 4; // falls through
    case 3: v *= 2; // falls through
    case 4: return v;
    case 5: return -1;
    case 6: return 99;
    case 7: return v << 4;
    case 8: return 3;
    case 9: return v ^ 0x55;
    }
    return -100;
}

__attribute__((noinline)) static long wide(long v) {
    switch (v) {
    case -5: return 1;
    case -4: return 22;
    case -3: return 333;
    case -2: return v * v;
    case -1: return 55555;
    case 0: return 6;
    case 1: return 77;
    case 0x7000000000000000: return 8;
    case 0x7000000000000001: return 99;
    case 0x7000000000000002: return 10;
    case 0x7000000000000003: return 11;
    case 0x7000000000000004: return 1212;
    case 0x7000000000000005: return v >> 60;
    }
    return v > 0;
}

__attribute__((noinline)) static int within(unsigned outer, unsigned char inner) {
    int result = 0;
    for (unsigned i = 0; i < 3; i++) {
        switch (outer + i) {
        case 0: result += 1; break;
        case 1:
            switch (inner) {
            case 'a': return result + 10;
            case 'b': result += 20; break;
            case 'c': continue;
            case 'd': result *= 3; break;
            case 'e': result -= 7; break;
            case 'f': goto out;
            default: result ^= 1;
            }
            break;
        case 2: result += inner; break;
        case 3: result += 1000; break;
        case 4: inner++; break;
        case 5: result = -result; break;
        case 6:
            switch (i) {
            case 0: result += 5; break;
            case 1: result += 6; break;
            case 2: result += 8; break;
            }
            break;
        default: result++;
        }
    }
out:
    return result;
}

int main(void) {
#define ROW(name) {#name, name}
    const struct { const char *name; shape *function; } rows[] = {
        ROW(byte_offsets), ROW(halved_bytes), ROW(half_offsets), ROW(word_offsets),
        ROW(double_offsets), ROW(absolute), ROW(writable), ROW(in_text), ROW(steps),
        ROW(two_levels), ROW(masked), ROW(modulo), ROW(shifted), ROW(backwards),
        ROW(elsewhere), ROW(host_of_entries), ROW(calls), ROW(shared), ROW(two_bases),
        ROW(spilled), ROW(threaded),
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("%s:", rows[i].name);
        for (long index = -1; index < 9; index++) printf(" %ld", rows[i].function(index));
        for (long index = 99; index < 105; index++) printf(" %ld", rows[i].function(index));
        puts("");
    }
    const void *first = writable_table[0];
    for (int i = 0; i < 3; i++) writable_table[i] = writable_table[i + 1];
    writable_table[3] = first;
    printf("writable, turned:");
    for (long index = -1; index < 5; index++) printf(" %ld", writable(index));
    writable_table[2] = (const void *)host_of_entries;
    printf(", with another function: %ld\n", writable(2));

    for (int v = -2; v < 12; v++) printf("%d ", dense(v));
    for (long v = -7; v < 3; v++) printf("%ld %ld ", wide(v), wide(0x7000000000000000 + v + 4));
    puts("");
    int sum = 0;
    for (unsigned o = 0; o < 9; o++)
        for (unsigned i = 'a' - 1; i < 'h'; i++) sum = sum * 31 + within(o, (unsigned char)i);
    printf("%d\n", sum);
    return 0;
}
