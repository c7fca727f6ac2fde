// Works in parts (hartline_parallel.h): each part is executed once, by its own thread, and what it wrote is there after
// the wait.
//
//     parts ROUNDS
#include "hartline_parallel.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "../include/check.h"

static struct {
    _Alignas(64) unsigned long runs;
    pthread_t thread;
} parts_of[HARTLINE_MAX_PARTS];
static int nested;

static void work(unsigned part, unsigned parts, void *data) {
    CHECK(part < parts && hartline_hart_id() == part && data == &nested);
    parts_of[part].runs++;
    parts_of[part].thread = pthread_self();
}

static void nests(unsigned part, unsigned parts, void *data) {
    (void)parts;
    if (hartline_multiprocess(2, work, data) == -1 && errno == EBUSY)
        __atomic_fetch_add(&nested, part + 1, __ATOMIC_RELAXED);
}

static void rounds(long count) {
    unsigned long expected[HARTLINE_MAX_PARTS] = {0};
    for (unsigned part = 0; part < HARTLINE_MAX_PARTS; part++)
        parts_of[part].runs = 0;
    for (long round = 0; round < count; round++) {
        unsigned parts = 1 + round * 7 % 9;
        CHECK(hartline_multiprocess(parts, work, &nested) == 0);
        hartline_wait();
        CHECK(hartline_hart_id() == 0);
        for (unsigned part = 0; part < HARTLINE_MAX_PARTS; part++) {
            expected[part] += part < parts;
            CHECK(parts_of[part].runs == expected[part]);
            CHECK(part >= parts || part == 0 || !pthread_equal(parts_of[part].thread, parts_of[part - 1].thread));
        }
    }
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 100;
    hartline_wait();
    for (unsigned wrong = 0; wrong <= HARTLINE_MAX_PARTS + 1; wrong += HARTLINE_MAX_PARTS + 1)
        CHECK(hartline_multiprocess(wrong, work, &nested) == -1 && errno == EINVAL);
    rounds(count);
    CHECK(hartline_multiprocess(3, nests, &nested) == 0);
    hartline_wait();
    CHECK(nested == 1 + 2 + 3);
    CHECK(hartline_multiprocess(HARTLINE_MAX_PARTS, work, &nested) == 0);
    hartline_wait();
    // A child begins without threads, also while parts of its parent run.
    CHECK(hartline_multiprocess(4, work, &nested) == 0);
    pid_t child = fork();
    if (child == 0) {
        hartline_wait();
        rounds(count / 10);
        exit(5);
    }
    hartline_wait();
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
    rounds(count / 10);
    puts("done");
    return 0;
}
