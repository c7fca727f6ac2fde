// mmap, munmap, mprotect, mremap, brk: contents, holes, alignment and errors.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

static char *anonymous(size_t length, int flags) {
    return mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static int all(const char *p, char value, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (p[i] != value) return 0;
    return 1;
}

int main(void) {
    char *a = anonymous(64 * PAGE, 0);
    printf("aligned %d zero %d\n", (uintptr_t)a % PAGE == 0, all(a, 0, 64 * PAGE));
    memset(a, 'x', 64 * PAGE);
    munmap(a + 8 * PAGE, 8 * PAGE);
    printf("around the hole %d %d\n", all(a, 'x', 8 * PAGE), all(a + 16 * PAGE, 'x', 48 * PAGE));
    char *fixed = mmap(a + 8 * PAGE, 8 * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf("fixed %d zero %d\n", fixed == a + 8 * PAGE, all(fixed, 0, 8 * PAGE));
    char *taken = mmap(a, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    printf("no replace %d %d\n", taken == MAP_FAILED, errno);

    char *b = anonymous(4 * PAGE, 0);
    memset(b, 'y', 4 * PAGE);
    b = mremap(b, 4 * PAGE, 4096 * PAGE, MREMAP_MAYMOVE);
    printf("grown %d %d\n", all(b, 'y', 4 * PAGE), all(b + 4 * PAGE, 0, 4092 * PAGE));
    b = mremap(b, 4096 * PAGE, 2 * PAGE, 0);
    printf("shrunk %d\n", all(b, 'y', 2 * PAGE));
    printf("dontneed %d", madvise(b, PAGE, MADV_DONTNEED));
    printf(" %d %d\n", all(b, 0, PAGE), all(b + PAGE, 'y', PAGE));

    char *c = anonymous(3 * PAGE, 0);
    printf("mprotect %d %d\n", mprotect(c + PAGE, PAGE, PROT_NONE), mprotect(c, PAGE, PROT_READ));
    c[2 * PAGE] = 1;
    printf("reopened %d", mprotect(c + PAGE, PAGE, PROT_READ | PROT_WRITE));
    c[PAGE] = 5;
    printf(" %d\n", c[PAGE]);
    printf("unmapped mprotect %d", mprotect((void *)0x10000000000, PAGE, PROT_READ));
    printf(" %d\n", errno);
    printf("odd address %d", munmap(c + 1, PAGE));
    printf(" %d\n", errno);
    printf("zero length %d", mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    printf(" %d\n", errno);
    printf("absurd %d", anonymous((size_t)1 << 46, 0) == MAP_FAILED);
    printf(" %d\n", errno);

    char *top = sbrk(0);
    char *grown = sbrk(1 << 20);
    printf("brk %d zero %d\n", grown == top, all(grown, 0, 1 << 20));
    memset(grown, 'z', 1 << 20);
    sbrk(-(1 << 20));
    sbrk(1 << 20);
    printf("brk again zero %d\n", all(top, 0, 1 << 20));

    // Reserved but hardly used: this uses address space, not memory.
    char *huge = anonymous((size_t)1 << 30, MAP_NORESERVE);
    for (size_t i = 0; i < (size_t)1 << 30; i += 64 << 20) huge[i] = 1;
    printf("sparse %d\n", huge[0] + huge[(size_t)64 << 20]);
    char *p = (char *)&a;
    printf("write from bad address %zd", write(1, (void *)16, 4));
    printf(" %d %d\n", errno, p != NULL);
    return 0;
}
