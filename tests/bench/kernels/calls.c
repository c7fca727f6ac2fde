// Direct calls and returns: recursion of several shapes, with little work per call.
#include "kernels.h"

static NOINLINE uint64_t fib(unsigned n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static NOINLINE uint64_t ackermann(uint64_t m, uint64_t n) {
    if (m == 0)
        return n + 1;
    if (n == 0)
        return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

static NOINLINE int takeuchi(int x, int y, int z) {
    if (y >= x)
        return z;
    return takeuchi(takeuchi(x - 1, y, z), takeuchi(y - 1, z, x), takeuchi(z - 1, x, y));
}

// Hofstadter's female and male sequences: two functions that call each other.
static NOINLINE unsigned male(unsigned n);
static NOINLINE unsigned female(unsigned n) { return n == 0 ? 1 : n - male(female(n - 1)); }
static NOINLINE unsigned male(unsigned n) { return n == 0 ? 0 : n - female(male(n - 1)); }

static NOINLINE unsigned queens(unsigned size, unsigned row, unsigned columns, unsigned left,
                                unsigned right) {
    if (row == size)
        return 1;
    unsigned solutions = 0;
    unsigned places = ~(columns | left | right) & ((1u << size) - 1);
    while (places) {
        unsigned place = places & -places;
        places ^= place;
        solutions += queens(size, row + 1, columns | place, (left | place) << 1,
                            (right | place) >> 1);
    }
    return solutions;
}

// Merge sort of a list: pointers and branches between the calls.
struct cell {
    struct cell *next;
    uint32_t key;
};

static NOINLINE struct cell *merge(struct cell *a, struct cell *b) {
    struct cell head, *tail = &head;
    while (a && b) {
        struct cell **smaller = a->key <= b->key ? &a : &b;
        tail->next = *smaller;
        tail = tail->next;
        *smaller = (*smaller)->next;
    }
    tail->next = a ? a : b;
    return head.next;
}

static NOINLINE struct cell *sort(struct cell *list, unsigned length) {
    if (length < 2)
        return list;
    struct cell *middle = list;
    for (unsigned i = 1; i < length / 2; i++)
        middle = middle->next;
    struct cell *rest = middle->next;
    middle->next = NULL;
    return merge(sort(list, length / 2), sort(rest, length - length / 2));
}

static uint64_t sort_list(unsigned length) {
    struct cell *cells = allocate(length, sizeof *cells);
    uint32_t random = 2463534242u;
    for (unsigned i = 0; i < length; i++) {
        cells[i].key = next_random(&random);
        cells[i].next = i + 1 < length ? &cells[i + 1] : NULL;
    }
    uint64_t sum = 0, place = 1;
    for (struct cell *cell = sort(cells, length); cell; cell = cell->next)
        sum += place++ * cell->key;
    free(cells);
    return sum;
}

void calls(unsigned rounds) {
    for (unsigned round = 0; round < rounds; round++) {
        printf("fibonacci %llu\n", (unsigned long long)fib(30 + round % 2));
        printf("ackermann %llu\n", (unsigned long long)ackermann(3, 7));
        printf("takeuchi %d\n", takeuchi(18 + round % 2, 12, 6));
        printf("hofstadter %u %u\n", female(120 + round), male(120 + round));
        printf("queens %u\n", queens(9, 0, 0, 0, 0));
        printf("sort %llu\n", (unsigned long long)sort_list(40000 + round));
    }
}
