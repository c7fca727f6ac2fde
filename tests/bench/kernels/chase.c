// Pointer chasing: every load needs the result of the previous one. A cycle that the
// second-level cache holds, and a binary tree with lookups and insertions.
#include "kernels.h"

enum { NODES = 16384, HOPS = 2000000, KEYS = 40000 };

struct node {
    struct node *next;
    uint64_t value, padding[4];
};

static NOINLINE uint64_t follow(const struct node *node, long hops) {
    uint64_t sum = 0;
    for (long i = 0; i < hops; i++) {
        sum += node->value;
        node = node->next;
    }
    return sum;
}

// One cycle through all nodes in random order (Sattolo's shuffle).
static void link_nodes(struct node *nodes, uint32_t *random) {
    static uint32_t order[NODES];
    for (uint32_t i = 0; i < NODES; i++)
        order[i] = i;
    for (uint32_t i = NODES - 1; i > 0; i--) {
        uint32_t other = next_random(random) % i, value = order[i];
        order[i] = order[other], order[other] = value;
    }
    for (uint32_t i = 0; i < NODES; i++) {
        nodes[order[i]].next = &nodes[order[(i + 1) % NODES]];
        nodes[i].value = next_random(random);
    }
}

struct leaf {
    struct leaf *side[2];
    uint32_t key, count;
};

static NOINLINE uint64_t grow(struct leaf *leaves, uint32_t *random) {
    struct leaf *root = NULL;
    uint64_t depths = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        uint32_t key = next_random(random) % KEYS;
        struct leaf **place = &root;
        while (*place && (*place)->key != key)
            place = &(*place)->side[key > (*place)->key], depths++;
        if (!*place) {
            leaves[i] = (struct leaf){{NULL, NULL}, key, 0};
            *place = &leaves[i];
        }
        depths += ++(*place)->count;
    }
    return depths;
}

void chase(unsigned rounds) {
    struct node *nodes = allocate(NODES, sizeof *nodes);
    struct leaf *leaves = allocate(KEYS, sizeof *leaves);
    uint32_t random = 11;
    uint64_t sum = 0;
    for (unsigned round = 0; round < rounds; round++) {
        link_nodes(nodes, &random);
        sum = sum * 3 + follow(nodes, HOPS);
        sum = sum * 3 + grow(leaves, &random);
    }
    printf("chase %llu\n", (unsigned long long)sum);
    free(leaves);
    free(nodes);
}
