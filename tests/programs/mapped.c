// Private mappings of a large file, of which each word is a function of its offset: pages that are touched in
// any order, also by two threads at once, stores, children, discarded and unmapped parts, and the file's end. Prints the number of wrong words.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8 };

static const long HUGE = 2 << 20;
static const long LONGEST = 6 << 20;
static uint64_t state;

static uint64_t below(uint64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % limit;
}

static uint64_t word_at(long offset) { return (uint64_t)offset / 8 * 0x9e3779b97f4a7c15u; }

// The number of wrong words of the page `number` of a mapping from `offset` of a file of `size` bytes, in which
// the first word may have been changed.
static long check_page(const uint64_t *memory, long number, long offset, long size, uint64_t first) {
    const uint64_t *page = memory + number * WORDS;
    long at = offset + number * PAGE, wrong = 0;
    for (long i = 0; i < WORDS; i++) {
        uint64_t expected = at + 8 * i < size ? word_at(at + 8 * i) : 0;
        wrong += page[i] != (i == 0 && first != 0 ? first : expected);
    }
    return wrong;
}

// Stores in a child, which the parent does not see.
static long child(uint64_t *memory, long pages, long offset, long size, const uint64_t *firsts) {
    pid_t pid = fork();
    if (pid == 0) {
        long wrong = 0;
        for (int i = 0; i < 20; i++) {
            long page = below(pages);
            memory[page * WORDS] = 99;
            wrong += check_page(memory, page, offset, size, 99);
        }
        _exit(wrong != 0);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    long wrong = status;
    for (int i = 0; i < 20; i++) {
        long page = below(pages);
        wrong += check_page(memory, page, offset, size, firsts[page]);
    }
    return wrong;
}

static long round_of(int fd, long size, char *room) {
    static uint64_t firsts[6 << 8];
    long offset = below(size / PAGE) * PAGE;
    long length = 1 + below(LONGEST);
    if (length > size - offset) {
        length = size - offset;
    }
    long pages = (length + PAGE - 1) / PAGE;
    int writable = below(3) != 0;
    int protection = PROT_READ | (writable ? PROT_WRITE : 0);
    char *at = room + below(2) * below(HUGE / PAGE) * PAGE;
    uint64_t *memory = mmap(at, length, protection, MAP_PRIVATE | MAP_FIXED, fd, offset);
    if (memory == MAP_FAILED) {
        return 1;
    }
    memset(firsts, 0, sizeof firsts);
    long wrong = 0;
    for (int i = 0; i < 60; i++) {
        long page = below(pages);
        if (writable && below(2)) {
            memory[page * WORDS] = firsts[page] = below(1000) + 1;
        }
        wrong += check_page(memory, page, offset, size, firsts[page]);
    }
    if (writable && below(4) == 0) {
        wrong += child(memory, pages, offset, size, firsts);
    }
    // Stores of discarded pages are lost, those of pages beside them are not.
    long gone = below(pages), count = 1 + below(pages - gone);
    madvise(memory + gone * WORDS, count * PAGE, MADV_DONTNEED);
    memset(firsts + gone, 0, count * sizeof *firsts);
    if (!writable) {
        mprotect(memory, length, PROT_READ | PROT_WRITE);
        memory[gone * WORDS] = firsts[gone] = 77;
    }
    if (below(2)) {
        munmap(memory + (pages - 1) * WORDS, PAGE);
        pages--;
    }
    for (long page = 0; page < pages; page++) {
        wrong += check_page(memory, page, offset, size, firsts[page]);
    }
    mmap(room, LONGEST + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return wrong;
}

// A mapping that two threads touch at the same time.
static struct {
    const uint64_t *memory;
    long pages, offset, size;
    atomic_int ready;
} shared;

static void *reader(void *first) {
    atomic_fetch_add(&shared.ready, 1);
    while (atomic_load(&shared.ready) < 2) {
    }
    long wrong = 0, at = (long)first;
    for (int i = 0; i < 40; i++, at = (at * 7 + 3) % shared.pages) {
        wrong += check_page(shared.memory, at, shared.offset, shared.size, 0);
    }
    return (void *)wrong;
}

// Pages are filled when they are seen, whoever touches them first. The length leaves no room for a huge page.
static long threads(int fd, long size) {
    shared.offset = below(size / HUGE - 1) * HUGE;
    shared.size = size;
    shared.pages = HUGE / PAGE - 1 - below(100);
    shared.ready = 0;
    shared.memory = mmap(NULL, shared.pages * PAGE, PROT_READ, MAP_PRIVATE, fd, shared.offset);
    pthread_t other;
    void *wrong = (void *)1;
    if (pthread_create(&other, NULL, reader, (void *)(long)below(shared.pages)) != 0) {
        return 1;
    }
    long own = (long)reader((void *)(long)below(shared.pages));
    pthread_join(other, &wrong);
    munmap((void *)shared.memory, shared.pages * PAGE);
    return own + (long)wrong;
}

int main(int count, char **arguments) {
    if (count != 4) {
        return 2;
    }
    int fd = open(arguments[1], O_RDONLY);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) {
        return 3;
    }
    int rounds = atoi(arguments[2]);
    state = strtoull(arguments[3], NULL, 10);
    char *room = mmap(NULL, LONGEST + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    room = (char *)(((uintptr_t)room + HUGE - 1) / HUGE * HUGE);
    long wrong = 0;
    for (int i = 0; i < rounds; i++) {
        wrong += round_of(fd, status.st_size, room);
        wrong += threads(fd, status.st_size);
    }
    printf("%d mappings: %ld wrong\n", rounds, wrong);
    return wrong != 0;
}
