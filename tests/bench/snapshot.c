// The program of `hartline bench snapshot`.
//
//     snapshot hot              touches 8 MiB, reads a line, touches them again, and prints a line
//     snapshot serve            exports functions to its host
//     snapshot http PORT        answers requests of HTTP, one after another
//     snapshot calls COUNT      the same calls between two threads of this process; prints ns per call
//     snapshot forks COUNT      the same work in a new process for each call; prints ns per call
#define _GNU_SOURCE
#include "hartline.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

enum { PAGE = 4096, HOT = 8 << 20 };

// The work between two calls.
static unsigned char *hot;

static uint64_t touch(size_t from, size_t pages) {
    uint64_t sum = 0;
    for (size_t page = from; page < from + pages; page++)
        sum += hot[page % (HOT / PAGE) * PAGE]++;
    return sum;
}

static uint64_t number(const void *input, size_t length) {
    uint64_t value = 0;
    memcpy(&value, input, length < sizeof value ? length : sizeof value);
    return value;
}

static long put(void *output, uint64_t value) {
    memcpy(output, &value, sizeof value);
    return sizeof value;
}

// The sum of two numbers.
static long add(const void *input, size_t length, void *output, size_t room) {
    const char *at = input;
    return put(output, number(at, length) + (length > 8 ? number(at + 8, length - 8) : 0));
}

// Writes to as many pages as the input has bytes.
static long dirty(const void *input, size_t length, void *output, size_t room) {
    return put(output, touch(0, length));
}

// Maps new pages, as many as the input has bytes, and writes to them: page tables change.
static long map(const void *input, size_t length, void *output, size_t room) {
    unsigned char *pages =
        mmap(NULL, (length + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return -errno;
    for (size_t page = 0; page < length; page++)
        pages[page * PAGE] = 1;
    return put(output, length);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

// Odd: a call. Even: no call, or a reply.
static _Atomic uint64_t turns;
static uint64_t request[2], reply;

static void *answer(void *count) {
    for (uint64_t call = 0; call < (uintptr_t)count; call++) {
        while (atomic_load(&turns) != 2 * call + 1)
            ;
        reply = request[0] + request[1];
        atomic_store(&turns, 2 * call + 2);
    }
    return NULL;
}

static int calls(uint64_t count) {
    pthread_t thread;
    uint64_t sum = 0;
    if (pthread_create(&thread, NULL, answer, (void *)(uintptr_t)count))
        return 1;
    uint64_t start = now();
    for (uint64_t call = 0; call < count; call++) {
        request[0] = call, request[1] = 1;
        atomic_store(&turns, 2 * call + 1);
        while (atomic_load(&turns) != 2 * call + 2)
            ;
        sum += reply;
    }
    uint64_t time = now() - start;
    pthread_join(thread, NULL);
    printf("%f\n", (double)time / count);
    return sum != count * (count + 1) / 2;
}

static int forks(uint64_t count) {
    uint64_t start = now();
    for (uint64_t call = 0; call < count; call++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            touch(0, 50);
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status)
            return 1;
    }
    printf("%f\n", (double)(now() - start) / count);
    return 0;
}

// Answers each request with the sum of all counters, after it has changed some of them.
static int http(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_ANY)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64)) {
        perror("listen");
        return 1;
    }
    for (;;) {
        int client = accept(listener, NULL, NULL);
        char request[2048], answer[256];
        size_t length = 0;
        while (client >= 0 && !memmem(request, length, "\r\n\r\n", 4)) {
            ssize_t count = read(client, request + length, sizeof request - length);
            if (count <= 0)
                break;
            length += count;
        }
        int body = snprintf(request, sizeof request, "%lu\n", (unsigned long)touch(0, 16));
        int all = snprintf(answer, sizeof answer, "HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s", body,
                           request);
        if (write(client, answer, all) != all)
            perror("write");
        close(client);
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    hot = aligned_alloc(PAGE, HOT);
    if (!hot)
        return 1;
    memset(hot, 1, HOT);
    if (!strcmp(how, "hot")) {
        char line[80];
        if (!fgets(line, sizeof line, stdin))
            return 1;
        printf("%lu\n", (unsigned long)touch(0, HOT / PAGE));
        fflush(stdout);
        // The end of its input.
        return getchar() != EOF;
    }
    if (!strcmp(how, "http"))
        return http(count);
    if (!strcmp(how, "calls"))
        return calls(count);
    if (!strcmp(how, "forks"))
        return forks(count);
    if (!strcmp(how, "serve")) {
        hartline_export("add", add);
        hartline_export("dirty", dirty);
        hartline_export("map", map);
        hartline_serve();
        perror("hartline_serve");
    }
    return 2;
}
