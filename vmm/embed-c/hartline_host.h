/*
 * Calls functions of Linux/riscv64 programs, each in a virtual machine of this process, and resets the machines.
 * The programs export the functions with hartline.h. Link with -lhartline; docs/sandbox.md says more.
 *
 *     hartline_sandbox sandbox;
 *     char output[64];
 *     size_t length;
 *     if (hartline_create("./shout", NULL, &sandbox) || hartline_start(sandbox) ||
 *         hartline_call(sandbox, "shout", "hello", 5, output, sizeof output, &length, 1000) ||
 *         hartline_reset(sandbox, NULL) || hartline_end(sandbox))
 *         fprintf(stderr, "%s\n", hartline_last_error());
 *
 * All functions may be called from any thread. Calls and resets of one sandbox follow one another; those of different
 * sandboxes do not wait for each other. A sandbox is a number: one that was ended is an error, and never another one.
 *
 * The library starts threads, which block the signals of the host, and uses the first real-time signal that has no
 * handler when the first machine starts: give it none after that, and do not ignore it. It changes no other signal,
 * and uses no standard stream. Memory of ended sandboxes is freed; the library is never unloaded.
 * In a child of fork(), the sandboxes of the parent fail with HARTLINE_FORKED; the child can make its own if no thread of
 * the parent was in a function of this library during the fork.
 */
#ifndef HARTLINE_HOST_H
#define HARTLINE_HOST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of this interface: compare it with hartline_interface(). */
#define HARTLINE_INTERFACE 1
/* Longest input and longest output of a function, bytes. */
#define HARTLINE_HOST_MAX_DATA 65472
/* A limit, ms. */
#define HARTLINE_NO_LIMIT UINT64_MAX

/* A sandbox. 0 is none. */
typedef uint64_t hartline_sandbox;

/* What functions return. */
typedef enum hartline_status {
    HARTLINE_OK = 0,
    HARTLINE_ARGUMENT = 1,   /* an argument is wrong; nothing was done */
    HARTLINE_NO_SANDBOX = 2, /* there is no such sandbox, or it was ended */
    HARTLINE_STATE = 3,      /* the sandbox was started before, or was not */
    HARTLINE_LOAD = 4,       /* the program cannot be loaded or translated */
    HARTLINE_START = 5,      /* the machine cannot be started, or the program does not wait for calls */
    HARTLINE_FUNCTION = 6,   /* the function returned an error: hartline_last_errno(); ENOENT: or there is none */
    HARTLINE_LATE = 7,       /* there was no answer in time: reset the sandbox */
    HARTLINE_ENDED = 8,      /* the program has ended or crashed: reset the sandbox */
    HARTLINE_POISONED = 9,   /* an earlier call failed: reset the sandbox first */
    HARTLINE_ROOM = 10,      /* the call was made, but its output is longer than the buffer */
    HARTLINE_NESTED = 11,    /* a function of the host calls or resets the sandbox that has called it */
    HARTLINE_WAITING = 12,   /* a function of the host has not returned for 10 s: the reset follows when it does */
    HARTLINE_LOST = 13,      /* the machine cannot be used any more: end it */
    HARTLINE_FORKED = 14,    /* the sandbox is in another process, of which this one is a fork */
    HARTLINE_BUG = 15        /* the library has panicked */
} hartline_status;

/* All code is interpreted. It needs no cache, and is slow. */
#define HARTLINE_INTERPRET 1u
/* malloc() gets settings for the whole process with which translating takes less time (mallopt). */
#define HARTLINE_TUNE_ALLOCATOR 2u

/* How a program starts. Initialise it with HARTLINE_OPTIONS. Nothing is inherited from this process. */
struct hartline_options {
    size_t size; /* of this structure */
    const char *const *arguments; /* after the program's name */
    size_t argument_count;
    const char *const *environment; /* NAME=VALUE */
    size_t environment_count;
    const char *rootfs; /* directory, tar file or EROFS image that the program is in; NULL: it is the only file */
    const char *cache; /* directory of translations; NULL: HARTLINE_CACHE, or as for `hartline run` */
    uint64_t ram; /* bytes; 0: 2 GiB */
    uint64_t start_limit_ms; /* until the program waits for its first call; 0: a minute */
    int32_t output, error; /* descriptors for its output, which are duplicated; -1: it is discarded */
    uint32_t flags;
    uint32_t reserved; /* 0 */
};

#define HARTLINE_OPTIONS \
    { sizeof(struct hartline_options), NULL, 0, NULL, 0, NULL, NULL, 0, 0, -1, -1, 0, 0 }

/* What a reset did. */
struct hartline_reset_result {
    uint64_t pages; /* of 4 KiB that were put back */
    uint64_t time_ns; /* of the machine's thread */
    uint32_t tables_changed; /* 1: page tables of the guest had changed */
    uint32_t reserved;
};

/*
 * A function of the host: reads `length` bytes of input, and writes at most `room` bytes of output. Result: the length of
 * the output, or a negated error number. A thread of the machine calls it, one call at a time for each sandbox. It must
 * not throw an exception or jump out, and not wait for a thread that uses the same sandbox.
 */
typedef int64_t (*hartline_host_function)(void *user, const void *input, size_t length, void *output, size_t room);

/* The version of the library: a text that stays. */
const char *hartline_version(void);
/* Its HARTLINE_INTERFACE. */
uint32_t hartline_interface(void);

/* The text of the last error of this thread, until its next one. Empty: there was none. */
const char *hartline_last_error(void);
/* The error number of that error, if it was HARTLINE_FUNCTION; otherwise 0. */
int32_t hartline_last_errno(void);

/* Loads a program into a new sandbox. `options` may be NULL. */
int32_t hartline_create(const char *path, const struct hartline_options *options, hartline_sandbox *sandbox);

/*
 * Gives the program a function, in place of an earlier one with this name (1 to 64 bytes of UTF-8), before or after the
 * start. `user` is passed to it. Both must stay usable, by any thread, until hartline_end() has returned; if a function of
 * the sandbox itself calls hartline_end(), until that function has returned.
 */
int32_t hartline_register(hartline_sandbox sandbox, const char *name, hartline_host_function function, void *user);

/* Starts the program, and waits until it waits for its first call. If it fails, end the sandbox. */
int32_t hartline_start(hartline_sandbox sandbox);

/*
 * Calls a function of the program with `length` bytes of input, and writes its output to `output`, which has `room` bytes.
 * `output_length` gets the output's length, also if the room is too small. A call waits for earlier ones of other
 * threads; the limit begins after that. input and output may be the same, and NULL if they have no bytes.
 */
int32_t hartline_call(hartline_sandbox sandbox, const char *name, const void *input, size_t length, void *output,
                      size_t room, size_t *output_length, uint64_t limit_ms);

/*
 * Puts the machine back into the state before the first call, whatever the program does. It also helps after HARTLINE_LATE,
 * HARTLINE_ENDED and HARTLINE_POISONED. `result` may be NULL.
 */
int32_t hartline_reset(hartline_sandbox sandbox, struct hartline_reset_result *result);

/*
 * The files of which code is interpreted because it cannot be translated, a line with the reason for each; the text does
 * not end with 0. `length` gets its length, also if the room is too small.
 */
int32_t hartline_warnings(hartline_sandbox sandbox, char *text, size_t room, size_t *length);

/*
 * Ends the sandbox. Calls that other threads have begun fail. It waits for a function of the host that the program has
 * called. If such a function itself ends its sandbox, the machine ends after it.
 */
int32_t hartline_end(hartline_sandbox sandbox);

#ifdef __cplusplus
}
#endif

#endif
