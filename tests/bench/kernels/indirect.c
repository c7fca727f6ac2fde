// Indirect calls: tables of functions, virtual methods, comparators.
#include "kernels.h"

static uint32_t state = 88172645u;

// --- Objects with virtual methods, as a C++ compiler lays them out ---

struct shape;
struct methods {
    int64_t (*area)(const struct shape *);
    int64_t (*perimeter)(const struct shape *);
    void (*scale)(struct shape *, int);
};
struct shape {
    const struct methods *methods;
    int64_t a, b, c;
};

static int64_t square_area(const struct shape *s) { return s->a * s->a; }
static int64_t square_perimeter(const struct shape *s) { return 4 * s->a; }
static int64_t box_area(const struct shape *s) { return s->a * s->b; }
static int64_t box_perimeter(const struct shape *s) { return 2 * (s->a + s->b); }
static int64_t prism_area(const struct shape *s) {
    return 2 * (s->a * s->b + s->b * s->c + s->a * s->c);
}
static int64_t prism_perimeter(const struct shape *s) { return 4 * (s->a + s->b + s->c); }
static int64_t disc_area(const struct shape *s) { return s->a * s->a * 355 / 113; }
static int64_t disc_perimeter(const struct shape *s) { return 2 * s->a * 355 / 113; }

static int64_t limit(int64_t v) { return v < 1 ? 1 : v > 1000 ? v % 1000 + 1 : v; }
static void scale_one(struct shape *s, int f) { s->a = limit(s->a * f / 4); }
static void scale_two(struct shape *s, int f) { scale_one(s, f), s->b = limit(s->b * f / 4); }
static void scale_all(struct shape *s, int f) { scale_two(s, f), s->c = limit(s->c * f / 4); }

static const struct methods kinds[] = {
    {square_area, square_perimeter, scale_one},
    {box_area, box_perimeter, scale_two},
    {prism_area, prism_perimeter, scale_all},
    {disc_area, disc_perimeter, scale_one},
};

static int64_t shapes(int passes) {
    enum { COUNT = 5000 };
    static struct shape all[COUNT];
    for (int i = 0; i < COUNT; i++) {
        all[i].methods = &kinds[next_random(&state) % 4];
        all[i].a = next_random(&state) % 1000 + 1;
        all[i].b = next_random(&state) % 1000 + 1;
        all[i].c = next_random(&state) % 1000 + 1;
    }
    int64_t sum = 0;
    for (int pass = 0; pass < passes; pass++)
        for (int i = 0; i < COUNT; i++) {
            struct shape *s = &all[i];
            sum += s->methods->area(s) - s->methods->perimeter(s);
            s->methods->scale(s, 3 + pass % 3);
        }
    return sum;
}

// --- An interpreter with a table of handlers ---

struct machine {
    uint64_t stack[16];
    unsigned top, pc;
    uint64_t counter;
};
typedef void handler(struct machine *, unsigned char);

static uint64_t *top(struct machine *m) { return &m->stack[m->top % 16]; }
static void op_push(struct machine *m, unsigned char v) { m->top++, *top(m) = v; }
static void op_dup(struct machine *m, unsigned char v) {
    uint64_t value = *top(m) + v;
    m->top++, *top(m) = value;
}
static uint64_t pop(struct machine *m) { return m->stack[m->top-- % 16]; }
static void op_add(struct machine *m, unsigned char v) {
    uint64_t right = pop(m);
    *top(m) += right + v;
}
static void op_mul(struct machine *m, unsigned char v) {
    uint64_t right = pop(m);
    *top(m) = *top(m) * right + v;
}
static void op_xor(struct machine *m, unsigned char v) {
    uint64_t right = pop(m);
    *top(m) ^= right >> (v & 31);
}
static void op_rotate(struct machine *m, unsigned char v) {
    uint64_t value = *top(m);
    *top(m) = value << (v & 31) | value >> (64 - (v & 31)) % 64;
}
static void op_count(struct machine *m, unsigned char v) { m->counter += v; }
static void op_loop(struct machine *m, unsigned char v) {
    if (m->counter-- % 8)
        m->pc -= v;
}

static handler *const handlers[] = {op_push, op_dup,    op_add,   op_mul,
                                    op_xor,  op_rotate, op_count, op_loop};

static uint64_t interpret(int passes) {
    static const unsigned char program[][2] = {
        {0, 17}, {1, 3},  {3, 11}, {1, 1}, {5, 13}, {4, 7}, {6, 1}, {0, 99}, {2, 5},
        {1, 9},  {5, 29}, {4, 3},  {7, 6}, {0, 2},  {3, 1}, {1, 0}, {5, 7},  {4, 0},
    };
    struct machine m = {{1}, 0, 0, 3};
    for (int pass = 0; pass < passes; pass++)
        for (m.pc = 0; m.pc < sizeof program / sizeof *program; m.pc++)
            handlers[program[m.pc][0]](&m, program[m.pc][1]);
    uint64_t sum = m.counter;
    for (int i = 0; i < 16; i++)
        sum = sum * 31 + m.stack[i];
    return sum;
}

// --- Library functions that call back ---

struct record {
    uint32_t key;
    char name[12];
    double weight;
};

static int by_key(const void *a, const void *b) {
    uint32_t x = ((const struct record *)a)->key, y = ((const struct record *)b)->key;
    return (x > y) - (x < y);
}
static int by_name(const void *a, const void *b) {
    return strcmp(((const struct record *)a)->name, ((const struct record *)b)->name);
}
static int by_weight(const void *a, const void *b) {
    double x = ((const struct record *)a)->weight, y = ((const struct record *)b)->weight;
    return (x > y) - (x < y);
}

static uint64_t sorting(int count) {
    static int (*const orders[])(const void *, const void *) = {by_key, by_name, by_weight};
    struct record *records = allocate(count, sizeof *records);
    for (int i = 0; i < count; i++) {
        records[i].key = next_random(&state);
        snprintf(records[i].name, sizeof records[i].name, "%08x", next_random(&state));
        records[i].weight = next_random(&state) / 3.0;
    }
    uint64_t sum = 0;
    for (int order = 0; order < 3; order++) {
        qsort(records, count, sizeof *records, orders[order]);
        for (int i = 0; i < count; i++)
            sum = sum * 33 + records[i].key;
        struct record wanted = records[count / 3];
        struct record *found = bsearch(&wanted, records, count, sizeof *records, orders[order]);
        sum += found ? (uint64_t)(found - records) : 0;
    }
    free(records);
    return sum;
}

void indirect(unsigned rounds) {
    for (unsigned round = 0; round < rounds; round++) {
        printf("shapes %lld\n", (long long)shapes(150));
        printf("interpret %llu\n", (unsigned long long)interpret(40000));
        printf("sorting %llu\n", (unsigned long long)sorting(15000 + round));
    }
}
