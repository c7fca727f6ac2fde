// A host in C: everything that hartline_host.h says, with the functions of programs/alone/calls.c.
//
//     sandbox PROGRAM CACHE [exit]
#define _GNU_SOURCE
#include "host.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const char *program;
static struct hartline_options options = HARTLINE_OPTIONS;
static char output[HARTLINE_HOST_MAX_DATA];
static size_t length;

static int call(hartline_sandbox sandbox, const char *name, const char *input) {
    return hartline_call(sandbox, name, input, strlen(input), output, sizeof output, &length, LIMIT);
}

static uint64_t count(hartline_sandbox sandbox) {
    uint64_t value;
    CHECK(call(sandbox, "count", "") == HARTLINE_OK && length == sizeof value);
    memcpy(&value, output, sizeof value);
    return value;
}

static hartline_sandbox started(void) {
    hartline_sandbox sandbox;
    CHECK(hartline_create(program, &options, &sandbox) == HARTLINE_OK && sandbox != 0);
    CHECK(hartline_start(sandbox) == HARTLINE_OK);
    return sandbox;
}

static void test_calls(void) {
    static char longest[HARTLINE_HOST_MAX_DATA + 1];
    struct hartline_reset_result result;
    hartline_sandbox first = started(), second = started();
    CHECK(first != second);
    CHECK(call(first, "echo", "text") == HARTLINE_OK && length == 4 && memcmp(output, "text", 4) == 0);
    CHECK(count(first) == 1 && count(first) == 2 && count(second) == 1);
    CHECK(hartline_reset(first, &result) == HARTLINE_OK && result.pages > 0 && result.time_ns > 0);
    CHECK(count(first) == 1 && count(second) == 2);
    // Memory that a fork wipes is zero after a reset, and the page beside it is as it was.
    CHECK(call(first, "wiped", "") == HARTLINE_OK && output[0] == 0x01);
    CHECK(call(first, "wiped", "") == HARTLINE_OK && output[0] == 0x77);
    CHECK(hartline_reset(first, &result) == HARTLINE_OK);
    CHECK(call(first, "wiped", "") == HARTLINE_OK && output[0] == 0x01);
    CHECK(call(second, "wiped", "") == HARTLINE_OK && output[0] == 0x11);
    // The same buffer for both, the longest input, and none.
    memset(longest, 'x', sizeof longest);
    size_t most = HARTLINE_HOST_MAX_DATA;
    CHECK(hartline_call(first, "echo", longest, most, longest, most, &length, LIMIT) == HARTLINE_OK);
    CHECK(length == most && longest[0] == 'x' && longest[most - 1] == 'x');
    CHECK(hartline_call(first, "echo", NULL, 0, NULL, 0, &length, HARTLINE_NO_LIMIT) == HARTLINE_OK && length == 0);
    CHECK(call(first, "fail", "") == HARTLINE_FUNCTION && hartline_last_errno() == EDOM);
    CHECK(call(first, "no such function", "") == HARTLINE_FUNCTION && hartline_last_errno() == ENOENT);
    CHECK(hartline_warnings(first, output, sizeof output, &length) == HARTLINE_OK && length == 0);
    CHECK(hartline_end(first) == HARTLINE_OK && hartline_end(second) == HARTLINE_OK);
}

static void test_failures(void) {
    hartline_sandbox sandbox = started();
    CHECK(hartline_call(sandbox, "spin", "", 0, NULL, 0, &length, 50) == HARTLINE_LATE);
    CHECK(call(sandbox, "count", "") == HARTLINE_POISONED && says("must be reset"));
    CHECK(hartline_reset(sandbox, NULL) == HARTLINE_OK && count(sandbox) == 1);
    CHECK(call(sandbox, "crash", "") == HARTLINE_ENDED && call(sandbox, "count", "") == HARTLINE_ENDED);
    CHECK(hartline_reset(sandbox, NULL) == HARTLINE_OK && count(sandbox) == 1);
    CHECK(call(sandbox, "end", "\7") == HARTLINE_ENDED && says("code 7"));
    CHECK(hartline_reset(sandbox, NULL) == HARTLINE_OK && count(sandbox) == 1);
    CHECK(hartline_end(sandbox) == HARTLINE_OK);
}

static void test_mistakes(void) {
    static char longest[HARTLINE_HOST_MAX_DATA + 1];
    struct hartline_options wrong = options;
    char name[66] = {0}, message[8];
    hartline_sandbox sandbox, other = 1;
    CHECK(hartline_create(program, &options, NULL) == HARTLINE_ARGUMENT);
    CHECK(hartline_create(NULL, &options, &other) == HARTLINE_ARGUMENT && other == 0);
    CHECK(hartline_create("/no/such/program", &options, &other) == HARTLINE_LOAD && says("/no/such/program"));
    CHECK(hartline_create("/proc/self/exe", &options, &other) == HARTLINE_LOAD);
    wrong.size = 8;
    CHECK(hartline_create(program, &wrong, &other) == HARTLINE_ARGUMENT && says("HARTLINE_OPTIONS"));
    wrong = options, wrong.flags = 1u << 31;
    CHECK(hartline_create(program, &wrong, &other) == HARTLINE_ARGUMENT);
    wrong = options, wrong.ram = 4096;
    CHECK(hartline_create(program, &wrong, &other) == HARTLINE_ARGUMENT && says("4096 bytes of RAM"));
    wrong = options, wrong.argument_count = 1;
    CHECK(hartline_create(program, &wrong, &other) == HARTLINE_ARGUMENT);
    wrong = options, wrong.output = 12345;
    CHECK(hartline_create(program, &wrong, &other) == HARTLINE_ARGUMENT && says("12345"));
    wrong = options, wrong.rootfs = "/no/such/root";
    CHECK(hartline_create(program, &wrong, &other) == HARTLINE_LOAD);
    CHECK(other == 0 && hartline_start(0) == HARTLINE_NO_SANDBOX && hartline_end(7777) == HARTLINE_NO_SANDBOX);

    CHECK(hartline_create(program, &options, &sandbox) == HARTLINE_OK);
    CHECK(call(sandbox, "count", "") == HARTLINE_STATE && hartline_reset(sandbox, NULL) == HARTLINE_STATE);
    CHECK(hartline_start(sandbox) == HARTLINE_OK && hartline_start(sandbox) == HARTLINE_STATE);
    CHECK(hartline_call(sandbox, "echo", longest, sizeof longest, output, sizeof output, &length, LIMIT) ==
              HARTLINE_ARGUMENT && says("65473"));
    CHECK(hartline_call(sandbox, "echo", NULL, 1, output, 1, &length, LIMIT) == HARTLINE_ARGUMENT);
    CHECK(hartline_call(sandbox, "echo", "x", 1, NULL, 1, &length, LIMIT) == HARTLINE_ARGUMENT);
    CHECK(hartline_call(sandbox, "echo", "x", 1, output, 1, NULL, LIMIT) == HARTLINE_ARGUMENT);
    CHECK(hartline_call(sandbox, "echo", "x", SIZE_MAX, output, 1, &length, LIMIT) == HARTLINE_ARGUMENT);
    CHECK(hartline_call(sandbox, "echo", "x", 1, output, 1, &length, 0) == HARTLINE_ARGUMENT);
    CHECK(hartline_call(sandbox, NULL, "x", 1, output, 1, &length, LIMIT) == HARTLINE_ARGUMENT);
    CHECK(call(sandbox, "", "") == HARTLINE_ARGUMENT && call(sandbox, "\xff", "") == HARTLINE_ARGUMENT);
    memset(name, 'n', sizeof name - 1);
    CHECK(call(sandbox, name, "") == HARTLINE_ARGUMENT);
    CHECK(hartline_register(sandbox, "twice", NULL, NULL) == HARTLINE_ARGUMENT);
    // The room is too small: the call was made, and nothing beyond the room is written.
    memset(message, '-', sizeof message);
    CHECK(hartline_call(sandbox, "echo", "12345", 5, message, 4, &length, LIMIT) == HARTLINE_ROOM && length == 5);
    CHECK(memcmp(message, "--------", 8) == 0);
    CHECK(hartline_call(sandbox, "count", "", 0, NULL, 0, &length, LIMIT) == HARTLINE_ROOM && length == 8);
    CHECK(count(sandbox) == 2);
    CHECK(hartline_end(sandbox) == HARTLINE_OK);
    CHECK(call(sandbox, "count", "") == HARTLINE_NO_SANDBOX && hartline_reset(sandbox, NULL) == HARTLINE_NO_SANDBOX);
    CHECK(hartline_end(sandbox) == HARTLINE_NO_SANDBOX && hartline_start(sandbox) == HARTLINE_NO_SANDBOX);
    CHECK(hartline_register(sandbox, "twice", NULL, NULL) == HARTLINE_ARGUMENT);
    CHECK(strcmp(hartline_version(), "") != 0 && hartline_interface() == HARTLINE_INTERFACE);
}

struct host {
    hartline_sandbox sandbox;
    int uses, nested, reset, ended;
};

static int64_t twice(void *user, const void *input, size_t size, void *into, size_t room) {
    struct host *host = user;
    host->uses++;
    if (2 * size > room)
        return -E2BIG;
    memcpy(into, input, size);
    memcpy((char *)into + size, input, size);
    return (int64_t)(2 * size);
}

static int64_t failing(void *user, const void *input, size_t size, void *into, size_t room) {
    return -EDOM;
}

static int64_t wild(void *user, const void *input, size_t size, void *into, size_t room) {
    return INT64_MIN + (int64_t)size;
}

static int64_t too_long(void *user, const void *input, size_t size, void *into, size_t room) {
    return (int64_t)room + 1;
}

static int64_t nested(void *user, const void *input, size_t size, void *into, size_t room) {
    struct host *host = user;
    size_t got;
    host->nested = hartline_call(host->sandbox, "count", "", 0, NULL, 0, &got, LIMIT);
    host->reset = hartline_reset(host->sandbox, NULL);
    return 0;
}

static int64_t ending(void *user, const void *input, size_t size, void *into, size_t room) {
    struct host *host = user;
    host->ended = hartline_end(host->sandbox);
    return 0;
}

static void test_host_functions(void) {
    static struct host host;
    CHECK(hartline_create(program, &options, &host.sandbox) == HARTLINE_OK);
    CHECK(hartline_register(host.sandbox, "twice", twice, &host) == HARTLINE_OK);
    CHECK(hartline_start(host.sandbox) == HARTLINE_OK);
    CHECK(call(host.sandbox, "host", "ab") == HARTLINE_OK && length == 4 && memcmp(output, "abab", 4) == 0);
    CHECK(host.uses == 1);
    const struct {
        hartline_host_function function;
        int error;
    } wrong[] = {{failing, EDOM}, {wild, EIO}, {too_long, EIO}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(hartline_register(host.sandbox, "twice", wrong[i].function, NULL) == HARTLINE_OK);
        CHECK(call(host.sandbox, "host", "x") == HARTLINE_FUNCTION && hartline_last_errno() == wrong[i].error);
    }
    CHECK(call(host.sandbox, "unknown", "") == HARTLINE_FUNCTION && hartline_last_errno() == ENOENT);
    CHECK(hartline_register(host.sandbox, "twice", nested, &host) == HARTLINE_OK);
    CHECK(call(host.sandbox, "host", "") == HARTLINE_OK);
    CHECK(host.nested == HARTLINE_NESTED && host.reset == HARTLINE_NESTED);
    CHECK(hartline_register(host.sandbox, "twice", ending, &host) == HARTLINE_OK);
    CHECK(call(host.sandbox, "host", "") == HARTLINE_ENDED && host.ended == HARTLINE_OK);
    CHECK(hartline_end(host.sandbox) == HARTLINE_NO_SANDBOX);
}

static void *echo_often(void *argument) {
    hartline_sandbox sandbox = *(hartline_sandbox *)argument;
    for (uint64_t i = 0; i < 500; i++) {
        uint64_t back = 0;
        size_t size;
        CHECK(hartline_call(sandbox, "echo", &i, sizeof i, &back, sizeof back, &size, LIMIT) == HARTLINE_OK);
        CHECK(size == sizeof back && back == i);
        if (i % 50 == 0)
            CHECK(hartline_reset(sandbox, NULL) == HARTLINE_OK);
    }
    return NULL;
}

static void *spin(void *argument) {
    size_t size;
    int status = hartline_call(*(hartline_sandbox *)argument, "spin", "", 0, NULL, 0, &size, HARTLINE_NO_LIMIT);
    CHECK(status == HARTLINE_ENDED);
    return NULL;
}

static void test_threads(void) {
    hartline_sandbox sandboxes[2] = {started(), started()};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, echo_often, &sandboxes[i / 2]) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    // The end of a sandbox ends a call of another thread.
    CHECK(pthread_create(&threads[0], NULL, spin, &sandboxes[0]) == 0);
    usleep(100000);
    CHECK(hartline_end(sandboxes[0]) == HARTLINE_OK && pthread_join(threads[0], NULL) == 0);
    CHECK(count(sandboxes[1]) > 0 && hartline_end(sandboxes[1]) == HARTLINE_OK);
}

static volatile sig_atomic_t signals;

static void note(int signal) {
    signals++;
}

// Signals to the process are the host's, also while the machine's threads sleep, and no handler is replaced.
static void test_signals(void) {
    static const int own[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGUSR1, SIGCHLD};
    struct sigaction action = {.sa_handler = note}, now;
    hartline_sandbox sandbox = started();
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        CHECK(sigaction(own[i], &action, NULL) == 0);
    for (int round = 1; round <= 100; round++) {
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            CHECK(kill(getpid(), own[i]) == 0);
        CHECK(signals == round * (int)(sizeof own / sizeof *own));
        CHECK(count(sandbox) == (uint64_t)round);
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        CHECK(sigaction(own[i], NULL, &now) == 0 && now.sa_handler == note);
    // main() gave it a handler before the first machine, which has chosen another one.
    CHECK(sigaction(SIGRTMIN, NULL, &now) == 0 && now.sa_handler == note);
    CHECK(hartline_end(sandbox) == HARTLINE_OK);
}

// A child has no machines of its parent, but can have its own.
static void test_fork(void) {
    hartline_sandbox sandbox = started();
    CHECK(count(sandbox) == 1);
    pid_t child = fork();
    if (child == 0) {
        CHECK(call(sandbox, "count", "") == HARTLINE_FORKED && hartline_reset(sandbox, NULL) == HARTLINE_FORKED);
        CHECK(hartline_end(sandbox) == HARTLINE_FORKED);
        hartline_sandbox own = started();
        CHECK(count(own) == 1 && hartline_end(own) == HARTLINE_OK);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(count(sandbox) == 2 && hartline_reset(sandbox, NULL) == HARTLINE_OK && count(sandbox) == 1);
    CHECK(hartline_end(sandbox) == HARTLINE_OK);
}

// Nothing of ended sandboxes stays, and a program that this process executes inherits nothing.
static void test_resources(void) {
    // The first one leaves what all share.
    CHECK(hartline_end(started()) == HARTLINE_OK);
    await_rest(1024);
    int descriptors = entries("/proc/self/fd");
    for (int round = 0; round < 5; round++) {
        hartline_sandbox sandbox = started();
        CHECK(count(sandbox) == 1 && entries("/proc/self/task") > 1);
        check_close_on_exec();
        CHECK(hartline_end(sandbox) == HARTLINE_OK);
    }
    await_rest(descriptors);
}

// A program that gets arguments and environment, and its output.
static void test_streams(void) {
    char text[64] = {0};
    int pipes[2];
    struct hartline_options with = options;
    hartline_sandbox sandbox;
    CHECK(pipe2(pipes, O_CLOEXEC) == 0);
    with.output = pipes[1];
    CHECK(hartline_create(program, &with, &sandbox) == HARTLINE_OK && close(pipes[1]) == 0);
    CHECK(hartline_start(sandbox) == HARTLINE_OK && call(sandbox, "say", "text\n") == HARTLINE_OK);
    CHECK(hartline_end(sandbox) == HARTLINE_OK);
    size_t all = 0;
    for (ssize_t got; (got = read(pipes[0], text + all, sizeof text - 1 - all)) > 0;)
        all += (size_t)got;
    CHECK(strcmp(text, "ready\ntext\n") == 0 && close(pipes[0]) == 0);
    // The program sees no stream of this process, but devices that are like /dev/null.
    sandbox = started();
    uint64_t kinds, device = S_IFCHR;
    CHECK(call(sandbox, "streams", "") == HARTLINE_OK && length == sizeof kinds);
    memcpy(&kinds, output, sizeof kinds);
    CHECK(kinds == (device << 32 | device << 16 | device) && hartline_end(sandbox) == HARTLINE_OK);
}

// The host ends while code is being translated, without a word to the library.
static void end_early(void) {
    static char input[60000];
    hartline_sandbox sandbox = started();
    for (int i = 0; i < 300; i++)
        CHECK(hartline_call(sandbox, "add", input, sizeof input, output, sizeof output, &length, LIMIT) == 0);
}

int main(int argc, char **argv) {
    CHECK(argc > 2);
    program = argv[1];
    options.cache = argv[2];
    if (argc > 3) {
        end_early();
        return 0;
    }
    // Another part of the process uses this signal.
    struct sigaction action = {.sa_handler = note};
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
    note_inherited();
    // No standard stream is needed.
    CHECK(close(0) == 0);
    inherited[0] = 0;
    test_resources();
    test_mistakes();
    test_calls();
    test_failures();
    test_host_functions();
    test_threads();
    test_signals();
    test_streams();
    test_fork();
    puts("passed");
    return 0;
}
