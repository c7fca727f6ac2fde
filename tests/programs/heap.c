// malloc, realloc, calloc and free under stress, checked by contents.
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 2000

static uint64_t state = 88172645463325252ull;

static uint64_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static unsigned char *slot[SLOTS];
static size_t size[SLOTS];

static void fill(int i) { memset(slot[i], (int)(i * 7 + size[i]), size[i]); }

static void check(int i, size_t length, size_t tag) {
    for (size_t k = 0; k < length; k++)
        if (slot[i][k] != (unsigned char)(i * 7 + tag)) {
            printf("slot %d is damaged at %zu\n", i, k);
            exit(1);
        }
}

int main(void) {
    unsigned long allocated = 0, freed = 0, moved = 0;
    for (int round = 0; round < 60000; round++) {
        int i = (int)(next_random() % SLOTS);
        size_t want = next_random() % (next_random() % 100 == 0 ? 300000 : 700);
        if (!slot[i]) {
            slot[i] = next_random() & 1 ? malloc(want + 1) : calloc(want + 1, 1);
            size[i] = want + 1;
            allocated++;
        } else if (next_random() % 3 == 0) {
            size_t old = size[i];
            unsigned char *p = realloc(slot[i], want + 1);
            moved += 1;
            slot[i] = p;
            check(i, old < want + 1 ? old : want + 1, old);
            size[i] = want + 1;
        } else {
            check(i, size[i], size[i]);
            free(slot[i]);
            slot[i] = NULL;
            freed++;
            continue;
        }
        fill(i);
    }
    for (int i = 0; i < SLOTS; i++)
        if (slot[i]) {
            check(i, size[i], size[i]);
            free(slot[i]);
        }
    printf("allocated %lu freed %lu resized %lu\n", allocated, freed, moved);
    // Large blocks come from mmap and are unmapped.
    for (int i = 1; i <= 40; i++) {
        size_t bytes = (size_t)i << 20;
        char *p = malloc(bytes);
        p[0] = 1;
        p[bytes / 2] = 2;
        p[bytes - 1] = 3;
        if (p[0] + p[bytes / 2] + p[bytes - 1] != 6) return 2;
        free(p);
    }
    void *aligned = NULL;
    for (size_t a = 16; a <= 1 << 21; a <<= 1) {
        if (posix_memalign(&aligned, a, 100) || (uintptr_t)aligned % a) return 3;
        free(aligned);
    }
    printf("absurd: %p\n", malloc(SIZE_MAX / 2 - 4096));
    printf("trim %d\n", malloc_trim(0) >= 0);
    return 0;
}
