// Functions for the host. The state in between shows what a reset puts back.
#include "hartline.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { PAGE = 4096 };

static const size_t HEAP = 16 << 20;
static uint64_t counter;
// All bytes are 1 at first.
static unsigned char *heap;
// A page with MADV_WIPEONFORK, and one without after it. All bytes are 1 at first.
static unsigned char *secrets;

static uint64_t number(const void *input, size_t length) {
    uint64_t value = 0;
    memcpy(&value, input, length < sizeof value ? length : sizeof value);
    return value;
}

static long put(void *output, uint64_t value) {
    memcpy(output, &value, sizeof value);
    return sizeof value;
}

static long add(const void *input, size_t length, void *output, size_t room) {
    uint64_t sum = 0;
    for (size_t at = 0; at + sizeof sum <= length; at += sizeof sum)
        sum += number((const char *)input + at, sizeof sum);
    return put(output, sum);
}

static long echo(const void *input, size_t length, void *output, size_t room) {
    memcpy(output, input, length);
    return (long)length;
}

static long count(const void *input, size_t length, void *output, size_t room) {
    return put(output, ++counter);
}

static long fail(const void *input, size_t length, void *output, size_t room) {
    return -EDOM;
}

// No error number.
static long least(const void *input, size_t length, void *output, size_t room) {
    return INT64_MIN;
}

// Increments a byte of so many pages that exist. Result: the sum of what they were.
static long dirty(const void *input, size_t length, void *output, size_t room) {
    uint64_t pages = number(input, length), sum = 0;
    for (uint64_t page = 0; page < pages; page++)
        sum += heap[page * PAGE + PAGE]++;
    return put(output, sum);
}

// Maps and writes so many new pages, and unmaps an old one.
static long map(const void *input, size_t length, void *output, size_t room) {
    size_t size = number(input, length) * PAGE;
    unsigned char *new = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (new == MAP_FAILED)
        return -ENOMEM;
    for (size_t at = 0; at < size; at += PAGE)
        new[at] = 1;
    if (munmap(heap + HEAP - PAGE, PAGE) != 0 || mprotect(heap, PAGE, PROT_READ) != 0)
        return -errno;
    return put(output, (uintptr_t)new);
}

static long spin(const void *input, size_t length, void *output, size_t room) {
    for (;;)
        __asm__ volatile("");
}

static long crash(const void *input, size_t length, void *output, size_t room) {
    *(volatile int *)8 = 1;
    return 0;
}

static long end(const void *input, size_t length, void *output, size_t room) {
    exit((int)number(input, length));
}

static long host(const void *input, size_t length, void *output, size_t room) {
    long result = hartline_call_host("twice", input, length, output, room);
    return result < 0 ? -errno : result;
}

static long unknown(const void *input, size_t length, void *output, size_t room) {
    return hartline_call_host("unknown", input, length, output, room) < 0 ? -errno : 0;
}

static volatile uint64_t kept_generation;

static long generation(const void *input, size_t length, void *output, size_t room) {
    if (kept_generation != hartline_generation())
        return -EILSEQ;
    return put(output, hartline_generation());
}

static long chance(const void *input, size_t length, void *output, size_t room) {
    return getrandom(output, 16, 0);
}

static long say(const void *input, size_t length, void *output, size_t room) {
    fwrite(input, 1, length, stdout);
    fflush(stdout);
    return 0;
}

// The kinds of the standard streams, and whether one is a terminal, or can be read.
static long streams(const void *input, size_t length, void *output, size_t room) {
    uint64_t kinds = 0;
    char byte;
    for (int stream = 0; stream < 3; stream++) {
        struct stat status;
        if (fstat(stream, &status) != 0)
            return -errno;
        kinds = kinds << 16 | (status.st_mode & S_IFMT);
        if (isatty(stream))
            return -ENOTTY;
    }
    return read(0, &byte, 1) == 0 ? put(output, kinds) : -EIO;
}

// A child, whose page tables are others, and a file.
static long change(const void *input, size_t length, void *output, size_t room) {
    int status;
    FILE *file = fopen("/tmp/left", "a+");
    if (!file)
        return -errno;
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 3)
        return -ECHILD;
    fputs("x", file);
    fflush(file);
    long size = ftell(file);
    fclose(file);
    return put(output, (uint64_t)size);
}

// What the pages of secrets have, 16 times the first one and the second one, and changes both. A page that has not one
// byte everywhere counts as 15.
static long wiped(const void *input, size_t length, void *output, size_t room) {
    uint64_t found = 0;
    for (size_t page = 0; page < 2; page++) {
        unsigned char *bytes = secrets + page * PAGE;
        int same = memcmp(bytes, bytes + 1, PAGE - 1) == 0;
        found = found * 16 + (same ? bytes[0] : 15);
        memset(bytes, 7, PAGE);
    }
    return put(output, found);
}

int main(int argc, char **argv) {
    secrets = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(secrets, PAGE, MADV_WIPEONFORK);
    memset(secrets, 1, 2 * PAGE);
    heap = mmap(NULL, HEAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(heap, 1, HEAP);
    hartline_export("add", add);
    hartline_export("echo", echo);
    hartline_export("count", count);
    hartline_export("wiped", wiped);
    hartline_export("fail", fail);
    hartline_export("least", least);
    hartline_export("dirty", dirty);
    hartline_export("map", map);
    hartline_export("spin", spin);
    hartline_export("crash", crash);
    hartline_export("end", end);
    hartline_export("host", host);
    hartline_export("unknown", unknown);
    hartline_export("generation", generation);
    hartline_export("chance", chance);
    hartline_export("say", say);
    hartline_export("change", change);
    hartline_export("streams", streams);
    if (hartline_export("add", echo) != -1 || errno != EEXIST)
        return 1;
    hartline_keep_generation(&kept_generation);
    puts("ready");
    fflush(stdout);
    hartline_serve();
    // Without a host that calls, the functions can be called here.
    uint64_t sum, numbers[2] = {40, 2};
    int error = errno;
    hartline_call("add", 3, numbers, sizeof numbers, &sum, sizeof sum);
    printf("%s: %lu %d\n", strerror(error), sum, hartline_generation() != 0);
    return 0;
}
