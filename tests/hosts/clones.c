// A host in C with warm clones: everything that hartline_host.h says of them, with the program programs/alone/warm.c.
//
//     clones SNAPSHOT CACHE [exit]
//
// SNAPSHOT.damaged is a copy in which a byte of memory is wrong, SNAPSHOT.empty an empty directory, and SNAPSHOT.calls a
// snapshot of programs/alone/calls.c that waits for its first call.
#define _GNU_SOURCE
#include "host.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

static const char *snapshot;
static struct hartline_template_options options = HARTLINE_TEMPLATE_OPTIONS;
static char output[1 << 20], error[1 << 20];
static struct hartline_run_end end;

static hartline_template loaded(void) {
    hartline_template template = 0;
    CHECK(hartline_template_load(snapshot, &options, &template) == HARTLINE_OK && template != 0);
    return template;
}

static hartline_clone started(hartline_template template) {
    hartline_clone clone = 0;
    CHECK(hartline_clone_start(template, &clone) == HARTLINE_OK && clone != 0);
    return clone;
}

// A clone of a template of its own.
static hartline_clone alone(void) {
    hartline_template template = loaded();
    hartline_clone clone = started(template);
    CHECK(hartline_template_free(template) == HARTLINE_OK);
    return clone;
}

static struct hartline_run run_of(const char *input) {
    struct hartline_run run = HARTLINE_RUN;
    run.input = input, run.input_length = strlen(input);
    run.output = output, run.output_room = sizeof output;
    run.error = error, run.error_room = sizeof error;
    return run;
}

// Runs with an input, and buffers for the outputs.
static int run(hartline_clone clone, const char *input, uint64_t limit) {
    struct hartline_run run = run_of(input);
    return hartline_clone_run(clone, &run, &end, limit);
}

// Whether the run ended so, and its output is `text`.
static int ended(hartline_cause cause, int code, const char *text) {
    return end.cause == cause && end.code == code && end.output_length == strlen(text) &&
           end.output_total == strlen(text) && memcmp(output, text, strlen(text)) == 0;
}

static int says_message(const char *text) {
    return strstr(hartline_last_message(), text) != NULL;
}

// The numbers that programs/alone/warm.c prints in lines of eight bytes.
static char *lines(int first, int last) {
    static char text[sizeof output + 1];
    for (int line = first; line <= last; line++)
        snprintf(text + (size_t)(line - first) * 8, 9, "%07d\n", line);
    return text;
}

static void test_state(void) {
    hartline_template template = loaded();
    hartline_clone first = started(template), second = started(template);
    CHECK(first != second && first != template);
    CHECK(hartline_template_free(template) == HARTLINE_OK);
    for (int round = 0; round < 20; round++) {
        CHECK(run(round % 2 ? second : first, "count\ncount\n", LIMIT) == HARTLINE_OK);
        CHECK(ended(HARTLINE_EXITED, 0, "0 0 0 0\n1 1 1 1\n") && strcmp(hartline_last_message(), "") == 0);
        CHECK(end.signal == 0 && end.error_length == 0 && end.error_total == 0);
        CHECK(end.reset.pages > 1000 && end.reset.time_ns > 0);
    }
    // Memory that a fork wipes is zero in each run, and the page beside it is as it was.
    for (int round = 0; round < 4; round++) {
        CHECK(run(round % 2 ? second : first, "wiped\nwiped\n", LIMIT) == HARTLINE_OK);
        CHECK(ended(HARTLINE_EXITED, 0, "0 1\n7 7\n"));
    }
    size_t length = 1;
    CHECK(hartline_clone_warnings(first, output, sizeof output, &length) == HARTLINE_OK && length == 0);
    CHECK(hartline_clone_end(first) == HARTLINE_OK && hartline_clone_end(second) == HARTLINE_OK);
}

static void test_ends(void) {
    hartline_clone clone = alone();
    const struct {
        const char *input, *message;
        hartline_cause cause;
        int code, signal;
    } cases[] = {
        {"exit 0", "", HARTLINE_EXITED, 0, 0},
        {"exit 137", "", HARTLINE_EXITED, 137, 0},
        {"exit 124", "", HARTLINE_EXITED, 124, 0},
        {"signal 9", "", HARTLINE_SIGNALED, 137, 9},
        {"signal 34", "", HARTLINE_SIGNALED, 162, 34},
        {"crash", "SIGSEGV: store page fault at 0x40", HARTLINE_SIGNALED, 139, SIGSEGV},
        {"spin", "time limit", HARTLINE_TIME_LIMIT, 124, 0},
        {"sleep 100", "time limit", HARTLINE_TIME_LIMIT, 124, 0},
        {"", "", HARTLINE_EXITED, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t limit = cases[i].cause == HARTLINE_TIME_LIMIT ? 200 : HARTLINE_NO_LIMIT;
        CHECK(run(clone, cases[i].input, limit) == HARTLINE_OK);
        if (end.code != cases[i].code)
            fprintf(stderr, "%s: %d\n", cases[i].input, end.code);
        CHECK(ended(cases[i].cause, cases[i].code, "") && end.signal == cases[i].signal);
        CHECK(says_message(cases[i].message) && (*hartline_last_message() == 0) == (*cases[i].message == 0));
        // It goes on after all of them.
        CHECK(run(clone, "count\n", LIMIT) == HARTLINE_OK && ended(HARTLINE_EXITED, 0, "0 0 0 0\n"));
    }
    CHECK(hartline_clone_end(clone) == HARTLINE_OK);
}

static void test_outputs(void) {
    hartline_clone clone = alone();
    CHECK(run(clone, "lines 3\nerrors 2\n", LIMIT) == HARTLINE_OK && ended(HARTLINE_EXITED, 0, lines(0, 2)));
    CHECK(end.error_length == 16 && end.error_total == 16 && memcmp(error, lines(0, 1), 16) == 0);
    // A room that is just enough, and one that is not.
    struct hartline_run with = run_of("lines 100\nerrors 100\n");
    for (size_t room = 1; room <= 900; room += 1 + room / 3) {
        memset(output, '-', sizeof output);
        with.output_room = room;
        CHECK(hartline_clone_run(clone, &with, &end, LIMIT) == HARTLINE_OK && end.output_total == 800);
        CHECK(end.output_length == (room < 800 ? room : 800) && output[end.output_length] == '-');
        CHECK(memcmp(output, lines(0, 99) + 800 - end.output_length, end.output_length) == 0);
        CHECK(end.error_length == 800 && memcmp(error, lines(0, 99), 800) == 0);
    }
    with = run_of("lines 30000\nerrors 20000\n"), with.output_room = 808, with.error_room = 80;
    CHECK(hartline_clone_run(clone, &with, &end, LIMIT) == HARTLINE_OK);
    CHECK(end.output_length == 808 && memcmp(output, lines(29899, 29999), 808) == 0 && end.output_total == 240000);
    CHECK(end.error_length == 80 && memcmp(error, lines(19990, 19999), 80) == 0 && end.error_total == 160000);
    // A program that writes without end needs no more memory than the room.
    with = run_of("endless\n"), with.output_room = 80;
    CHECK(hartline_clone_run(clone, &with, &end, 300) == HARTLINE_OK && end.cause == HARTLINE_TIME_LIMIT);
    CHECK(end.output_length == 80 && end.output_total > 100000);
    // One buffer, and none.
    with = run_of("lines 3\nerrors 20000\n"), with.error = NULL, with.error_room = 0;
    CHECK(hartline_clone_run(clone, &with, &end, LIMIT) == HARTLINE_OK && ended(HARTLINE_EXITED, 0, lines(0, 2)));
    CHECK(end.error_length == 0 && end.error_total == 0);
    CHECK(hartline_clone_run(clone, NULL, &end, LIMIT) == HARTLINE_OK && end.code == 0 && end.output_total == 0);
    CHECK(hartline_clone_end(clone) == HARTLINE_OK);
}

static void test_descriptors(void) {
    hartline_clone clone = alone();
    struct hartline_run with = HARTLINE_RUN;
    int input[2], both[2];
    char text[256] = {0};
    for (int round = 0; round < 3; round++) {
        CHECK(pipe2(input, O_CLOEXEC) == 0 && pipe2(both, O_CLOEXEC) == 0);
        CHECK(write(input[1], "errors 1\nend\n", 13) == 13 && close(input[1]) == 0);
        with.input_file = input[0], with.output_file = both[1], with.error_file = both[1];
        CHECK(hartline_clone_run(clone, &with, &end, LIMIT) == HARTLINE_OK && end.code == 0);
        CHECK(end.output_length == 0 && end.output_total == 0);
        // The run does not keep its duplicates.
        CHECK(close(input[0]) == 0 && close(both[1]) == 0);
        size_t all = 0;
        for (ssize_t got; (got = read(both[0], text + all, sizeof text - 1 - all)) > 0;)
            all += (size_t)got;
        CHECK(all == 12 && strstr(text, "0000000\n") && strstr(text, "end\n") && close(both[0]) == 0);
    }
    // A file, from its offset, and one that gets more than the buffers could.
    int from = memfd_create("input", MFD_CLOEXEC), to = memfd_create("output", MFD_CLOEXEC);
    CHECK(write(from, "exit 3\nlines 200000\nexit 4\n", 27) == 27 && lseek(from, 7, SEEK_SET) == 7);
    with.input_file = from, with.output_file = to, with.error_file = -1;
    CHECK(hartline_clone_run(clone, &with, &end, LIMIT) == HARTLINE_OK && end.code == 4);
    CHECK(lseek(to, 0, SEEK_END) == 1600000 && pread(to, text, 8, 1599992) == 8);
    CHECK(memcmp(text, "0199999\n", 8) == 0 && close(from) == 0 && close(to) == 0);
    CHECK(hartline_clone_end(clone) == HARTLINE_OK);
}

// Output that nobody reads: the run has no end of its own, and the clone cannot be reset.
static void test_lost(void) {
    hartline_clone clone = alone();
    struct hartline_run with = HARTLINE_RUN;
    int pipes[2];
    CHECK(pipe2(pipes, O_CLOEXEC) == 0);
    with.input = "endless\n", with.input_length = 8, with.output_file = pipes[1];
    CHECK(hartline_clone_run(clone, &with, &end, 500) == HARTLINE_LOST && says("output"));
    CHECK(run(clone, "count\n", LIMIT) == HARTLINE_LOST && says("the clone cannot run"));
    CHECK(end.code == 0 && end.output_length == 0);
    CHECK(hartline_clone_end(clone) == HARTLINE_OK && run(clone, "", LIMIT) == HARTLINE_NO_CLONE);
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
}

static void test_wrong_snapshots(void) {
    hartline_template template = 1;
    char path[4096];
    snprintf(path, sizeof path, "%s.missing", snapshot);
    CHECK(hartline_template_load(path, &options, &template) == HARTLINE_LOAD && template == 0);
    CHECK(says("missing/config.json") && says("No such file"));
    snprintf(path, sizeof path, "%s.empty", snapshot);
    CHECK(hartline_template_load(path, &options, &template) == HARTLINE_LOAD && says("empty/config.json"));
    snprintf(path, sizeof path, "%s.damaged", snapshot);
    CHECK(hartline_template_load(path, &options, &template) == HARTLINE_LOAD && says("damaged: wrong checksum"));
    CHECK(hartline_template_load("/dev/null", &options, &template) == HARTLINE_LOAD && template == 0);
}

static void test_wrong_templates(void) {
    struct hartline_template_options wrong = options;
    hartline_template template = 1;
    hartline_clone clone = 1;
    CHECK(hartline_template_load(NULL, &options, &template) == HARTLINE_ARGUMENT && template == 0);
    CHECK(hartline_template_load(snapshot, &options, NULL) == HARTLINE_ARGUMENT);
    CHECK(hartline_template_load(snapshot, &options, (hartline_template *)1) == HARTLINE_ARGUMENT);
    wrong.size--;
    CHECK(hartline_template_load(snapshot, &wrong, &template) == HARTLINE_ARGUMENT);
    CHECK(says("HARTLINE_TEMPLATE_OPTIONS"));
    wrong = options, wrong.baseline = 4;
    CHECK(hartline_template_load(snapshot, &wrong, &template) == HARTLINE_ARGUMENT && says("baseline 4"));
    wrong = options, wrong.reserved = 1;
    CHECK(hartline_template_load(snapshot, &wrong, &template) == HARTLINE_ARGUMENT && template == 0);
    wrong = options, wrong.start_limit_ms = 1;
    CHECK(hartline_template_load(snapshot, &wrong, &template) == HARTLINE_OK);
    CHECK(hartline_clone_start(template, &clone) == HARTLINE_START && clone == 0);
    CHECK(hartline_clone_start(template, NULL) == HARTLINE_ARGUMENT);
    CHECK(hartline_clone_start(0, &clone) == HARTLINE_NO_TEMPLATE && hartline_clone_start(7777, &clone) == HARTLINE_NO_TEMPLATE);
    CHECK(hartline_template_free(template) == HARTLINE_OK && hartline_template_free(template) == HARTLINE_NO_TEMPLATE);
    CHECK(hartline_clone_start(template, &clone) == HARTLINE_NO_TEMPLATE && says("no such template"));
}

static void test_wrong_runs(void) {
    hartline_template template = loaded();
    hartline_clone clone = started(template);
    size_t length;
    // Numbers are of one kind.
    CHECK(hartline_clone_end(template) == HARTLINE_NO_CLONE && hartline_template_free(clone) == HARTLINE_NO_TEMPLATE);
    CHECK(hartline_end(clone) == HARTLINE_NO_SANDBOX && hartline_start(template) == HARTLINE_NO_SANDBOX);
    CHECK(run(template, "", LIMIT) == HARTLINE_NO_CLONE && run(0, "", LIMIT) == HARTLINE_NO_CLONE);
    CHECK(hartline_template_free(template) == HARTLINE_OK);
    CHECK(run(clone, "", 0) == HARTLINE_ARGUMENT && says("0 ms"));
    CHECK(hartline_clone_run(clone, NULL, NULL, LIMIT) == HARTLINE_ARGUMENT);
    struct hartline_run right = run_of("count\n"), wrong = right;
#define REFUSED(change, text)                                                                                   \
    do {                                                                                                        \
        wrong = right, change;                                                                                  \
        CHECK(hartline_clone_run(clone, &wrong, &end, LIMIT) == HARTLINE_ARGUMENT && says(text));               \
        CHECK(ended(HARTLINE_EXITED, 0, ""));                                                                   \
    } while (0)
    REFUSED(wrong.size = 8, "HARTLINE_RUN");
    REFUSED(wrong.reserved = 1, "reserved");
    REFUSED(wrong.input = NULL, "the input: NULL");
    REFUSED(wrong.output = NULL, "the output: NULL");
    REFUSED(wrong.error = NULL, "the error output: NULL");
    REFUSED(wrong.input_length = SIZE_MAX, "the input");
    REFUSED(wrong.output_room = SIZE_MAX, "the output");
    REFUSED(wrong.input_file = 0, "bytes and a descriptor");
    REFUSED(wrong.output_file = 2, "both buffers, or both descriptors");
    REFUSED((wrong.error_room = 0, wrong.error_file = 2), "both buffers, or both descriptors");
    REFUSED((wrong.input_length = 0, wrong.input_file = 12345), "input: descriptor 12345");
    REFUSED((wrong.input_length = 0, wrong.input_file = -2), "input: descriptor -2");
    REFUSED((wrong.output_room = wrong.error_room = 0, wrong.output_file = 12345), "output: descriptor 12345");
    REFUSED((wrong.output_room = wrong.error_room = 0, wrong.error_file = -2), "output: descriptor -2");
    CHECK(hartline_clone_run(clone, (struct hartline_run *)((char *)&right + 1), &end, LIMIT) == HARTLINE_ARGUMENT);
    CHECK(hartline_clone_warnings(clone, NULL, 1, &length) == HARTLINE_ARGUMENT);
    CHECK(hartline_clone_warnings(clone, output, 1, NULL) == HARTLINE_ARGUMENT);
    // The largest room is possible: only what is written needs memory.
    wrong = right, wrong.output_room = SIZE_MAX / 2;
    CHECK(hartline_clone_run(clone, &wrong, &end, LIMIT) == HARTLINE_OK && ended(HARTLINE_EXITED, 0, "0 0 0 0\n"));
    CHECK(hartline_clone_end(clone) == HARTLINE_OK && hartline_clone_end(clone) == HARTLINE_NO_CLONE);
    CHECK(run(clone, "", LIMIT) == HARTLINE_NO_CLONE && says("no such clone"));
    CHECK(hartline_clone_warnings(clone, output, 1, &length) == HARTLINE_NO_CLONE);
}

static void *run_often(void *argument) {
    hartline_clone clone = *(hartline_clone *)argument;
    for (int round = 0; round < 100; round++) {
        char input[64], own[64], expected[64];
        struct hartline_run with = HARTLINE_RUN;
        struct hartline_run_end how;
        // The address of the argument tells threads apart.
        int size = snprintf(input, sizeof input, "count\n%d %p\nexit 9\n", round, argument);
        int longest = snprintf(expected, sizeof expected, "0 0 0 0\n%d %p\n", round, argument);
        with.input = input, with.input_length = (size_t)size;
        with.output = own, with.output_room = sizeof own;
        CHECK(hartline_clone_run(clone, &with, &how, LIMIT) == HARTLINE_OK && how.code == 9);
        CHECK(how.output_length == (size_t)longest && memcmp(own, expected, (size_t)longest) == 0);
    }
    return NULL;
}

static void *spin(void *argument) {
    struct hartline_run with = HARTLINE_RUN;
    struct hartline_run_end how;
    with.input = "spin\n", with.input_length = 5;
    int status = hartline_clone_run(*(hartline_clone *)argument, &with, &how, HARTLINE_NO_LIMIT);
    CHECK(status == HARTLINE_LOST && says("the clone cannot run"));
    return NULL;
}

static void test_threads(void) {
    hartline_template template = loaded();
    hartline_clone clones[4] = {started(template), 0, started(template), 0};
    pthread_t threads[4];
    clones[1] = clones[0], clones[3] = clones[2];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, run_often, &clones[i]) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    // The end of a clone ends a run of another thread.
    CHECK(pthread_create(&threads[0], NULL, spin, &clones[0]) == 0);
    usleep(100000);
    CHECK(hartline_clone_end(clones[0]) == HARTLINE_OK && pthread_join(threads[0], NULL) == 0);
    CHECK(run(clones[2], "count\n", LIMIT) == HARTLINE_OK && ended(HARTLINE_EXITED, 0, "0 0 0 0\n"));
    CHECK(hartline_clone_end(clones[2]) == HARTLINE_OK && hartline_template_free(template) == HARTLINE_OK);
}

// A child has no clones and templates of its parent, but can have its own.
static void test_fork(void) {
    hartline_template template = loaded();
    hartline_clone clone = started(template), other;
    size_t length;
    CHECK(run(clone, "count\n", LIMIT) == HARTLINE_OK);
    pid_t child = fork();
    if (child == 0) {
        CHECK(run(clone, "count\n", LIMIT) == HARTLINE_FORKED && says("the clone is in another process"));
        CHECK(hartline_clone_warnings(clone, output, 1, &length) == HARTLINE_FORKED);
        CHECK(hartline_clone_start(template, &other) == HARTLINE_FORKED && other == 0);
        CHECK(hartline_clone_end(clone) == HARTLINE_FORKED && hartline_template_free(template) == HARTLINE_FORKED);
        other = alone();
        CHECK(run(other, "count\n", LIMIT) == HARTLINE_OK && ended(HARTLINE_EXITED, 0, "0 0 0 0\n"));
        CHECK(hartline_clone_end(other) == HARTLINE_OK);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(run(clone, "count\n", LIMIT) == HARTLINE_OK && ended(HARTLINE_EXITED, 0, "0 0 0 0\n"));
    CHECK(hartline_clone_end(clone) == HARTLINE_OK && hartline_template_free(template) == HARTLINE_OK);
}

// Nothing of ended clones and freed templates stays, and no process of the host. A program that this process executes inherits
// nothing.
static void test_resources(void) {
    CHECK(hartline_clone_end(alone()) == HARTLINE_OK);
    await_rest(1024);
    int descriptors = entries("/proc/self/fd");
    for (int round = 0; round < 30; round++) {
        hartline_clone clone = alone();
        for (int again = 0; again < round % 4; again++)
            CHECK(run(clone, "count\nexit 1\n", LIMIT) == HARTLINE_OK && end.code == 1);
        CHECK(entries("/proc/self/task") > 1);
        check_close_on_exec();
        CHECK(hartline_clone_end(clone) == HARTLINE_OK);
    }
    await_rest(descriptors);
    // Runs of one clone.
    hartline_clone clone = alone();
    for (int round = 0; round < 20; round++)
        CHECK(run(clone, "count\nlines 10\n", LIMIT) == HARTLINE_OK);
    // Translators come and go.
    const int some = 20;
    int during = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    for (int round = 0; round < 300; round++)
        CHECK(run(clone, "count\nlines 10\n", LIMIT) == HARTLINE_OK);
    CHECK(entries("/proc/self/fd") <= during + some && entries("/proc/self/task") <= threads + some);
    CHECK(hartline_clone_end(clone) == HARTLINE_OK);
    await_rest(descriptors);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static uint64_t count(hartline_sandbox sandbox) {
    uint64_t value = 0;
    size_t length;
    CHECK(hartline_call(sandbox, "count", NULL, 0, &value, sizeof value, &length, LIMIT) == HARTLINE_OK);
    CHECK(length == sizeof value);
    return value;
}

static int64_t twice(void *user, const void *input, size_t length, void *output, size_t room) {
    ++*(int *)user;
    CHECK(2 * length <= room);
    memcpy(output, input, length);
    memcpy((char *)output + length, input, length);
    return (int64_t)(2 * length);
}

// Sandboxes that continue a snapshot.
static void test_sandboxes(void) {
    char path[4096];
    hartline_template template = 0;
    hartline_sandbox sandboxes[2], other = 1;
    int calls = 0;
    size_t length;
    snprintf(path, sizeof path, "%s.calls", snapshot);
    CHECK(hartline_template_load(path, &options, &template) == HARTLINE_OK);
    CHECK(hartline_create_from(0, -1, -1, &other) == HARTLINE_NO_TEMPLATE && other == 0);
    CHECK(hartline_create_from(template, -1, -1, NULL) == HARTLINE_ARGUMENT);
    CHECK(hartline_create_from(template, 12345, -1, &other) == HARTLINE_ARGUMENT && says("12345"));
    for (int i = 0; i < 2; i++) {
        CHECK(hartline_create_from(template, -1, -1, &sandboxes[i]) == HARTLINE_OK);
        CHECK(hartline_register(sandboxes[i], "twice", twice, &calls) == HARTLINE_OK);
    }
    CHECK(hartline_template_free(template) == HARTLINE_OK);
    CHECK(hartline_create_from(template, -1, -1, &other) == HARTLINE_NO_TEMPLATE);
    for (int i = 0; i < 2; i++)
        CHECK(hartline_start(sandboxes[i]) == HARTLINE_OK && hartline_start(sandboxes[i]) == HARTLINE_STATE);
    for (int round = 0; round < 20; round++) {
        CHECK(count(sandboxes[0]) == 1 && count(sandboxes[0]) == 2 && count(sandboxes[1]) == 1);
        CHECK(hartline_call(sandboxes[1], "host", "ab", 2, output, sizeof output, &length, LIMIT) == HARTLINE_OK);
        CHECK(length == 4 && memcmp(output, "abab", 4) == 0 && calls == round + 1);
        for (int i = 0; i < 2; i++)
            CHECK(hartline_reset(sandboxes[i], NULL) == HARTLINE_OK);
    }
    for (int i = 0; i < 2; i++)
        CHECK(hartline_end(sandboxes[i]) == HARTLINE_OK);
    // A program that waits for its standard input, which is empty.
    template = loaded();
    CHECK(hartline_create_from(template, -1, -1, &other) == HARTLINE_OK && hartline_start(other) == HARTLINE_START);
    CHECK(hartline_end(other) == HARTLINE_OK && hartline_template_free(template) == HARTLINE_OK);
}

int main(int argc, char **argv) {
    CHECK(argc > 2 && hartline_interface() == HARTLINE_INTERFACE);
    snapshot = argv[1];
    options.cache = argv[2];
    if (argc > 3) {
        // The host ends beside a clone, with a word to nobody.
        CHECK(run(alone(), "count\n", LIMIT) == HARTLINE_OK);
        pthread_t thread;
        hartline_clone clone = alone();
        CHECK(pthread_create(&thread, NULL, spin, &clone) == 0);
        usleep(50000);
        exit(0);
    }
    note_inherited();
    // No standard stream is needed.
    CHECK(close(0) == 0);
    inherited[0] = 0;
    test_resources();
    test_wrong_snapshots();
    test_wrong_templates();
    test_wrong_runs();
    test_state();
    test_sandboxes();
    test_ends();
    test_outputs();
    test_descriptors();
    test_lost();
    test_threads();
    test_fork();
    puts("passed");
    return 0;
}
