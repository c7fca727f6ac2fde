// qsort and bsearch with several comparators; function pointers called often.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 20000

struct record {
    uint32_t key;
    double weight;
    char name[12];
};

static struct record table[COUNT];
static unsigned long comparisons;

static int by_key(const void *a, const void *b) {
    const struct record *x = a, *y = b;
    comparisons++;
    return (x->key > y->key) - (x->key < y->key);
}
static int by_weight(const void *a, const void *b) {
    const struct record *x = a, *y = b;
    comparisons++;
    return x->weight < y->weight ? 1 : x->weight > y->weight ? -1 : by_key(a, b);
}
static int by_name(const void *a, const void *b) {
    int c = strcmp(((const struct record *)a)->name, ((const struct record *)b)->name);
    return c ? c : by_key(a, b);
}

static uint64_t digest(void) {
    uint64_t h = 14695981039346656037ull;
    for (int i = 0; i < COUNT; i++) {
        h = (h ^ table[i].key) * 1099511628211ull;
        h = (h ^ (uint64_t)(int64_t)(table[i].weight * 1000)) * 1099511628211ull;
    }
    return h;
}

int main(void) {
    int (*const orders[])(const void *, const void *) = {by_key, by_weight, by_name, by_key};
    uint32_t seed = 12345;
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 1664525 + 1013904223;
        table[i].key = seed >> 4;
        table[i].weight = (double)(int32_t)seed / 1024.0;
        snprintf(table[i].name, sizeof table[i].name, "n%u", seed % 5000);
    }
    for (unsigned o = 0; o < sizeof orders / sizeof *orders; o++) {
        qsort(table, COUNT, sizeof *table, orders[o]);
        for (int i = 1; i < COUNT; i++)
            if (orders[o](&table[i - 1], &table[i]) > 0) return 1;
        printf("%u %016llx\n", o, (unsigned long long)digest());
    }
    int found = 0;
    for (int i = 0; i < COUNT; i += 37) {
        struct record wanted = table[i];
        found += bsearch(&wanted, table, COUNT, sizeof *table, by_key) != NULL;
    }
    printf("found %d\n", found);
    return 0;
}
