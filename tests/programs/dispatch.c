// Switches of several shapes (dense, sparse, ranges, nested, computed goto): a
// small stack machine, run in four ways that must agree.
#include <stdint.h>
#include <stdio.h>

enum { PUSH, ADD, SUB, MUL, XOR, DUP, SWAP, DROP, LOOP, ROT, NOT, HALT };

static const uint8_t program[] = {
    PUSH, 3, PUSH, 5, DUP, MUL, ADD, PUSH, 7, SWAP, SUB, DUP, ROT, XOR, NOT,
    PUSH, 11, MUL, PUSH, 13, ADD, SWAP, DROP, LOOP, HALT,
};

static uint64_t with_switch(int loops) {
    uint64_t stack[64] = {1, 2, 3}, t;
    int sp = 3, pc = 0;
    for (;;) switch (program[pc++]) {
        case PUSH: stack[sp++] = program[pc++]; break;
        case ADD: sp--; stack[sp - 1] += stack[sp]; break;
        case SUB: sp--; stack[sp - 1] -= stack[sp]; break;
        case MUL: sp--; stack[sp - 1] *= stack[sp]; break;
        case XOR: sp--; stack[sp - 1] ^= stack[sp]; break;
        case DUP: stack[sp] = stack[sp - 1]; sp++; break;
        case SWAP: t = stack[sp - 1]; stack[sp - 1] = stack[sp - 2]; stack[sp - 2] = t; break;
        case DROP: sp--; break;
        case LOOP: if (--loops > 0) pc = 0; if (sp > 40) sp = 3; break;
        case ROT: t = stack[sp - 3]; stack[sp - 3] = stack[sp - 2];
                  stack[sp - 2] = stack[sp - 1]; stack[sp - 1] = t; break;
        case NOT: stack[sp - 1] = ~stack[sp - 1]; break;
        case HALT: return stack[sp - 1];
        }
}

static uint64_t with_goto(int loops) {
    static const void *const labels[] = {&&push, &&add, &&sub, &&mul, &&xor, &&dup,
                                         &&swap, &&drop, &&loop, &&rot, &&not, &&halt};
    uint64_t stack[64] = {1, 2, 3}, t;
    int sp = 3, pc = 0;
#define NEXT goto *labels[program[pc++]]
    NEXT;
push: stack[sp++] = program[pc++]; NEXT;
add: sp--; stack[sp - 1] += stack[sp]; NEXT;
sub: sp--; stack[sp - 1] -= stack[sp]; NEXT;
mul: sp--; stack[sp - 1] *= stack[sp]; NEXT;
xor: sp--; stack[sp - 1] ^= stack[sp]; NEXT;
dup: stack[sp] = stack[sp - 1]; sp++; NEXT;
swap: t = stack[sp - 1]; stack[sp - 1] = stack[sp - 2]; stack[sp - 2] = t; NEXT;
drop: sp--; NEXT;
loop: if (--loops > 0) pc = 0; if (sp > 40) sp = 3; NEXT;
rot: t = stack[sp - 3]; stack[sp - 3] = stack[sp - 2]; stack[sp - 2] = stack[sp - 1];
    stack[sp - 1] = t; NEXT;
not: stack[sp - 1] = ~stack[sp - 1]; NEXT;
halt: return stack[sp - 1];
}

struct machine { uint64_t stack[64]; int sp, pc, loops, halted; };
typedef void handler(struct machine *);
static void h_push(struct machine *m) { m->stack[m->sp++] = program[m->pc++]; }
static void h_add(struct machine *m) { m->sp--; m->stack[m->sp - 1] += m->stack[m->sp]; }
static void h_sub(struct machine *m) { m->sp--; m->stack[m->sp - 1] -= m->stack[m->sp]; }
static void h_mul(struct machine *m) { m->sp--; m->stack[m->sp - 1] *= m->stack[m->sp]; }
static void h_xor(struct machine *m) { m->sp--; m->stack[m->sp - 1] ^= m->stack[m->sp]; }
static void h_dup(struct machine *m) { m->stack[m->sp] = m->stack[m->sp - 1]; m->sp++; }
static void h_swap(struct machine *m) {
    uint64_t t = m->stack[m->sp - 1];
    m->stack[m->sp - 1] = m->stack[m->sp - 2];
    m->stack[m->sp - 2] = t;
}
static void h_drop(struct machine *m) { m->sp--; }
static void h_loop(struct machine *m) {
    if (--m->loops > 0) m->pc = 0;
    if (m->sp > 40) m->sp = 3;
}
static void h_rot(struct machine *m) {
    uint64_t t = m->stack[m->sp - 3];
    m->stack[m->sp - 3] = m->stack[m->sp - 2];
    m->stack[m->sp - 2] = m->stack[m->sp - 1];
    m->stack[m->sp - 1] = t;
}
static void h_not(struct machine *m) { m->stack[m->sp - 1] = ~m->stack[m->sp - 1]; }
static void h_halt(struct machine *m) { m->halted = 1; }
static handler *const handlers[] = {h_push, h_add, h_sub, h_mul, h_xor, h_dup,
                                    h_swap, h_drop, h_loop, h_rot, h_not, h_halt};

static uint64_t with_pointers(int loops) {
    struct machine m = {.stack = {1, 2, 3}, .sp = 3, .loops = loops};
    while (!m.halted) handlers[program[m.pc++]](&m);
    return m.stack[m.sp - 1];
}

__attribute__((noinline)) static int sparse(int v) {
    switch (v) {
    case -1000: return 1;
    case -3 ... 4: return 2 + v;
    case 77: case 78: case 79: return 9;
    case 1000: return v % 7;
    case 100000: return 11;
    case INT32_MAX: return 12;
    case INT32_MIN: return 13;
    default: return v > 0 ? 14 : 15;
    }
}

__attribute__((noinline)) static const char *text(unsigned v) {
    switch (v) {
    case 10: return "ten"; case 11: return "eleven"; case 12: return "twelve";
    case 13: return "thirteen"; case 14: return "fourteen"; case 15: return "fifteen";
    case 16: return "sixteen"; case 17: return "seventeen"; case 18: return "eighteen";
    }
    return "many";
}

int main(void) {
    for (int loops = 1; loops < 30000; loops *= 5) {
        uint64_t a = with_switch(loops), b = with_goto(loops), c = with_pointers(loops);
        printf("%d %016llx %d %d\n", loops, (unsigned long long)a, a == b, a == c);
    }
    const int probes[] = {-1000, -4, -3, 0, 4, 5, 76, 77, 79, 80, 1000, 100000, INT32_MAX, INT32_MIN};
    for (unsigned i = 0; i < sizeof probes / sizeof *probes; i++) printf("%d ", sparse(probes[i]));
    for (unsigned v = 8; v < 21; v++) printf("%s ", text(v));
    puts("");
    return 0;
}
