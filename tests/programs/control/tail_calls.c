// Calls that are jumps: direct, through pointers and tables, a million deep, with
// arguments in registers and on the stack.
#include <stdint.h>
#include <stdio.h>

#define FUNCTION(name) ".globl " #name "\n.type " #name ", @function\n" #name ":\n"
#define END(name) ".size " #name ", . - " #name "\n"

// In assembly, so that they are tail calls at every optimisation level.
__asm__(
    ".text\n"
    FUNCTION(is_even) "beqz a0, 1f\n addi a0, a0, -1\n tail is_odd\n1: li a0, 1\n ret\n" END(is_even)
    FUNCTION(is_odd) "beqz a0, 1f\n addi a0, a0, -1\n tail is_even\n1: ret\n" END(is_odd)
    // Pops its frame before it leaves.
    FUNCTION(frames)
    "addi sp, sp, -32\n sd ra, 24(sp)\n sd s0, 16(sp)\n mv s0, a1\n beqz a0, 1f\n"
    "addi a0, a0, -1\n add a1, s0, a0\n ld ra, 24(sp)\n ld s0, 16(sp)\n addi sp, sp, 32\n tail frames\n"
    "1: mv a0, s0\n ld ra, 24(sp)\n ld s0, 16(sp)\n addi sp, sp, 32\n ret\n" END(frames)
    // Continuation passing: a2 is the continuation, a1 the value.
    FUNCTION(step_one) "beqz a0, 1f\n addi a0, a0, -1\n slli a1, a1, 1\n lla a2, step_two\n jr a2\n1: mv a0, a1\n ret\n"
    END(step_one)
    FUNCTION(step_two) "beqz a0, 1f\n addi a0, a0, -1\n xori a1, a1, 5\n lla a2, step_one\n jr a2\n1: mv a0, a1\n ret\n"
    END(step_two)
    // A jump through t1, as in procedure linkage tables, leaves ra to the target.
    FUNCTION(by_t1) "lla t1, linkage\n ld t1, 0(t1)\n jr t1\n" END(by_t1)
    ".data\n.balign 8\nlinkage: .dword frames\n.text\n"
    // A conditional tail call.
    FUNCTION(maybe) "bgtz a0, frames\n mv a0, a1\n ret\n" END(maybe));

long is_even(long), is_odd(long), frames(long, long), step_one(long, long), by_t1(long, long),
    maybe(long, long);

struct machine { const uint8_t *code; uint64_t value; long left; };
typedef uint64_t operation(struct machine *);
static operation op_add, op_mul, op_rot, op_jump, op_end;
static operation *const operations[] = {op_add, op_mul, op_rot, op_jump, op_end};
static const uint8_t code[] = {0, 1, 0, 2, 1, 0, 2, 3, 4};
#define NEXT(m) return operations[*(m)->code](m)
static uint64_t op_add(struct machine *m) { m->value += 12345, m->code++; NEXT(m); }
static uint64_t op_mul(struct machine *m) { m->value *= 7, m->code++; NEXT(m); }
static uint64_t op_rot(struct machine *m) {
    m->value = m->value << 13 | m->value >> 51;
    m->code++;
    NEXT(m);
}
static uint64_t op_jump(struct machine *m) {
    m->code = --m->left > 0 ? code : m->code + 1;
    NEXT(m);
}
static uint64_t op_end(struct machine *m) { return m->value; }

__attribute__((noinline)) static long many(long a, long b, long c, long d, long e, long f, long g,
                                           long h, long i, long j) {
    if (a <= 0) return b + 2 * c + 3 * d + 4 * e + 5 * f + 6 * g + 7 * h + 8 * i + 9 * j;
    return many(a - 1, c, d, e, f, g, h, i, j, b + a);
}

int main(void) {
    printf("%ld %ld %ld\n", is_even(1000000), is_odd(1000000), is_even(1234567));
    printf("%ld %ld\n", frames(500000, 1), by_t1(400000, 2));
    printf("%ld %ld\n", step_one(300001, 1), step_one(3, 1));
    printf("%ld %ld\n", maybe(0, 5), maybe(1000, 5));
    struct machine m = {.code = code, .value = 1, .left = 3000};
    printf("%llx\n", (unsigned long long)op_add(&m));
    printf("%ld\n", many(20000, 1, 2, 3, 4, 5, 6, 7, 8, 9));
    return 0;
}
