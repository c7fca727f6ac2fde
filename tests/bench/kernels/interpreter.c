// A bytecode interpreter whose loop is one large switch: an indirect jump per
// instruction, through a jump table. It runs small programs: a loop of arithmetic,
// Collatz sequences, and bubble sort in its memory.
#include "kernels.h"

enum opcode {
    HALT, SET, MOVE, ADD, ADD_CONSTANT, SUBTRACT, MULTIPLY, DIVIDE, REMAINDER, AND, OR, XOR,
    SHIFT_LEFT, SHIFT_RIGHT, LOAD, STORE, JUMP, JUMP_ZERO, JUMP_NOT_ZERO, JUMP_LESS, CALL,
    RETURN, COUNT,
};

struct instruction {
    uint8_t opcode, a, b;
    int8_t constant;
};

enum { REGISTERS = 16, MEMORY = 256, DEPTH = 16 };

struct machine {
    uint64_t registers[REGISTERS], memory[MEMORY], executed;
};

// Jumps are relative to the instruction after.
static NOINLINE void execute(struct machine *machine, const struct instruction *code) {
    uint64_t *r = machine->registers, executed = 0;
    const struct instruction *pc = code, *stack[DEPTH];
    unsigned depth = 0;
    for (;;) {
        const struct instruction i = *pc++;
        executed++;
        switch ((enum opcode)i.opcode) {
        case HALT: machine->executed += executed; return;
        case SET: r[i.a] = i.constant; break;
        case MOVE: r[i.a] = r[i.b]; break;
        case ADD: r[i.a] += r[i.b]; break;
        case ADD_CONSTANT: r[i.a] += i.constant; break;
        case SUBTRACT: r[i.a] -= r[i.b]; break;
        case MULTIPLY: r[i.a] *= r[i.b]; break;
        case DIVIDE: r[i.a] = r[i.b] ? r[i.a] / r[i.b] : 0; break;
        case REMAINDER: r[i.a] = r[i.b] ? r[i.a] % r[i.b] : 0; break;
        case AND: r[i.a] &= r[i.b]; break;
        case OR: r[i.a] |= r[i.b]; break;
        case XOR: r[i.a] ^= r[i.b]; break;
        case SHIFT_LEFT: r[i.a] <<= i.constant & 63; break;
        case SHIFT_RIGHT: r[i.a] >>= i.constant & 63; break;
        case LOAD: r[i.a] = machine->memory[(r[i.b] + i.constant) % MEMORY]; break;
        case STORE: machine->memory[(r[i.b] + i.constant) % MEMORY] = r[i.a]; break;
        case JUMP: pc += i.constant; break;
        case JUMP_ZERO: if (r[i.a] == 0) pc += i.constant; break;
        case JUMP_NOT_ZERO: if (r[i.a] != 0) pc += i.constant; break;
        case JUMP_LESS: if (r[i.a] < r[i.b]) pc += i.constant; break;
        case CALL: if (depth < DEPTH) stack[depth++] = pc, pc += i.constant; break;
        case RETURN: if (depth > 0) pc = stack[--depth]; break;
        case COUNT: r[i.a] = executed; break;
        }
    }
}

// r1: number of iterations; r0: the value that the arithmetic changes.
static const struct instruction arithmetic[] = {
    {SET, 2, 0, 29},        {MULTIPLY, 0, 2, 0},  {ADD_CONSTANT, 0, 0, 17}, {MOVE, 3, 0, 0},
    {SHIFT_RIGHT, 3, 0, 7}, {XOR, 0, 3, 0},       {MOVE, 4, 0, 0},          {AND, 4, 2, 0},
    {OR, 3, 4, 0},          {SHIFT_LEFT, 4, 0, 3}, {SUBTRACT, 0, 4, 0},     {MOVE, 5, 0, 0},
    {SET, 6, 0, 97},        {REMAINDER, 5, 6, 0}, {ADD, 0, 5, 0},           {ADD_CONSTANT, 1, 0, -1},
    {JUMP_NOT_ZERO, 1, 0, -17}, {COUNT, 7, 0, 0}, {HALT, 0, 0, 0},
};

// r1: the numbers from r1 down to 1; r8: total length of their sequences.
static const struct instruction collatz[] = {
    {SET, 2, 0, 1},
    {MOVE, 3, 1, 0},
    {CALL, 0, 0, 3},
    {ADD_CONSTANT, 1, 0, -1},
    {JUMP_NOT_ZERO, 1, 0, -4},
    {HALT, 0, 0, 0},
    // The sequence of r3.
    {MOVE, 4, 3, 0},
    {SUBTRACT, 4, 2, 0},
    {JUMP_ZERO, 4, 0, 11},
    {ADD_CONSTANT, 8, 0, 1},
    {MOVE, 4, 3, 0},
    {AND, 4, 2, 0},
    {JUMP_ZERO, 4, 0, 5},
    {MOVE, 4, 3, 0},
    {SHIFT_LEFT, 3, 0, 1},
    {ADD, 3, 4, 0},
    {ADD, 3, 2, 0},
    {JUMP, 0, 0, 1},
    {SHIFT_RIGHT, 3, 0, 1},
    {JUMP, 0, 0, -14},
    {RETURN, 0, 0, 0},
};

// Sorts memory[0] to memory[r1].
static const struct instruction bubble[] = {
    {SET, 2, 0, 0},
    {LOAD, 3, 2, 0},
    {LOAD, 4, 2, 1},
    {JUMP_LESS, 3, 4, 2},
    {STORE, 4, 2, 0},
    {STORE, 3, 2, 1},
    {ADD_CONSTANT, 2, 0, 1},
    {JUMP_LESS, 2, 1, -7},
    {ADD_CONSTANT, 1, 0, -1},
    {JUMP_NOT_ZERO, 1, 0, -10},
    {HALT, 0, 0, 0},
};

void interpreter(unsigned rounds) {
    static struct machine machine;
    uint32_t random = 17;
    machine.registers[0] = 1;
    for (unsigned round = 0; round < rounds; round++) {
        machine.registers[1] = 40000;
        execute(&machine, arithmetic);
        machine.registers[1] = 1500;
        execute(&machine, collatz);
        for (int i = 0; i < MEMORY; i++)
            machine.memory[i] = next_random(&random);
        machine.registers[1] = MEMORY - 1;
        execute(&machine, bubble);
    }
    printf("interpreter %016llx %llu\n", (unsigned long long)checksum(&machine, sizeof machine),
           (unsigned long long)machine.executed);
}
