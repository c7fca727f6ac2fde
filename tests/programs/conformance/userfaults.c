// userfaultfd: page faults that another thread handles.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE 4096ul

static int fd;
static char pages[2][PAGE] __attribute__((aligned(4096)));

static void *map(size_t count) {
    return mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static long registers(void *start, size_t count, uint64_t mode) {
    struct uffdio_register request = {.range = {(uintptr_t)start, count * PAGE}, .mode = mode};
    long result = ioctl(fd, UFFDIO_REGISTER, &request);
    if (!result) CHECK(request.ioctls & 1ul << _UFFDIO_COPY);
    return result;
}

static long range_request(unsigned long number, void *start, size_t count) {
    struct uffdio_range range = {(uintptr_t)start, count * PAGE};
    return ioctl(fd, number, &range);
}

static long copied;

static long copies(void *to, void *from, size_t count, uint64_t mode) {
    struct uffdio_copy request = {(uintptr_t)to, (uintptr_t)from, count * PAGE, mode, 0};
    long result = ioctl(fd, UFFDIO_COPY, &request);
    copied = request.copy;
    return result;
}

static long protects(void *start, size_t count, uint64_t mode) {
    struct uffdio_writeprotect request = {{(uintptr_t)start, count * PAGE}, mode};
    return ioctl(fd, UFFDIO_WRITEPROTECT, &request);
}

static void *loads(void *at) { return (void *)(long)*(volatile char *)at; }

static void *stores(void *at) {
    *(volatile char *)at = 'S';
    return NULL;
}

// Waits for a fault, and checks its address and flags.
static void fault(void *address, uint64_t flags) {
    struct uffd_msg message = {0};
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    GIVES(poll(&ready, 1, 10000), 1);
    GIVES(read(fd, &message, sizeof message), sizeof message);
    GIVES(message.event, UFFD_EVENT_PAGEFAULT);
    GIVES(message.arg.pagefault.address, (uintptr_t)address);
    GIVES(message.arg.pagefault.flags, flags);
}

static long ended(pthread_t thread) {
    void *result = NULL;
    pthread_join(thread, &result);
    return (long)result;
}

static void agrees(void) {
    struct uffd_msg message;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    struct uffdio_api api = {.api = 1};
    void *memory = map(1);
    FAILS(registers(memory, 1, UFFDIO_REGISTER_MODE_MISSING), EINVAL);
    FAILS(read(fd, &message, sizeof message), EINVAL);
    GIVES(poll(&ready, 1, 0), 1);
    GIVES(ready.revents, POLLERR);
    FAILS(ioctl(fd, UFFDIO_API, &api), EINVAL);
    api = (struct uffdio_api){.api = UFFD_API, .features = 1ull << 40};
    FAILS(ioctl(fd, UFFDIO_API, &api), EINVAL);
    FAILS(ioctl(fd, UFFDIO_API, 8), EFAULT);
    api = (struct uffdio_api){.api = UFFD_API};
    GIVES(ioctl(fd, UFFDIO_API, &api), 0);
    GIVES(api.api, UFFD_API);
    CHECK(api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP);
    CHECK(api.ioctls & 1ul << _UFFDIO_REGISTER);
    FAILS(read(fd, &message, sizeof message), EAGAIN);
    FAILS(read(fd, &message, 8), EINVAL);
    GIVES(poll(&ready, 1, 0), 0);
    FAILS(registers(memory, 1, 0), EINVAL);
    FAILS(registers(memory, 0, UFFDIO_REGISTER_MODE_MISSING), EINVAL);
    FAILS(registers((char *)memory + 1, 1, UFFDIO_REGISTER_MODE_MISSING), EINVAL);
    munmap(memory, PAGE);
    FAILS(copies(memory, pages, 1, 0), ENOENT);
    FAILS(copies(pages, pages, 1, 1ul << 40), EINVAL);
    FAILS(copies((char *)pages + 1, pages, 1, 0), EINVAL);
}

static void missing(void) {
    pthread_t one, two;
    char *memory = map(600);
    memset(pages[0], 'a', PAGE), memset(pages[1], 'b', PAGE);
    GIVES(registers(memory, 600, UFFDIO_REGISTER_MODE_MISSING), 0);
    GIVES(pthread_create(&one, NULL, loads, memory + 5), 0);
    fault(memory, 0);
    GIVES(copies(memory, pages, 2, 0), 0);
    GIVES(copied, 2 * PAGE);
    GIVES(ended(one), 'a');
    GIVES(memory[PAGE], 'b');
    FAILS(copies(memory, pages, 1, 0), EEXIST);
    GIVES(copied, -EEXIST);
    FAILS(copies(memory + 3 * PAGE, (void *)8, 1, 0), EFAULT);
    // Two tasks wait for one page.
    char *far = memory + 550 * PAGE;
    GIVES(pthread_create(&one, NULL, stores, far + 1), 0);
    fault(far, UFFD_PAGEFAULT_FLAG_WRITE);
    GIVES(pthread_create(&two, NULL, loads, far + 2), 0);
    fault(far, 0);
    struct uffdio_zeropage zeros = {.range = {(uintptr_t)far, PAGE}};
    GIVES(ioctl(fd, UFFDIO_ZEROPAGE, &zeros), 0);
    GIVES(zeros.zeropage, PAGE);
    GIVES(ended(one), 0);
    GIVES(ended(two), 0);
    GIVES(far[1], 'S');
    // Others go on while a task waits, and a part of the work may come first.
    GIVES(pthread_create(&one, NULL, loads, memory + 10 * PAGE), 0);
    fault(memory + 10 * PAGE, 0);
    GIVES(copies(memory + 10 * PAGE, pages[1], 1, UFFDIO_COPY_MODE_DONTWAKE), 0);
    GIVES(range_request(UFFDIO_WAKE, memory + 10 * PAGE, 1), 0);
    GIVES(ended(one), 'b');
    FAILS(copies(memory + 9 * PAGE, pages, 2, 0), EAGAIN);
    GIVES(copied, PAGE);
    // A page that is given back is missing again.
    GIVES(madvise(memory, PAGE, MADV_DONTNEED), 0);
    GIVES(pthread_create(&one, NULL, loads, memory), 0);
    fault(memory, 0);
    GIVES(copies(memory, pages[1], 1, 0), 0);
    GIVES(ended(one), 'b');
    // A child is on its own.
    CHILD_EXITS(0, _exit(memory[20 * PAGE] != 0));
    // The end of a registration wakes those that wait.
    GIVES(pthread_create(&one, NULL, loads, memory + 30 * PAGE), 0);
    fault(memory + 30 * PAGE, 0);
    GIVES(range_request(UFFDIO_UNREGISTER, memory, 600), 0);
    GIVES(ended(one), 0);
    GIVES(memory[40 * PAGE], 0);
    FAILS(copies(memory + 50 * PAGE, pages, 1, 0), ENOENT);
    munmap(memory, 600 * PAGE);
}

static void protection(void) {
    pthread_t thread;
    char *memory = map(1024);
    memset(memory, 'm', 1024 * PAGE);
    FAILS(protects(memory, 1, UFFDIO_WRITEPROTECT_MODE_WP), ENOENT);
    GIVES(registers(memory, 1024, UFFDIO_REGISTER_MODE_WP), 0);
    GIVES(protects(memory, 1024, UFFDIO_WRITEPROTECT_MODE_WP), 0);
    GIVES(memory[700 * PAGE], 'm');
    GIVES(pthread_create(&thread, NULL, stores, memory + 700 * PAGE + 3), 0);
    fault(memory + 700 * PAGE, UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP);
    GIVES(memory[700 * PAGE + 3], 'm');
    GIVES(protects(memory + 700 * PAGE, 1, 0), 0);
    GIVES(ended(thread), 0);
    GIVES(memory[700 * PAGE + 3], 'S');
    memory[700 * PAGE + 4] = 'T';
    // mprotect does not end the protection.
    GIVES(mprotect(memory, PAGE, PROT_READ), 0);
    GIVES(mprotect(memory, PAGE, PROT_READ | PROT_WRITE), 0);
    GIVES(pthread_create(&thread, NULL, stores, memory), 0);
    fault(memory, UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP);
    CHILD_EXITS(0, memory[PAGE] = 'c'; _exit(memory[PAGE] != 'c'));
    GIVES(memory[PAGE], 'm');
    FAILS(protects(memory, 1, UFFDIO_WRITEPROTECT_MODE_WP | UFFDIO_WRITEPROTECT_MODE_DONTWAKE), EINVAL);
    GIVES(protects(memory, 1024, 0), 0);
    GIVES(ended(thread), 0);
    memory[PAGE] = 'n';
    GIVES(memory[PAGE], 'n');
    // Both kinds at once.
    char *both = map(2);
    GIVES(registers(both, 2, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP), 0);
    GIVES(copies(both, pages, 1, UFFDIO_COPY_MODE_WP), 0);
    GIVES(both[0], 'a');
    GIVES(pthread_create(&thread, NULL, stores, both), 0);
    fault(both, UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP);
    GIVES(protects(both, 1, 0), 0);
    GIVES(ended(thread), 0);
    GIVES(both[0], 'S');
    // With the descriptor, all this ends.
    GIVES(pthread_create(&thread, NULL, loads, both + PAGE), 0);
    fault(both + PAGE, 0);
    GIVES(close(fd), 0);
    GIVES(ended(thread), 0);
    GIVES(both[PAGE + 1], 0);
    munmap(memory, 1024 * PAGE);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    FAILS(syscall(SYS_userfaultfd, 1 << 20), EINVAL);
    fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (!CHECK(fd >= 0)) return finish("userfaults");
    GIVES(fcntl(fd, F_GETFD), FD_CLOEXEC);
    agrees();
    missing();
    protection();
    return finish("userfaults");
}
