/*
 * Linux/riscv64 programs in virtual machines of this process, which are reset after each use. Link with -lhartline.
 *
 * A sandbox runs a program that exports functions with hartline.h, and calls them (docs/sandbox.md):
 *
 *     hartline_sandbox sandbox;
 *     char output[64];
 *     size_t length;
 *     if (hartline_create("./shout", NULL, &sandbox) || hartline_start(sandbox) ||
 *         hartline_call(sandbox, "shout", "hello", 5, output, sizeof output, &length, 1000) ||
 *         hartline_reset(sandbox, NULL) || hartline_end(sandbox))
 *         fprintf(stderr, "%s\n", hartline_last_error());
 *
 * A warm clone continues a snapshot, again and again from the same state (docs/snapshots.md):
 *
 *     hartline_template template_;
 *     hartline_clone clone;
 *     struct hartline_run run = HARTLINE_RUN;
 *     struct hartline_run_end end;
 *     run.input = "hello\n", run.input_length = 6;
 *     run.output = output, run.output_room = sizeof output;
 *     if (hartline_template_load("warm", NULL, &template_) || hartline_clone_start(template_, &clone) ||
 *         hartline_clone_run(clone, &run, &end, 1000) || hartline_clone_end(clone) || hartline_template_free(template_))
 *         fprintf(stderr, "%s\n", hartline_last_error());
 *
 * All functions may be called from any thread. Calls, runs and resets of one machine follow one another; those of different
 * machines do not wait for each other. Sandboxes, templates and clones are numbers: one that was ended is an error, and its
 * number is never used again.
 *
 * The library starts threads, which block the signals of the host, and uses the first real-time signal that has no
 * handler when the first machine starts: give it none after that, and do not ignore it. It changes no other signal,
 * and uses no standard stream. Memory of ended machines is freed; the library is never unloaded.
 * In a child of fork(), the sandboxes, templates and clones of the parent fail with HARTLINE_FORKED; the child can make its own
 * if no thread of the parent was in a function of this library during the fork.
 */
#ifndef HARTLINE_HOST_H
#define HARTLINE_HOST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of this interface: compare it with hartline_interface(). */
#define HARTLINE_INTERFACE 2
/* Longest input and longest output of a function, bytes. */
#define HARTLINE_HOST_MAX_DATA 65472
/* A limit, ms. */
#define HARTLINE_NO_LIMIT UINT64_MAX

/* A sandbox. 0 is none. */
typedef uint64_t hartline_sandbox;
/* A snapshot that was loaded. 0 is none. */
typedef uint64_t hartline_template;
/* A machine in the state of a snapshot. 0 is none. */
typedef uint64_t hartline_clone;

/* What functions return. */
typedef enum hartline_status {
    HARTLINE_OK = 0,
    HARTLINE_ARGUMENT = 1,   /* an argument is wrong; nothing was done */
    HARTLINE_NO_SANDBOX = 2, /* there is no such sandbox, or it was ended */
    HARTLINE_STATE = 3,      /* the sandbox was started before, or was not */
    HARTLINE_LOAD = 4,       /* the program or snapshot cannot be loaded or translated */
    HARTLINE_START = 5,      /* the machine cannot be started, or the program does not wait for calls */
    HARTLINE_FUNCTION = 6,   /* the function returned an error: hartline_last_errno(); ENOENT: or there is none */
    HARTLINE_LATE = 7,       /* there was no answer in time: reset the sandbox */
    HARTLINE_ENDED = 8,      /* the program has ended or crashed: reset the sandbox */
    HARTLINE_POISONED = 9,   /* an earlier call failed: reset the sandbox first */
    HARTLINE_ROOM = 10,      /* the call was made, but its output is longer than the buffer */
    HARTLINE_NESTED = 11,    /* a function of the host calls or resets the sandbox that has called it */
    HARTLINE_WAITING = 12,   /* a function of the host has not returned for 10 s: the reset follows when it does */
    HARTLINE_LOST = 13,      /* the machine cannot be used any more: end it */
    HARTLINE_FORKED = 14,    /* the sandbox, template or clone is in another process, of which this one is a fork */
    HARTLINE_BUG = 15,       /* the library has panicked */
    HARTLINE_NO_TEMPLATE = 16, /* there is no such template, or it was freed */
    HARTLINE_NO_CLONE = 17,  /* there is no such clone, or it was ended */
    HARTLINE_STREAMS = 18    /* the host has no descriptors or memory left for the streams of a run */
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

/* The code that the baseline translator makes. It translates faster than LLVM, to slower code. */
typedef enum hartline_baseline {
    HARTLINE_BASELINE_AUTO = 0,  /* code that a program reaches before LLVM has translated it */
    HARTLINE_BASELINE_OFF = 1,   /* none */
    HARTLINE_BASELINE_WHOLE = 2, /* whole files, also if LLVM has translated them, before they are executed */
    HARTLINE_BASELINE_ONLY = 3   /* whole files; LLVM translates nothing */
} hartline_baseline;

/* How the clones of a snapshot are made. Initialise it with HARTLINE_TEMPLATE_OPTIONS. */
struct hartline_template_options {
    size_t size; /* of this structure */
    const char *cache; /* directory of translations; NULL: HARTLINE_CACHE, or as for `hartline run` */
    uint64_t start_limit_ms; /* until a clone is ready; 0: a minute */
    uint32_t baseline; /* a hartline_baseline */
    uint32_t reserved; /* 0 */
};

#define HARTLINE_TEMPLATE_OPTIONS \
    { sizeof(struct hartline_template_options), NULL, 0, HARTLINE_BASELINE_AUTO, 0 }

/*
 * The standard streams of a run. Initialise it with HARTLINE_RUN: the input is empty, and the outputs are discarded.
 *
 * The input has bytes or a descriptor. The outputs have buffers or descriptors, and not one of each. A buffer gets the output
 * when the run has ended. If the output is longer than the room, the buffer gets the newest bytes. Meanwhile the
 * library needs memory for the input, and for each output at most as much as the larger buffer, or 64 KiB. A descriptor gets
 * all output, without a limit, and is duplicated for the run. Writes to output and error are not kept in order, also if both
 * are the same file.
 */
struct hartline_run {
    size_t size; /* of this structure */
    const void *input; /* bytes of the standard input; NULL: none */
    size_t input_length; /* their number */
    void *output; /* buffer for the standard output; NULL: none */
    size_t output_room; /* its length, bytes */
    void *error; /* buffer for the standard error; NULL: none */
    size_t error_room; /* its length, bytes */
    int32_t input_file, output_file, error_file; /* descriptors; -1: none */
    uint32_t reserved; /* 0 */
};

#define HARTLINE_RUN \
    { sizeof(struct hartline_run), NULL, 0, NULL, 0, NULL, 0, -1, -1, -1, 0 }

/* What ended the program of a run. */
typedef enum hartline_cause {
    HARTLINE_EXITED = 0,     /* the program itself */
    HARTLINE_SIGNALED = 1,   /* a signal */
    HARTLINE_TIME_LIMIT = 2, /* the limit of the run; output may be lost */
    HARTLINE_FAILED = 3      /* it could not run to its end, for example for want of memory */
} hartline_cause;

/* How a run ended. hartline_last_message() has the reason. */
struct hartline_run_end {
    uint32_t cause; /* a hartline_cause */
    int32_t code; /* as of `hartline run`: the program's, 128 and the signal, 124 after the limit, 125 if it failed */
    int32_t signal; /* the signal, 1 to 64, if that was the cause; otherwise 0 */
    uint32_t reserved;
    size_t output_length, error_length; /* bytes in the buffers */
    uint64_t output_total, error_total; /* bytes that the program has written to them; more than that: older ones are lost */
    struct hartline_reset_result reset; /* the reset after the run */
};

/* The version of the library: a text that stays. */
const char *hartline_version(void);
/* Its HARTLINE_INTERFACE. */
uint32_t hartline_interface(void);

/* The text of the last error of this thread, until its next one. Empty: there was none. */
const char *hartline_last_error(void);
/* The error number of that error, if it was HARTLINE_FUNCTION; otherwise 0. */
int32_t hartline_last_errno(void);

/*
 * Why the program of this thread's last hartline_clone_run() did not end by itself: a line, and for a crash also the
 * registers. It stays until the next run of the thread. Empty: it ended by itself, or by a signal that is no error of the program,
 * for example SIGKILL, or there was no run.
 */
const char *hartline_last_message(void);

/* Loads a program into a new sandbox. `options` may be NULL. */
int32_t hartline_create(const char *path, const struct hartline_options *options, hartline_sandbox *sandbox);

/*
 * Makes a new sandbox of a snapshot whose program waited for its first call (`--snapshot-at call`). When it has started, the
 * program waits for a call again; a reset puts it back there. `output` and `error` are as in the options. The template may be
 * freed before the start.
 */
int32_t hartline_create_from(hartline_template loaded, int32_t output, int32_t error, hartline_sandbox *sandbox);

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

/*
 * Loads a snapshot, which `hartline run --snapshot` has written, and checks it. `options` may be NULL. The files of the snapshot
 * must not be changed while there is the template or a clone of it.
 */
int32_t hartline_template_load(const char *directory, const struct hartline_template_options *options,
                               hartline_template *loaded);

/* Frees a template. Its clones and sandboxes stay. */
int32_t hartline_template_free(hartline_template loaded);

/* Makes a machine in the state of the snapshot, and waits until it is ready for runs. */
int32_t hartline_clone_start(hartline_template loaded, hartline_clone *clone);

/*
 * Continues the program to its end with these streams, for at most `limit_ms`, and puts the machine back into the state of the
 * snapshot: the next run finds nothing of it. `run` may be NULL. A run waits for earlier ones of other threads; the limit begins
 * after that. If the result is HARTLINE_OK, the run has ended as `end` says. After HARTLINE_LOST only another clone
 * helps: end this one. No other error needs that.
 */
int32_t hartline_clone_run(hartline_clone clone, const struct hartline_run *run, struct hartline_run_end *end,
                           uint64_t limit_ms);

/* As hartline_warnings(), for a clone. */
int32_t hartline_clone_warnings(hartline_clone clone, char *text, size_t room, size_t *length);

/* Ends a clone. Runs that other threads have begun fail with HARTLINE_LOST. */
int32_t hartline_clone_end(hartline_clone clone);

#ifdef __cplusplus
}
#endif

#endif
