// Several stacks in one thread: ucontext, and a hand-written switch like Boost's.
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK = 256 << 10, TASKS = 8 };

static void *new_stack(void) {
    void *p = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(3);
    return p;
}

// ucontext: tasks switch to each other in their own order; each ends in main.
static ucontext_t main_context, contexts[TASKS];
static unsigned trace;
static int ended[TASKS];

static int next_task(int from) {
    for (int i = 0; i < TASKS; i++)
        if (!ended[(from + i) % TASKS]) return (from + i) % TASKS;
    return -1;
}

static void body(int number, int rounds) {
    volatile double fraction = number / 3.0;
    for (int i = 0; i < rounds; i++) {
        trace = trace * 31 + (unsigned)(number * 7 + i) + (unsigned)(fraction * 9);
        int next = next_task(number + 1 + i % 3);
        if (next != number) swapcontext(&contexts[number], &contexts[next]);
        fraction += 0.25;
    }
    ended[number] = 1;
}

static void ucontexts(void) {
    for (volatile int i = 0; i < TASKS; i++) {
        getcontext(&contexts[i]);
        contexts[i].uc_stack.ss_sp = new_stack();
        contexts[i].uc_stack.ss_size = STACK;
        contexts[i].uc_link = &main_context;
        makecontext(&contexts[i], (void (*)(void))body, 2, i, 300 + i * 40);
    }
    int next;
    while ((next = next_task(0)) >= 0) {
        swapcontext(&main_context, &contexts[next]);
        printf("ucontext: trace %u\n", trace);
    }
}

// void *jump(void **save_sp, void *sp, void *value): saves the callee-saved registers, changes
// the stack, continues there. `start` is the first return address of a new stack.
void *jump(void **save_sp, void *sp, void *value);
void start(void);
__asm__(
    ".text\n.globl jump\n.type jump, @function\n"
    "jump: addi sp, sp, -208\n"
    "fsd fs0, 0(sp)\n fsd fs1, 8(sp)\n fsd fs2, 16(sp)\n fsd fs3, 24(sp)\n fsd fs4, 32(sp)\n"
    "fsd fs5, 40(sp)\n fsd fs6, 48(sp)\n fsd fs7, 56(sp)\n fsd fs8, 64(sp)\n fsd fs9, 72(sp)\n"
    "fsd fs10, 80(sp)\n fsd fs11, 88(sp)\n sd s0, 96(sp)\n sd s1, 104(sp)\n sd s2, 112(sp)\n"
    "sd s3, 120(sp)\n sd s4, 128(sp)\n sd s5, 136(sp)\n sd s6, 144(sp)\n sd s7, 152(sp)\n"
    "sd s8, 160(sp)\n sd s9, 168(sp)\n sd s10, 176(sp)\n sd s11, 184(sp)\n sd ra, 192(sp)\n"
    "sd sp, 0(a0)\n mv sp, a1\n mv a0, a2\n"
    "fld fs0, 0(sp)\n fld fs1, 8(sp)\n fld fs2, 16(sp)\n fld fs3, 24(sp)\n fld fs4, 32(sp)\n"
    "fld fs5, 40(sp)\n fld fs6, 48(sp)\n fld fs7, 56(sp)\n fld fs8, 64(sp)\n fld fs9, 72(sp)\n"
    "fld fs10, 80(sp)\n fld fs11, 88(sp)\n ld s0, 96(sp)\n ld s1, 104(sp)\n ld s2, 112(sp)\n"
    "ld s3, 120(sp)\n ld s4, 128(sp)\n ld s5, 136(sp)\n ld s6, 144(sp)\n ld s7, 152(sp)\n"
    "ld s8, 160(sp)\n ld s9, 168(sp)\n ld s10, 176(sp)\n ld s11, 184(sp)\n ld t0, 192(sp)\n"
    "addi sp, sp, 208\n jr t0\n .size jump, . - jump\n"
    ".globl start\n.type start, @function\nstart: jalr s0\n unimp\n .size start, . - start\n");

static void *main_sp, *task_sp[TASKS];

static void *prepare(void *stack, void (*function)(void *)) {
    uint64_t *top = (uint64_t *)((char *)stack + STACK) - 26;
    top[96 / 8] = (uint64_t)function;
    top[192 / 8] = (uint64_t)start;
    return top;
}

struct tree { struct tree *left, *right; long value; };

static struct tree *grow(int depth, long *next) {
    if (depth == 0) return NULL;
    struct tree *node = malloc(sizeof *node);
    node->left = grow(depth - 1, next);
    node->value = (*next)++ * 17 % 101;
    node->right = grow(depth - 1, next);
    return node;
}

// Yields from within a recursion.
static void walk(const struct tree *node, int task) {
    if (!node) return;
    walk(node->left, task);
    jump(&task_sp[task], main_sp, (void *)&node->value);
    walk(node->right, task);
}

static struct tree *trees[TASKS];
static void generator(void *argument) {
    int task = (int)(uintptr_t)argument;
    walk(trees[task], task);
    for (;;) jump(&task_sp[task], main_sp, NULL);
}

static void generators(void) {
    long next = 1, sum = 0, values = 0;
    int running = TASKS;
    for (int i = 0; i < TASKS; i++) {
        trees[i] = grow(i + 4, &next);
        task_sp[i] = prepare(new_stack(), generator);
    }
    while (running > 0) {
        running = 0;
        for (int i = 0; i < TASKS; i++) {
            const long *value = jump(&main_sp, task_sp[i], (void *)(uintptr_t)i);
            if (!value) continue;
            running++, values++;
            sum = sum * 3 + *value;
        }
    }
    printf("generators: %ld values, %ld\n", values, sum);
}

// longjmp leaves a task for good, from its own stack to main's.
static jmp_buf back;
static void leaver(void *argument) {
    volatile long depth[32] = {(long)(uintptr_t)argument};
    longjmp(back, 5 + (int)depth[0]);
}

static void left(void) {
    void *stack = new_stack();
    for (volatile int i = 0; i < 100; i++) {
        int code = setjmp(back);
        if (code == 0) jump(&main_sp, prepare(stack, leaver), (void *)(uintptr_t)i);
        if (code != 5 + i) printf("wrong %d at %d\n", code, i);
    }
    puts("left");
}

int main(void) {
    ucontexts();
    generators();
    left();
    return 0;
}
