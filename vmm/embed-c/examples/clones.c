/*
 * Continues a snapshot again and again in one machine, each time from the same state:
 *
 *     hartline run --snapshot warm --snapshot-at stdin --snapshot-end ./program
 *     cc clones.c -I DIR -L DIR -lhartline -o clones
 *     ./clones warm 100 "a line of input"
 *
 * The program's output goes to the standard output, and the times to the standard error.
 */
#define _POSIX_C_SOURCE 200809L
#include "hartline_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The longest time of a run, ms. */
#define LIMIT 10000

static double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

/* Runs once, and prints what the program printed and how it ended. */
static int run_once(hartline_clone clone, const char *input) {
    static char output[1 << 20], error[1 << 16];
    struct hartline_run run = HARTLINE_RUN;
    struct hartline_run_end end;
    double start = now_ms();

    run.input = input, run.input_length = strlen(input);
    run.output = output, run.output_room = sizeof output;
    run.error = error, run.error_room = sizeof error;
    int status = hartline_clone_run(clone, &run, &end, LIMIT);
    if (status != 0)
        return status;
    fwrite(output, 1, end.output_length, stdout);
    fwrite(error, 1, end.error_length, stderr);
    fprintf(stderr, "exit code %d after %.2f ms %s\n", end.code, now_ms() - start, hartline_last_message());
    return 0;
}

int main(int argc, char **argv) {
    hartline_template template;
    hartline_clone clone;
    double start = now_ms();

    if (argc != 4 || hartline_interface() != HARTLINE_INTERFACE) {
        fprintf(stderr, "usage: clones SNAPSHOT RUNS INPUT\n");
        return 2;
    }
    int status = hartline_template_load(argv[1], NULL, &template);
    if (status == 0)
        status = hartline_clone_start(template, &clone);
    if (status == 0)
        fprintf(stderr, "ready after %.1f ms\n", now_ms() - start);
    for (long left = atol(argv[2]); left > 0 && status == 0; left--)
        status = run_once(clone, argv[3]);
    if (status == 0)
        status = hartline_clone_end(clone);
    if (status == 0)
        status = hartline_template_free(template);
    if (status != 0)
        fprintf(stderr, "clones: error %d: %s\n", status, hartline_last_error());
    return status != 0;
}
