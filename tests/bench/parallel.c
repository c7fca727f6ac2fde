// The program of `hartline bench parallel`: what it costs to work in parts, and the dot product of two vectors in
// parts, by hartline_multiprocess() and by OpenMP.
//
//     parallel TIMES      prints lines of four words: the kind, elements, parts, and the median time in ns
#include "hartline_parallel.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20 };

static float left[MOST], right[MOST];

// Of a part, without its neighbours in its cache line.
static struct {
    _Alignas(64) float sum;
} sums[HARTLINE_MAX_PARTS];

static float dot(size_t from, size_t to) {
    float sums[8] = {0}, sum = 0;
    for (size_t n = from; n < to; n += 8) {
        for (int lane = 0; lane < 8; lane++)
            sums[lane] += left[n + lane] * right[n + lane];
    }
    for (int lane = 0; lane < 8; lane++)
        sum += sums[lane];
    return sum;
}

static size_t begin_of(unsigned part, unsigned parts, size_t elements) {
    return elements / parts * part;
}

static void nothing(unsigned part, unsigned parts, void *data) {
    (void)part, (void)parts, (void)data;
}

static void part_of_dot(unsigned part, unsigned parts, void *elements) {
    size_t all = *(size_t *)elements;
    sums[part].sum = dot(begin_of(part, parts, all), begin_of(part + 1, parts, all));
}

static float total(unsigned parts) {
    float sum = 0;
    for (unsigned part = 0; part < parts; part++)
        sum += sums[part].sum;
    return sum;
}

static float by_threads(size_t elements, unsigned parts) {
    if (elements == 0) {
        hartline_multiprocess(parts, nothing, NULL);
        hartline_wait();
        return 0;
    }
    if (parts == 1)
        return dot(0, elements);
    hartline_multiprocess(parts, part_of_dot, &elements);
    hartline_wait();
    return total(parts);
}

static float by_openmp(size_t elements, unsigned parts) {
#pragma omp parallel num_threads(parts)
    {
        unsigned part = omp_get_thread_num();
        if (elements)
            part_of_dot(part, parts, &elements);
    }
    return elements ? total(parts) : 0;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void measure(const char *kind, float (*run)(size_t, unsigned), size_t elements, unsigned parts, size_t times) {
    uint64_t *each = malloc(times * sizeof *each);
    // Sums of small integers are exact in any order.
    float expected = dot(0, elements);
    for (size_t n = 0; n < times; n++) {
        uint64_t start = hartline_now();
        float sum = run(elements, parts);
        each[n] = hartline_now() - start;
        if (sum != expected) {
            fprintf(stderr, "%s: %f is not %f\n", kind, sum, expected);
            exit(1);
        }
    }
    qsort(each, times, sizeof *each, compare);
    printf("%s %zu %u %lu\n", kind, elements, parts, (unsigned long)each[times / 2]);
    fflush(stdout);
    free(each);
}

int main(int argc, char **argv) {
    size_t times = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    if (times == 0)
        return 2;
    for (size_t n = 0; n < MOST; n++) {
        left[n] = n % 3;
        right[n] = n % 2;
    }
    static const size_t sizes[] = {0, 8192, 65536, MOST};
    for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++) {
        for (unsigned parts = 1; parts <= 4; parts *= 2) {
            // About as long for each size.
            size_t rounds = times / (1 + sizes[size] / 65536) + 1;
            measure("threads", by_threads, sizes[size], parts, rounds);
            measure("openmp", by_openmp, sizes[size], parts, rounds);
        }
    }
    return 0;
}
