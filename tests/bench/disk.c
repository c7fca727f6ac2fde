// The program of `hartline bench disk`:
//
//   disk PATH THREADS READS [direct]
//
// reads 4 KiB at random offsets of a file or block device, READS times on each of THREADS threads
// (with `direct`: O_DIRECT), and prints the number of reads per second.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MANY = 64 };

static int file;
static uint64_t pages;
static long reads;

static void check(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static void *read_pages(void *argument) {
    uint64_t state = 88172645463325252 + (uintptr_t)argument * 0x9e3779b97f4a7c15;
    void *page;
    check(posix_memalign(&page, PAGE, PAGE) == 0, "memory");
    for (long n = 0; n < reads; n++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        check(pread(file, page, PAGE, state % pages * PAGE) == PAGE, "pread");
    }
    free(page);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    long count = atol(argv[2]);
    reads = atol(argv[3]);
    file = open(argv[1], O_RDONLY | (argc > 4 ? O_DIRECT : 0));
    check(file >= 0, argv[1]);
    pages = lseek(file, 0, SEEK_END) / PAGE;
    check(pages > 0 && count > 0 && count <= MANY, "arguments");
    pthread_t threads[MANY];
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long n = 1; n < count; n++)
        check(pthread_create(&threads[n], NULL, read_pages, (void *)n) == 0, "thread");
    read_pages(NULL);
    for (long n = 1; n < count; n++)
        pthread_join(threads[n], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double time = end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9;
    printf("%.1f\n", count * reads / time);
    return 0;
}
