// Counting assertions. A program of this folder checks one area of the system calls in the
// directory that its argument names, and prints the number of assertions that held.
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int checks, failures;

// qemu-riscv64 handles some calls itself, differently from Linux. These assertions are
// skipped there.
static int emulated;

static inline int check(int holds, const char *text, const char *file, int line) {
    checks++;
    if (!holds) {
        failures++;
        printf("%s:%d: %s\n", file, line, text);
        fflush(stdout);
    }
    return holds;
}

// The condition holds.
#define CHECK(condition) check(!!(condition), #condition, __FILE__, __LINE__)

// A call gives this result.
#define GIVES(call, expected)                                                                \
    do {                                                                                     \
        errno = 0;                                                                           \
        long result_ = (long)(call), expected_ = (long)(expected);                           \
        if (!check(result_ == expected_, #call " == " #expected, __FILE__, __LINE__))        \
            printf("    it is %ld, error %s\n", result_, strerrorname_np(errno));            \
    } while (0)

// A call fails with this error.
#define FAILS(call, error)                                                                   \
    do {                                                                                     \
        errno = 0;                                                                           \
        long result_ = (long)(call);                                                         \
        if (!check(result_ == -1 && errno == (error), #call " fails with " #error, __FILE__, \
                   __LINE__))                                                                \
            printf("    it is %ld, error %s\n", result_, strerrorname_np(errno));            \
    } while (0)

// A call fails with one of two errors, between which file systems differ.
#define FAILS_EITHER(call, error, other)                                                     \
    do {                                                                                     \
        errno = 0;                                                                           \
        long result_ = (long)(call);                                                         \
        if (!check(result_ == -1 && (errno == (error) || errno == (other)),                  \
                   #call " fails with " #error " or " #other, __FILE__, __LINE__))           \
            printf("    it is %ld, error %s\n", result_, strerrorname_np(errno));            \
    } while (0)

// A child process runs the statements; its exit status is 0 unless they end it otherwise.
#define CHILD(...)                                                                           \
    ({                                                                                       \
        fflush(stdout);                                                                      \
        pid_t child_ = fork();                                                               \
        if (child_ == 0) {                                                                   \
            __VA_ARGS__;                                                                     \
            _exit(0);                                                                        \
        }                                                                                    \
        child_;                                                                              \
    })

// The status of an ended child, as reported by wait.
static inline int status_of(pid_t child) {
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

// The statements, run in a child, end with this exit status.
#define CHILD_EXITS(expected, ...)                                                           \
    do {                                                                                     \
        int status_ = status_of(CHILD(__VA_ARGS__));                                         \
        if (!check(WIFEXITED(status_) && WEXITSTATUS(status_) == (expected),                 \
                   "child exits with " #expected, __FILE__, __LINE__))                       \
            printf("    its status is %#x\n", status_);                                      \
    } while (0)

// The statements, run in a child, end it by this signal.
#define CHILD_DIES(expected, ...)                                                            \
    do {                                                                                     \
        int status_ = status_of(CHILD(__VA_ARGS__));                                         \
        if (!check(WIFSIGNALED(status_) && WTERMSIG(status_) == (expected),                  \
                   "child dies by " #expected, __FILE__, __LINE__))                          \
            printf("    its status is %#x\n", status_);                                      \
    } while (0)

// The letter of the state in the stat file of a process or thread.
static inline char state_in(const char *path) {
    char text[512] = "";
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    char *end = strrchr(text, ')');
    return end && end[1] ? end[2] : 0;
}

static inline char state_of(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    return state_in(path);
}

// Waits until a process waits for something, for five seconds at most.
static inline void wait_until_asleep(pid_t pid) {
    for (int i = 0; i < 5000 && state_of(pid) != 'S'; i++) usleep(1000);
}

// The same for a thread of this process.
static inline void wait_until_thread_asleep(pid_t tid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    for (int i = 0; i < 5000 && state_in(path) != 'S'; i++) usleep(1000);
}

// Goes to a fresh directory inside the one that the argument names.
static inline void enter(int count, char **arguments) {
    char name[4096];
    emulated = getenv("EMULATED") != NULL;
    snprintf(name, sizeof name, "%s/%s.XXXXXX", count > 1 ? arguments[1] : "/tmp", "check");
    if (!mkdtemp(name) || chdir(name) < 0) {
        perror(name);
        exit(2);
    }
}

// Prints the number of assertions; the program's exit status.
static inline int finish(const char *area) {
    printf("%s: %d assertions, %d failed\n", area, checks, failures);
    fflush(stdout);
    return failures != 0;
}
