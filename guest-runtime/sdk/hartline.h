/*
 * Functions that a program exports to its host, and functions of the host that it calls.
 *
 * A program in a VM of Hartline:
 *
 *     static long add(const void *input, size_t length, void *output, size_t room) { … }
 *
 *     int main(void) {
 *         hartline_export("add", add);
 *         return hartline_serve();
 *     }
 *
 * The host then calls "add" as often as it likes (hartline_vmm::exports in Rust), and can reset the VM to the
 * moment of the first hartline_serve(). Elsewhere, hartline_serve() fails with ENOSYS, and the program can
 * call its functions itself, with hartline_call().
 *
 * The functions are not thread-safe, but any thread may call hartline_call_host() and hartline_generation().
 */
#ifndef HARTLINE_H
#define HARTLINE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Longest input and longest output of a function, bytes. */
#define HARTLINE_MAX_DATA 65472
/* Longest name of a function, bytes. */
#define HARTLINE_MAX_NAME 64
/* Most functions of a program. */
#define HARTLINE_MAX_EXPORTS 256

/*
 * A function: reads `length` bytes of input, and writes at most `room` bytes of output. Result: the length of
 * the output, or a negated error number.
 */
typedef long (*hartline_function)(const void *input, size_t length, void *output, size_t room);

enum {
    HARTLINE_NUMBER = 0x484c,
    HARTLINE_INFO = 0,
    HARTLINE_SERVE = 1,
    HARTLINE_CALL_HOST = 2,
    HARTLINE_GENERATION = 3,
    HARTLINE_GENERATION_WORD = 4,
};

struct hartline_serve_request {
    uint64_t output, output_length;
    int64_t status;
    uint64_t buffer, buffer_length, name_length, input_length;
};

struct hartline_host_request {
    uint64_t name, name_length, input, input_length, output, output_length;
};

static struct {
    const char *name;
    hartline_function function;
} hartline_exports[HARTLINE_MAX_EXPORTS];
static size_t hartline_export_count;
static unsigned char hartline_call_buffer[HARTLINE_MAX_NAME + HARTLINE_MAX_DATA];
static unsigned char hartline_output_buffer[HARTLINE_MAX_DATA];

/*
 * Exports a function. The name must stay where it is. Result: 0, or -1 with errno set: EINVAL (the name is empty or
 * too long), EEXIST (there is a function of this name already) or ENOSPC (there are HARTLINE_MAX_EXPORTS already).
 */
static inline int hartline_export(const char *name, hartline_function function) {
    size_t length = strlen(name);
    if (length == 0 || length > HARTLINE_MAX_NAME) {
        errno = EINVAL;
        return -1;
    }
    for (size_t i = 0; i < hartline_export_count; i++) {
        if (strcmp(hartline_exports[i].name, name) == 0) {
            errno = EEXIST;
            return -1;
        }
    }
    if (hartline_export_count == HARTLINE_MAX_EXPORTS) {
        errno = ENOSPC;
        return -1;
    }
    hartline_exports[hartline_export_count].name = name;
    hartline_exports[hartline_export_count].function = function;
    hartline_export_count++;
    return 0;
}

/*
 * Calls an exported function of this program. Result: the length of the output, or a negated error number;
 * -ENOENT if there is no such function.
 */
static inline long hartline_call(const char *name, size_t name_length, const void *input, size_t length,
                                 void *output, size_t room) {
    for (size_t i = 0; i < hartline_export_count; i++) {
        const char *known = hartline_exports[i].name;
        if (strlen(known) == name_length && memcmp(known, name, name_length) == 0)
            return hartline_exports[i].function(input, length, output, room);
    }
    return -ENOENT;
}

/*
 * Serves calls of the host, for ever. Result: -1 with errno set: ENOSYS (this is not Hartline) or ENOTCONN (the
 * host makes no calls).
 */
static inline int hartline_serve(void) {
    struct hartline_serve_request request = {0};
    /* The pages exist before the state that the VM is reset to. */
    memset(hartline_call_buffer, 1, sizeof hartline_call_buffer);
    memset(hartline_output_buffer, 1, sizeof hartline_output_buffer);
    request.output = (uintptr_t)hartline_output_buffer;
    request.buffer = (uintptr_t)hartline_call_buffer;
    request.buffer_length = sizeof hartline_call_buffer;
    for (;;) {
        if (syscall(HARTLINE_NUMBER, HARTLINE_SERVE, &request) != 0) {
            if (errno == EINTR)
                continue;
            return -1;
        }
        const char *name = (const char *)hartline_call_buffer;
        long result = hartline_call(name, request.name_length, name + request.name_length, request.input_length,
                                    hartline_output_buffer, sizeof hartline_output_buffer);
        request.status = result < 0 ? result : 0;
        request.output_length = result < 0 ? 0 : (uint64_t)result;
    }
}

/*
 * Calls a function of the host. Result: the length of the output, or -1 with errno set: ENOSYS (this is not
 * Hartline), ENOTCONN (the host has no functions), ENOENT (it has no such function), or the function's error.
 */
static inline long hartline_call_host(const char *name, const void *input, size_t length, void *output,
                                      size_t room) {
    struct hartline_host_request request = {
        (uintptr_t)name,  strlen(name),      (uintptr_t)input,
        length,           (uintptr_t)output, room,
    };
    return syscall(HARTLINE_NUMBER, HARTLINE_CALL_HOST, &request);
}

/*
 * A number that changes with each reset, and that is another one in each VM that continues a snapshot: compare it to know whether
 * something must be made anew. 0: this is not Hartline.
 */
static inline uint64_t hartline_generation(void) {
    long generation = syscall(HARTLINE_NUMBER, HARTLINE_GENERATION);
    return generation < 0 ? 0 : (uint64_t)generation;
}

/*
 * Keeps a word at hartline_generation(), so that a program can poll it without a system call: it has the new number before the program
 * continues. A process has one such word, which its children have too. NULL: none any more. Result: 0, or -1 with errno set: ENOSYS
 * (this is not Hartline), EFAULT (the program cannot write to it).
 */
static inline int hartline_keep_generation(volatile uint64_t *word) {
    return (int)syscall(HARTLINE_NUMBER, HARTLINE_GENERATION_WORD, word);
}

#endif
