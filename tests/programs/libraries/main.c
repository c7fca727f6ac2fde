// Code of shared libraries that is mapped, unmapped and changed: its translation must not be
// used meanwhile, and must be used again when the code is back.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const first = "/usr/lib/answer-1.so", *const second = "/usr/lib/answer-2.so";
typedef int function(void);

static void *open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        printf("%s\n", dlerror());
        exit(1);
    }
    return library;
}

static int square(int n) {
    return n * n;
}

static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

// The page of a function, and the offset of that page in the file.
static char *page_of(function *f, off_t *offset) {
    Dl_info info;
    dladdr((void *)f, &info);
    char *page = (char *)((uintptr_t)f & -4096);
    *offset = page - (char *)info.dli_fbase;
    return page;
}

static void calls_between_libraries(void) {
    void *library = open_library(first);
    int (*apply)(int (*)(int), int, int) = dlsym(library, "apply");
    void (*leave)(jmp_buf *, int) = dlsym(library, "leave");
    printf("apply %d\n", apply(square, 0, 1000));
    int numbers[2000];
    unsigned state = 1;
    for (int i = 0; i < 2000; i++) numbers[i] = (state = state * 1103515245 + 12345) >> 8;
    qsort(numbers, 2000, sizeof *numbers, compare);
    for (int i = 1; i < 2000; i++)
        if (numbers[i - 1] > numbers[i]) printf("not sorted\n");
    static jmp_buf here;
    for (volatile int i = 1; i < 4; i++) {
        int value = setjmp(here);
        if (value == 0) leave(&here, i);
        printf("left with %d\n", value);
    }
    dlclose(library);
}

static void opened_again_and_again(void) {
    int sum = 0, counted = 0;
    for (int i = 0; i < 40; i++) {
        void *library = open_library(i % 3 ? first : second);
        // Every second time, the next library is mapped elsewhere.
        void *block = i % 2 ? mmap(0, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : 0;
        sum = sum * 3 + ((function *)dlsym(library, "answer"))();
        counted += ((function *)dlsym(library, "count"))();
        dlclose(library);
        if (block && i % 4 == 1) munmap(block, 1 << 16);
    }
    printf("opened: %d, counted %d\n", sum, counted);
}

static atomic_int stop, turns;

// Calls through pointers, between the program and a library, until the stop flag is set.
static void *calling(void *library) {
    function *answer = dlsym(library, "answer");
    int (*apply)(int (*)(int), int, int) = dlsym(library, "apply");
    intptr_t wrong = 0;
    while (!stop) {
        wrong += answer() != 41 || apply(square, 0, 50) != 40425;
        turns++;
    }
    return (void *)wrong;
}

static void opened_beside_threads_that_call(void) {
    void *library = open_library(first);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, calling, library);
    int sum = 0;
    for (int i = 0; i < 60; i++) {
        void *other = open_library(second);
        sum += ((function *)dlsym(other, "answer"))();
        for (int before = turns; turns < before + 50;) usleep(100);
        dlclose(other);
    }
    stop = 1;
    for (int i = 0; i < 2; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        printf("wrong beside: %ld\n", (long)wrong);
    }
    printf("opened beside: %d\n", sum);
    dlclose(library);
}

static void replaced_by_another_file(void) {
    void *library = open_library(first);
    function *answer = dlsym(library, "answer");
    off_t offset;
    char *page = page_of(answer, &offset);
    printf("before: %d\n", answer());
    for (int i = 0; i < 3; i++) {
        int fd = open(i % 2 ? first : second, O_RDONLY);
        if (mmap(page, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, offset) != page)
            printf("not mapped\n");
        close(fd);
        __builtin___clear_cache(page, page + 4096);
        printf("replaced: %d\n", answer());
    }
    dlclose(library);
}

// Changes `li a0, 41` or `li a0, 42` to `li a0, 27`, 16 or 32 bits long.
static void patch(char *code, size_t length) {
    for (size_t at = 0; at + 4 <= length; at += 2) {
        uint16_t half;
        memcpy(&half, code + at, 2);
        uint32_t word;
        memcpy(&word, code + at, 4);
        if (word == 0x02900513 || word == 0x02a00513) {
            word = 0x01b00513;
            memcpy(code + at, &word, 4);
            return;
        }
    }
    printf("nothing to patch\n");
}

static void changed_in_memory(void) {
    void *library = open_library(first);
    function *answer = dlsym(library, "answer");
    off_t offset;
    char *page = page_of(answer, &offset);
    size_t rest = 4096 - ((char *)answer - page);
    printf("before: %d\n", answer());
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    patch((char *)answer, rest);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    __builtin___clear_cache(page, page + 4096);
    printf("changed: %d\n", answer());
    printf("others are there: %d\n", ((function *)dlsym(library, "count"))());
    dlclose(library);
    library = open_library(first);
    printf("opened anew: %d\n", ((function *)dlsym(library, "answer"))());
    dlclose(library);
}

static void changed_in_the_file(void) {
    static char bytes[1 << 20];
    int from = open(second, O_RDONLY);
    ssize_t length = read(from, bytes, sizeof bytes);
    close(from);
    patch(bytes, length);
    int to = open("/scratch/changed.so", O_CREAT | O_TRUNC | O_WRONLY, 0755);
    if (write(to, bytes, length) != length) printf("not written\n");
    close(to);
    void *library = open_library("/scratch/changed.so");
    printf("changed file: %d\n", ((function *)dlsym(library, "answer"))());
    // The original file is overwritten too.
    to = open(second, O_WRONLY);
    if (to < 0 || write(to, bytes, length) != length) printf("not written\n");
    close(to);
    void *original = open_library(second);
    printf("original: %d\n", ((function *)dlsym(original, "answer"))());
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        opened_beside_threads_that_call();
        return 8;
    }
    calls_between_libraries();
    opened_again_and_again();
    replaced_by_another_file();
    changed_in_memory();
    changed_in_the_file();
    return 9;
}
