// Quicksort of integers: branches that cannot be predicted, loads and stores.
#include "kernels.h"

enum { LENGTH = 1000000, SHORT = 12 };

static void insertion_sort(uint32_t *values, long length) {
    for (long i = 1; i < length; i++) {
        uint32_t value = values[i];
        long place = i;
        for (; place > 0 && values[place - 1] > value; place--)
            values[place] = values[place - 1];
        values[place] = value;
    }
}

static uint32_t middle(uint32_t a, uint32_t b, uint32_t c) {
    if (a > b) {
        uint32_t other = a;
        a = b, b = other;
    }
    return c < a ? a : c > b ? b : c;
}

static NOINLINE void sort(uint32_t *values, long length) {
    while (length > SHORT) {
        uint32_t pivot = middle(values[0], values[length / 2], values[length - 1]);
        long low = 0, high = length - 1;
        while (low <= high) {
            while (values[low] < pivot)
                low++;
            while (values[high] > pivot)
                high--;
            if (low <= high) {
                uint32_t value = values[low];
                values[low++] = values[high];
                values[high--] = value;
            }
        }
        sort(values, high + 1);
        values += low, length -= low;
    }
    insertion_sort(values, length);
}

void quicksort(unsigned rounds) {
    uint32_t *values = allocate(LENGTH, sizeof *values);
    uint32_t random = 7;
    uint64_t sum = 0;
    for (unsigned round = 0; round < rounds; round++) {
        for (long i = 0; i < LENGTH; i++)
            values[i] = next_random(&random);
        sort(values, LENGTH);
        for (long i = 0; i < LENGTH; i++)
            sum = sum * 5 + values[i];
    }
    printf("quicksort %llu\n", (unsigned long long)sum);
    free(values);
}
