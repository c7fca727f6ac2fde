// Code without function boundaries: entries in the middle, computed jumps into runs of
// stores, `ra` as a general register, other link registers, overlapping instructions.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define FUNCTION(name) ".globl " #name "\n.type " #name ", @function\n" #name ":\n"
#define END(name) ".size " #name ", . - " #name "\n"

__asm__(
    ".text\n.option push\n.option norelax\n.option norvc\n"
    // void fill(char *p, int c, size_t n): a loop of 16 stores, entered at the remainder, as
    // in newlib's memset for short lengths.
    FUNCTION(fill)
    "andi a1, a1, 255\n beqz a2, 3f\n"
    "1: andi t0, a2, 15\n sub a2, a2, t0\n bnez t0, 2f\n li t0, 16\n addi a2, a2, -16\n"
    "2: li t1, 16\n sub t1, t1, t0\n slli t1, t1, 2\n add a0, a0, t0\n"
    "4: auipc t2, 0\n add t2, t2, t1\n jr 12(t2)\n"
    "sb a1, -16(a0)\n sb a1, -15(a0)\n sb a1, -14(a0)\n sb a1, -13(a0)\n"
    "sb a1, -12(a0)\n sb a1, -11(a0)\n sb a1, -10(a0)\n sb a1, -9(a0)\n"
    "sb a1, -8(a0)\n sb a1, -7(a0)\n sb a1, -6(a0)\n sb a1, -5(a0)\n"
    "sb a1, -4(a0)\n sb a1, -3(a0)\n sb a1, -2(a0)\n sb a1, -1(a0)\n"
    "bnez a2, 1b\n3: ret\n" END(fill)
    // long power(long x, long n) for n <= 12: enters a run of multiplications from its end.
    FUNCTION(power)
    "mv t0, a0\n li a0, 1\n slli a1, a1, 2\n lla t1, 1f\n sub t1, t1, a1\n jr t1\n"
    "mul a0, a0, t0\n mul a0, a0, t0\n mul a0, a0, t0\n mul a0, a0, t0\n"
    "mul a0, a0, t0\n mul a0, a0, t0\n mul a0, a0, t0\n mul a0, a0, t0\n"
    "mul a0, a0, t0\n mul a0, a0, t0\n mul a0, a0, t0\n mul a0, a0, t0\n"
    "1: ret\n" END(power)

    // Three entries into one body; the first falls through into the second.
    FUNCTION(entry_a) "addi a0, a0, 100\n" END(entry_a)
    FUNCTION(entry_b) "slli a0, a0, 1\n" END(entry_b)
    FUNCTION(entry_c)
    "li t0, 5\n"
    ".globl entry_loop\nentry_loop: addi a0, a0, 3\n xori a0, a0, 9\n addi t0, t0, -1\n"
    "bgtz t0, entry_loop\n ret\n" END(entry_c)
    // Jumps into the loop of another function, with its counter set.
    FUNCTION(into_loop) "mv t0, a1\n j entry_loop\n" END(into_loop)
    // A branch, not a jump, into another function's middle.
    FUNCTION(branch_away) "li t0, 2\n bltz a0, entry_loop\n addi a0, a0, 1\n ret\n" END(branch_away)
    // The same by a computed address that no table holds.
    FUNCTION(into_computed)
    "lla t1, entry_c\n addi t1, t1, 4\n andi t2, a1, 1\n slli t2, t2, 2\n add t1, t1, t2\n li t0, 3\n"
    "jr t1\n" END(into_computed)

    // ra is a counter, a factor and an address.
    FUNCTION(ra_counts)
    "mv t3, ra\n li ra, 10\n mv t0, a0\n li a0, 0\n"
    "1: add a0, a0, t0\n xor t0, t0, ra\n addi ra, ra, -1\n bnez ra, 1b\n jr t3\n" END(ra_counts)
    FUNCTION(ra_factor)
    "addi sp, sp, -16\n sd ra, 0(sp)\n li ra, 77\n mul a0, a0, ra\n mv ra, a0\n srli ra, ra, 3\n"
    "add a0, a0, ra\n sd a0, 8(sp)\n addi ra, sp, 8\n ld a0, 0(ra)\n ld ra, 0(sp)\n addi sp, sp, 16\n"
    "ret\n" END(ra_factor)
    // A call through ra itself, and a call whose link register is its target register.
    FUNCTION(through_ra)
    "addi sp, sp, -16\n sd ra, 0(sp)\n lla ra, ra_factor\n jalr ra, 0(ra)\n lla t0, t0_helper\n"
    "jalr t0, 0(t0)\n ld ra, 0(sp)\n addi sp, sp, 16\n ret\n" END(through_ra)
    // The link register is t0; the callee returns to the next instruction.
    FUNCTION(t0_helper) "addi a0, a0, 4\n jr t0\n" END(t0_helper)
    FUNCTION(t0_link)
    "jal t0, t0_helper\n jal t0, t0_helper\n slli a0, a0, 1\n jal t0, t0_helper\n ret\n" END(t0_link)
    // Link registers that the psABI does not use for links.
    FUNCTION(a5_link) "jal a5, 1f\n addi a0, a0, 1\n ret\n1: slli a0, a0, 3\n jr a5\n" END(a5_link)
    // Words after the call, which the callee reads and steps over.
    FUNCTION(inline_data)
    "mv t2, ra\n call 1f\n .word 1000, 7\n call 1f\n .word 2000, 3\n jr t2\n"
    "1: lw t0, 0(ra)\n lw t1, 4(ra)\n mul a0, a0, t1\n add a0, a0, t0\n jr 8(ra)\n" END(inline_data)
    // Changes its own return address to one of three addresses.
    FUNCTION(chooses)
    "mv t2, ra\n call 2f\n addi a0, a0, 1\n addi a0, a0, 10\n addi a0, a0, 100\n jr t2\n"
    "2: andi t0, a0, 3\n slli t0, t0, 2\n add ra, ra, t0\n ret\n" END(chooses)
    // The address of the next instruction by jal.
    FUNCTION(where)
    "mv t2, ra\n jal 1f\n1: lla t0, 1b\n sub t0, ra, t0\n add a0, a0, t0\n jr t2\n" END(where)
    // Returns not to its caller but to the caller's caller.
    FUNCTION(skips)
    "addi sp, sp, -16\n sd ra, 8(sp)\n call 1f\n addi a0, a0, 1000\n ld ra, 8(sp)\n addi sp, sp, 16\n ret\n"
    "1: addi a0, a0, 5\n andi t0, a0, 1\n beqz t0, 2f\n ret\n2: ld ra, 8(sp)\n addi sp, sp, 16\n ret\n"
    END(skips)
    // Return addresses pushed in advance: each ret goes to the next step.
    FUNCTION(chained)
    "addi sp, sp, -48\n sd ra, 32(sp)\n lla t0, 1f\n sd t0, 0(sp)\n lla t0, 2f\n sd t0, 8(sp)\n"
    "lla t0, 1f\n sd t0, 16(sp)\n lla t0, 3f\n sd t0, 24(sp)\n"
    "ld ra, 0(sp)\n addi sp, sp, 8\n ret\n"
    "1: addi a0, a0, 7\n ld ra, 0(sp)\n addi sp, sp, 8\n ret\n"
    "2: slli a0, a0, 2\n ld ra, 0(sp)\n addi sp, sp, 8\n ret\n"
    "3: ld ra, 0(sp)\n addi sp, sp, 16\n ret\n" END(chained)
    // A call as the last instruction: the code after it belongs to another function.
    FUNCTION(ends_in_call)
    "lla ra, landed\n mv t2, a1\n j 1f\n1: jal zero, ra_counts_by_t2\n" END(ends_in_call)
    FUNCTION(ra_counts_by_t2) "add a0, a0, t2\n ret\n" END(ra_counts_by_t2)
    FUNCTION(landed) "addi a0, a0, 9\n ld ra, 0(sp)\n addi sp, sp, 16\n ret\n" END(landed)
    FUNCTION(calls_ends_in_call) "addi sp, sp, -16\n sd ra, 0(sp)\n call ends_in_call\n" END(calls_ends_in_call)

    // `lui a1, 0x5050`, whose second half (0505) is `c.addi a0, 1`.
    ".balign 4\n"
    FUNCTION(overlap)
    "beqz a1, 1f\n lla t0, 2f\n addi t0, t0, 2\n jr t0\n"
    "1: li a1, 0\n2: .word 0x050505b7\n addi a0, a0, 32\n add a0, a0, a1\n ret\n" END(overlap)
    // `lui a1, 0x5090`, whose second half is `c.addi a0, 2`, jumped to directly.
    FUNCTION(overlap_direct)
    "li a1, 0\n beqz a2, 2f\n j 2f + 2\n2: .word 0x050905b7\n srli a1, a1, 12\n add a0, a0, a1\n ret\n"
    END(overlap_direct)
    ".option pop\n");

typedef long simple(long, long, long);
extern simple entry_a, entry_b, entry_c, into_loop, branch_away, into_computed, ra_counts, ra_factor,
    through_ra, t0_link, a5_link, inline_data, chooses, where, skips, chained, calls_ends_in_call,
    overlap, overlap_direct;
void fill(void *, int, size_t);
long power(long, long);

// Unrolled eight times in C, entered by a switch.
__attribute__((noinline)) static unsigned duff(const unsigned char *p, unsigned count) {
    unsigned sum = 1, rounds = (count + 7) / 8;
    if (count == 0) return 0;
    switch (count % 8) {
    case 0: do { sum = sum * 3 + *p++;
    case 7:      sum = sum * 5 + *p++;
    case 6:      sum ^= *p++ << 3;
    case 5:      sum += *p++;
    case 4:      sum = sum * 7 - *p++;
    case 3:      sum = (sum << 5 | sum >> 27) + *p++;
    case 2:      sum -= *p++;
    case 1:      sum = sum * 11 + *p++;
            } while (--rounds > 0);
    }
    return sum;
}

int main(void) {
#define ROW(name) {#name, name}
    const struct { const char *name; simple *function; } rows[] = {
        ROW(entry_a), ROW(entry_b), ROW(entry_c), ROW(into_loop), ROW(branch_away),
        ROW(into_computed), ROW(ra_counts), ROW(ra_factor), ROW(through_ra), ROW(t0_link),
        ROW(a5_link), ROW(inline_data), ROW(chooses), ROW(where), ROW(skips), ROW(chained),
        ROW(calls_ends_in_call), ROW(overlap), ROW(overlap_direct),
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("%s:", rows[i].name);
        for (long a = -2; a < 6; a++) printf(" %ld", rows[i].function(a, a & 1, a & 2));
        // And often, so that the hot code differs from the tested code.
        long sum = 0;
        for (long a = 0; a < 3000; a++) sum = sum * 3 + rows[i].function(a, a % 5, a % 3);
        printf(" %ld\n", sum);
    }
    unsigned char block[200];
    unsigned hash = 0;
    for (unsigned n = 0; n < 100; n++) {
        memset(block, 1, sizeof block);
        fill(block + n % 7, (int)(n * 37), n);
        for (unsigned i = 0; i < sizeof block; i++) hash = hash * 31 + block[i];
        hash = hash * 31 + duff(block, n);
    }
    printf("%u\n", hash);
    for (long n = 0; n <= 12; n++) printf("%ld ", power(3, n));
    puts("");
    return 0;
}
