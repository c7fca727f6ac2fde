/*
 * Calls a function of a riscv64 program that exports it with hartline.h, and resets the machine after each call:
 *
 *     cc sandbox.c -I DIR -L DIR -lhartline -o sandbox
 *     ./sandbox PROGRAM FUNCTION INPUT [CALLS]
 *
 * With a number of calls it also prints how long they took. The program can call a function "twice" of this process.
 */
#define _POSIX_C_SOURCE 200809L
#include "hartline_host.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The longest time of a call, ms. */
#define LIMIT 60000

/* Writes the input two times. `user` is the number of its calls. */
static int64_t twice(void *user, const void *input, size_t length, void *output, size_t room) {
    ++*(int *)user;
    if (length > room / 2)
        return -E2BIG;
    memcpy(output, input, length);
    memcpy((char *)output + length, input, length);
    return (int64_t)(2 * length);
}

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static int by_size(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print_times(const char *what, double *times, size_t count) {
    qsort(times, count, sizeof *times, by_size);
    printf("%s: p50 %.1f us, p99 %.1f us\n", what, times[count / 2], times[count * 99 / 100]);
}

/* Calls `count` times, with and without resets, and prints the times. */
static int measure(hartline_sandbox sandbox, const char *function, const char *input, size_t count) {
    static char output[HARTLINE_HOST_MAX_DATA];
    double *times = malloc(count * sizeof *times);
    size_t length;
    int status = times ? 0 : HARTLINE_BUG;
    for (int resets = 0; resets < 2 && status == 0; resets++) {
        for (size_t i = 0; i < count && status == 0; i++) {
            double start = now_us();
            status = hartline_call(sandbox, function, input, strlen(input), output, sizeof output, &length, LIMIT);
            if (status == 0 && resets)
                status = hartline_reset(sandbox, NULL);
            times[i] = now_us() - start;
        }
        if (status == 0)
            print_times(resets ? "call and reset" : "call", times, count);
    }
    free(times);
    return status;
}

int main(int argc, char **argv) {
    static char output[HARTLINE_HOST_MAX_DATA];
    struct hartline_options options = HARTLINE_OPTIONS;
    struct hartline_reset_result reset;
    hartline_sandbox sandbox;
    size_t length;
    int uses = 0, status;

    if (argc < 4 || hartline_interface() != HARTLINE_INTERFACE) {
        fprintf(stderr, "usage: sandbox PROGRAM FUNCTION INPUT [CALLS]\n");
        return 2;
    }
    /* What the program prints goes to standard error. */
    options.output = options.error = 2;
    status = hartline_create(argv[1], &options, &sandbox);
    if (status == 0)
        status = hartline_register(sandbox, "twice", twice, &uses);
    if (status == 0)
        status = hartline_start(sandbox);
    if (status == 0)
        status = hartline_call(sandbox, argv[2], argv[3], strlen(argv[3]), output, sizeof output, &length, LIMIT);
    if (status == 0) {
        fwrite(output, 1, length, stdout);
        putchar('\n');
        status = hartline_reset(sandbox, &reset);
    }
    if (status == 0) {
        printf("reset: %" PRIu64 " pages; the program called this process %d times\n", reset.pages, uses);
        if (argc > 4 && atol(argv[4]) > 0)
            status = measure(sandbox, argv[2], argv[3], (size_t)atol(argv[4]));
    }
    if (status == 0)
        status = hartline_end(sandbox);
    if (status != 0)
        fprintf(stderr, "sandbox: error %d: %s\n", status, hartline_last_error());
    return status != 0;
}
