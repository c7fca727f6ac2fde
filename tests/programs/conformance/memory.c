// Memory: mappings, protections, sharing, files, faults.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { PAGE = 4096, ALL = PROT_READ | PROT_WRITE, OWN = MAP_PRIVATE | MAP_ANONYMOUS };

static sigjmp_buf back;
static volatile int code;
static void *volatile place;

static void caught(int signal, siginfo_t *info, void *context) {
    (void)context;
    code = signal << 8 | info->si_code;
    place = info->si_addr;
    siglongjmp(back, 1);
}

// The result of an access: 0, or the signal and its code.
static int load(volatile char *at) {
    code = 0;
    if (!sigsetjmp(back, 1)) (void)*at;
    return code;
}

static int store(volatile char *at) {
    code = 0;
    if (!sigsetjmp(back, 1)) *at = 1;
    return code;
}

static void mapping(void) {
    char *a = mmap(NULL, 3 * PAGE, ALL, OWN, -1, 0);
    CHECK(a != MAP_FAILED && (uintptr_t)a % PAGE == 0);
    CHECK(a[0] == 0 && a[3 * PAGE - 1] == 0);
    a[PAGE] = 7;
    FAILS(mmap(NULL, 0, ALL, OWN, -1, 0), EINVAL);
    FAILS(mmap(NULL, PAGE, ALL, MAP_ANONYMOUS, -1, 0), EINVAL);
    FAILS(mmap(NULL, PAGE, ALL, MAP_PRIVATE, -1, 0), EBADF);
    FAILS(mmap(a + 1, PAGE, ALL, OWN | MAP_FIXED, -1, 0), EINVAL);
    FAILS(mmap(a, PAGE, ALL, OWN | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
    GIVES(mmap(a, PAGE, ALL, OWN | MAP_FIXED, -1, 0), a);
    GIVES(a[PAGE], 7);
    GIVES(munmap(a + PAGE, PAGE), 0);
    GIVES(load(a + PAGE), SIGSEGV << 8 | SEGV_MAPERR);
    CHECK(place == a + PAGE);
    GIVES(load(a + 2 * PAGE), 0);
    GIVES(munmap(a, 3 * PAGE), 0);
    FAILS(munmap(a + 1, PAGE), EINVAL);
    FAILS(munmap(a, 0), EINVAL);
    GIVES(munmap(a, PAGE), 0);
}

static void protecting(void) {
    char *a = mmap(NULL, 4 * PAGE, ALL, OWN, -1, 0);
    a[0] = a[PAGE] = 5;
    GIVES(mprotect(a, PAGE, PROT_READ), 0);
    GIVES(load(a), 0);
    GIVES(store(a), SIGSEGV << 8 | SEGV_ACCERR);
    CHECK(place == a);
    GIVES(store(a + PAGE), 0);
    GIVES(mprotect(a, PAGE, PROT_NONE), 0);
    GIVES(load(a), SIGSEGV << 8 | SEGV_ACCERR);
    GIVES(mprotect(a, 4 * PAGE, ALL), 0);
    GIVES(a[0], 5);
    FAILS(mprotect(a + 1, PAGE, ALL), EINVAL);
    GIVES(munmap(a + 2 * PAGE, PAGE), 0);
    FAILS(mprotect(a, 4 * PAGE, PROT_READ), ENOMEM);
    GIVES(madvise(a, PAGE, MADV_DONTNEED), 0);
    GIVES(a[0], 0);
    munmap(a, 4 * PAGE);
    FAILS(read(open("/dev/zero", O_RDONLY), (void *)8, 1), EFAULT);
}

static void growing(void) {
    char *a = mmap(NULL, 2 * PAGE, ALL, OWN, -1, 0);
    strcpy(a, "moved");
    char *b = mremap(a, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    CHECK(b != MAP_FAILED && !strcmp(b, "moved"));
    CHECK(b[63 * PAGE] == 0);
    GIVES(mremap(b, 64 * PAGE, PAGE, 0), b);
    GIVES(load(b + PAGE), SIGSEGV << 8 | SEGV_MAPERR);
    char *target = mmap(NULL, 2 * PAGE, ALL, OWN, -1, 0);
    GIVES(mremap(b, PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target), target);
    CHECK(!strcmp(target, "moved"));
    FAILS(mremap(target + 1, PAGE, PAGE, 0), EINVAL);
    FAILS(mremap(target, PAGE, 0, 0), EINVAL);
    FAILS(mremap(b, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
    munmap(target, 2 * PAGE);
    char *start = sbrk(0);
    CHECK(sbrk(5 * PAGE) == start);
    start[4 * PAGE] = 1;
    CHECK(sbrk(-5 * PAGE) == start + 5 * PAGE);
    CHECK(sbrk(0) == start);
}

static void sharing(void) {
    int *shared = mmap(NULL, PAGE, ALL, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int *own = mmap(NULL, PAGE, ALL, OWN, -1, 0);
    *shared = *own = 1;
    CHILD_EXITS(0, *shared = 2; *own = 2);
    CHECK(*shared == 2 && *own == 1);
    CHILD_EXITS(0, _exit(*shared == 2 && *own == 1 ? 0 : 1));
    munmap(shared, PAGE), munmap(own, PAGE);
}

static void files(void) {
    int fd = open("mapped", O_CREAT | O_RDWR | O_TRUNC, 0600);
    CHECK(write(fd, "0123456789", 10) == 10);
    char *shared = mmap(NULL, 2 * PAGE, ALL, MAP_SHARED, fd, 0);
    char *own = mmap(NULL, PAGE, ALL, MAP_PRIVATE, fd, 0);
    CHECK(!memcmp(shared, "0123456789\0", 11));
    shared[0] = 'a';
    char byte = 0;
    CHECK(pread(fd, &byte, 1, 0) == 1 && byte == 'a');
    CHECK(pwrite(fd, "b", 1, 1) == 1 && shared[1] == 'b');
    own[2] = 'c';
    CHECK(pread(fd, &byte, 1, 2) == 1 && byte == '2' && shared[2] == '2');
    GIVES(load(shared + PAGE), SIGBUS << 8 | BUS_ADRERR);
    GIVES(msync(shared, PAGE, MS_SYNC), 0);
    FAILS(msync(shared, PAGE, MS_SYNC | MS_ASYNC), EINVAL);
    FAILS(msync(shared + 1, PAGE, MS_SYNC), EINVAL);
    CHECK(ftruncate(fd, 2 * PAGE) == 0);
    GIVES(load(shared + PAGE), 0);
    CHECK(ftruncate(fd, 0) == 0);
    GIVES(load(shared), SIGBUS << 8 | BUS_ADRERR);
    munmap(shared, 2 * PAGE), munmap(own, PAGE), close(fd);
    fd = open("mapped", O_RDONLY);
    FAILS(mmap(NULL, PAGE, ALL, MAP_SHARED, fd, 0), EACCES);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 1), EINVAL);
    char *readable = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(readable != MAP_FAILED);
    FAILS(mprotect(readable, PAGE, ALL), EACCES);
    munmap(readable, PAGE), close(fd);
    fd = open("mapped", O_WRONLY);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0), EACCES);
    close(fd);
    int ends[2];
    CHECK(pipe(ends) == 0);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, ends[0], 0), ENODEV);
    close(ends[0]), close(ends[1]);
    fd = open("/dev/zero", O_RDWR);
    char *zero = mmap(NULL, PAGE, ALL, MAP_PRIVATE, fd, 0);
    CHECK(zero != MAP_FAILED && zero[10] == 0);
    munmap(zero, PAGE), close(fd);
}

// More memory than exists can be mapped if it is not writable, or with MAP_NORESERVE.
static void promising(void) {
    size_t much = 1ul << 37;
    char *a = mmap(NULL, much, PROT_NONE, OWN, -1, 0);
    CHECK(a != MAP_FAILED);
    GIVES(munmap(a, much), 0);
    a = mmap(NULL, much, ALL, OWN | MAP_NORESERVE, -1, 0);
    if (CHECK(a != MAP_FAILED)) {
        a[much / 2] = 1;
        GIVES(a[much / 2] + a[much - 1], 1);
        GIVES(munmap(a, much), 0);
    }
    FAILS(mmap(NULL, 1ul << 50, ALL, OWN, -1, 0), ENOMEM);
}

static void residing(void) {
    unsigned char resident[4];
    char *a = mmap(NULL, 4 * PAGE, ALL, OWN, -1, 0);
    memset(a, 1, 4 * PAGE);
    GIVES(mincore(a, 4 * PAGE, resident), 0);
    CHECK((resident[0] & 1) && (resident[3] & 1));
    FAILS(mincore(a + 1, PAGE, resident), EINVAL);
    FAILS(mincore(a, PAGE, (void *)8), EFAULT);
    GIVES(mlock(a, PAGE), 0);
    GIVES(munlock(a, PAGE), 0);
    munmap(a, 4 * PAGE);
    FAILS(mincore(a, PAGE, resident), ENOMEM);
    FAILS(mlock(a, PAGE), ENOMEM);
}

// A child's exit code is 0 if its assertion holds.
#define IN_CHILD(holds) CHILD_EXITS(0, _exit((holds) ? 0 : 1))

static void advising(void) {
    char *a = mmap(NULL, 3 * PAGE, ALL, OWN, -1, 0);
    memset(a, 5, 3 * PAGE);
    GIVES(madvise(a + PAGE, PAGE, MADV_WIPEONFORK), 0);
    IN_CHILD(a[0] == 5 && a[PAGE] == 0 && a[2 * PAGE] == 5);
    // The child's own children see zeros too.
    IN_CHILD(({
        a[PAGE] = 6;
        int status, child = fork();
        if (!child) _exit(a[PAGE]);
        waitpid(child, &status, 0) == child && status == 0;
    }));
    GIVES(a[PAGE], 5);
    GIVES(madvise(a + PAGE, PAGE, MADV_KEEPONFORK), 0);
    IN_CHILD(a[PAGE] == 5);
    GIVES(madvise(a + PAGE, PAGE, MADV_DONTFORK), 0);
    IN_CHILD(load(a) == 0 && load(a + PAGE) == (SIGSEGV << 8 | SEGV_MAPERR) && load(a + 2 * PAGE) == 0);
    GIVES(a[PAGE], 5);
    GIVES(madvise(a + PAGE, PAGE, MADV_DOFORK), 0);
    IN_CHILD(a[PAGE] == 5);
    FAILS(madvise(a + 1, PAGE, MADV_DONTFORK), EINVAL);
    FAILS(madvise(a, PAGE, 1000), EINVAL);
    munmap(a + 2 * PAGE, PAGE);
    FAILS(madvise(a, 3 * PAGE, MADV_DONTFORK), ENOMEM);
    IN_CHILD(load(a) == (SIGSEGV << 8 | SEGV_MAPERR));
    munmap(a, 2 * PAGE);
    char *shared = mmap(NULL, PAGE, ALL, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FAILS(madvise(shared, PAGE, MADV_WIPEONFORK), EINVAL);
    FAILS(madvise(shared, PAGE, MADV_FREE), EINVAL);
    munmap(shared, PAGE);
}

// A line of /proc/self/status, in kB.
static long status_line(const char *name) {
    char line[256];
    long value = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, name, strlen(name))) value = atol(line + strlen(name));
    if (status) fclose(status);
    return value;
}

static void locking(void) {
    unsigned char resident[16];
    char *a = mmap(NULL, 16 * PAGE, ALL, OWN | MAP_NORESERVE, -1, 0);
    long before = status_line("VmLck:");
    GIVES(mlock(a + 1, 3 * PAGE), 0);
    GIVES(status_line("VmLck:") - before, 16);
    GIVES(mincore(a, 4 * PAGE, resident), 0);
    CHECK((resident[0] & 1) && (resident[3] & 1));
    FAILS(madvise(a, PAGE, MADV_DONTNEED), EINVAL);
    FAILS(msync(a, PAGE, MS_INVALIDATE | MS_ASYNC), EBUSY);
    IN_CHILD(status_line("VmLck:") == 0);
    GIVES(munlock(a, PAGE), 0);
    GIVES(status_line("VmLck:") - before, 12);
    munmap(a + PAGE, PAGE);
    GIVES(status_line("VmLck:") - before, 8);
    FAILS(mlock(a, 3 * PAGE), ENOMEM);
    GIVES(munlockall(), 0);
    GIVES(status_line("VmLck:"), 0);
    FAILS(mlockall(MCL_ONFAULT), EINVAL);
    FAILS(mlockall(0), EINVAL);
    munmap(a, 16 * PAGE);
    // Root has no limit.
    IN_CHILD(({
        struct rlimit limit = {8 * PAGE, 8 * PAGE};
        setrlimit(RLIMIT_MEMLOCK, &limit);
        if (getuid() == 0 && setuid(1)) _exit(2);
        char *b = mmap(NULL, 16 * PAGE, ALL, OWN, -1, 0);
        mlock(b, 8 * PAGE) == 0 && mlock(b, 4 * PAGE) == 0 && mlock(b + 8 * PAGE, 1) == -1 && errno == ENOMEM
            && mmap(NULL, PAGE, ALL, OWN | MAP_LOCKED, -1, 0) == MAP_FAILED && errno == EAGAIN
            && munlock(b, PAGE) == 0 && mlock(b + 8 * PAGE, 1) == 0
            && mlockall(MCL_CURRENT) == -1 && errno == ENOMEM
            && munlockall() == 0 && mlockall(MCL_FUTURE) == 0
            && mmap(NULL, 9 * PAGE, ALL, OWN, -1, 0) == MAP_FAILED && errno == EAGAIN;
    }));
    IN_CHILD(({
        struct rlimit limit = {0, 0};
        setrlimit(RLIMIT_MEMLOCK, &limit);
        if (getuid() == 0 && setuid(1)) _exit(2);
        char *b = mmap(NULL, PAGE, ALL, OWN, -1, 0);
        mlock(b, PAGE) == -1 && errno == EPERM && mlockall(MCL_CURRENT) == -1 && errno == EPERM
            && mmap(NULL, PAGE, ALL, OWN | MAP_LOCKED, -1, 0) == MAP_FAILED && errno == EPERM;
    }));
}

static void limited(void) {
    IN_CHILD(({
        struct rlimit limit = {256 << 20, 256 << 20};
        setrlimit(RLIMIT_AS, &limit) == 0
            && mmap(NULL, 300 << 20, PROT_NONE, OWN | MAP_NORESERVE, -1, 0) == MAP_FAILED && errno == ENOMEM
            && mmap(NULL, 16 << 20, PROT_NONE, OWN | MAP_NORESERVE, -1, 0) != MAP_FAILED;
    }));
    IN_CHILD(({
        struct rlimit limit = {32 << 20, 32 << 20};
        setrlimit(RLIMIT_DATA, &limit) == 0
            && mmap(NULL, 48 << 20, ALL, OWN | MAP_NORESERVE, -1, 0) == MAP_FAILED && errno == ENOMEM
            && mmap(NULL, 48 << 20, PROT_READ, OWN | MAP_NORESERVE, -1, 0) != MAP_FAILED
            && sbrk(48 << 20) == (void *)-1 && errno == ENOMEM
            && mmap(NULL, 1 << 20, ALL, OWN, -1, 0) != MAP_FAILED;
    }));
}

static void growing_down(void) {
    enum { ROOM = 64 << 20, TOP = 32 };
    char *room = mmap(NULL, ROOM, PROT_NONE, OWN | MAP_NORESERVE, -1, 0);
    munmap(room, ROOM);
    char *top = room + ROOM;
    char *stack = mmap(top - PAGE, PAGE, ALL, OWN | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
    GIVES(stack, top - PAGE);
    GIVES(store(top - TOP * PAGE), 0);
    GIVES(load(top - TOP / 2 * PAGE), 0);
    GIVES(load(top - (8 << 20) - PAGE), SIGSEGV << 8 | SEGV_MAPERR);
    // Another range stays away from it.
    char *below = mmap(top - 400 * PAGE, PAGE, ALL, OWN | MAP_FIXED, -1, 0);
    GIVES(store(top - 143 * PAGE), 0);
    GIVES(store(top - 145 * PAGE), SIGSEGV << 8 | SEGV_MAPERR);
    munmap(below, PAGE);
    // A system call extends it too.
    int fd = open("/dev/zero", O_RDONLY);
    GIVES(read(fd, top - 200 * PAGE, 1), 1);
    close(fd);
    // The whole stack changes.
    GIVES(mprotect(top - PAGE, PAGE, PROT_READ | PROT_GROWSDOWN), 0);
    GIVES(store(top - 200 * PAGE), SIGSEGV << 8 | SEGV_ACCERR);
    FAILS(mmap(NULL, PAGE, ALL, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0), EINVAL);
    char *other = mmap(NULL, PAGE, ALL, OWN, -1, 0);
    FAILS(mprotect(other, PAGE, PROT_READ | PROT_GROWSDOWN), EINVAL);
    FAILS(mprotect(other, PAGE, PROT_READ | PROT_GROWSUP), EINVAL);
    munmap(other, PAGE);
    munmap(top - 200 * PAGE, 200 * PAGE);
}

// Errors of file mappings, and shared mappings of /dev/zero.
static void devices(void) {
    if (!emulated) FAILS(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, 9999, 0), EBADF);
    FAILS(mmap(NULL, 0, PROT_READ, OWN, -1, 0), EINVAL);
    FAILS(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, 9999, 0), EBADF);
    int fd = open("/dev/zero", O_RDONLY), both = open("/dev/zero", O_RDWR);
    FAILS(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0), EINVAL);
    FAILS(mmap(NULL, PAGE, ALL, MAP_SHARED, fd, 0), EACCES);
    char *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED);
    GIVES(page[0], 0);
    FAILS(mprotect(page, PAGE, ALL), EACCES);
    GIVES(mprotect(page, PAGE, PROT_NONE), 0);
    GIVES(mprotect(page, PAGE, PROT_READ), 0);
    munmap(page, PAGE);
    page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    GIVES(mprotect(page, PAGE, ALL), 0);
    GIVES(store(page), 0);
    munmap(page, PAGE);
    page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, both, 0);
    GIVES(mprotect(page, PAGE, ALL), 0);
    GIVES(store(page), 0);
    munmap(page, PAGE), close(fd), close(both);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    mapping();
    protecting();
    growing();
    sharing();
    files();
    promising();
    residing();
    devices();
    if (!emulated) {
        advising();
        locking();
        limited();
        growing_down();
    }
    return finish("memory");
}
