// Pipes, FIFOs, eventfds, splice and its relatives, memory files and their seals.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

static char buffer[1 << 17];

static void pipes(void) {
    int ends[2], waiting;
    GIVES(pipe(ends), 0);
    GIVES(write(ends[1], "abc", 3), 3);
    GIVES(ioctl(ends[0], FIONREAD, &waiting), 0);
    GIVES(waiting, 3);
    GIVES(read(ends[0], buffer, 2), 2);
    GIVES(read(ends[0], buffer, 100), 1);
    FAILS(lseek(ends[0], 0, SEEK_SET), ESPIPE);
    FAILS(pread(ends[0], buffer, 1, 0), ESPIPE);
    FAILS(write(ends[0], "x", 1), EBADF);
    FAILS(read(ends[1], buffer, 1), EBADF);
    GIVES(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    FAILS(read(ends[0], buffer, 1), EAGAIN);
    GIVES(fcntl(ends[1], F_GETPIPE_SZ), 65536);
    GIVES(fcntl(ends[1], F_SETPIPE_SZ, 5000), 8192);
    GIVES(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    GIVES(write(ends[1], buffer, 8192), 8192);
    FAILS(write(ends[1], buffer, 1), EAGAIN);
    FAILS(fcntl(ends[1], F_SETPIPE_SZ, 4096), EBUSY);
    GIVES(read(ends[0], buffer, 8192), 8192);
    GIVES(close(ends[1]), 0);
    GIVES(read(ends[0], buffer, 1), 0);
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    GIVES(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    GIVES(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
    CHECK(fcntl(ends[0], F_GETFL) & O_NONBLOCK);
    close(ends[0]);
    FAILS(write(ends[1], "x", 1), EPIPE);
    CHILD_DIES(SIGPIPE, signal(SIGPIPE, SIG_DFL); (void)!write(ends[1], "x", 1));
    close(ends[1]);
    if (!emulated) FAILS(pipe2(ends, 1 << 30), EINVAL);
    FAILS(pipe((int *)8), EFAULT);
}

// Pipes that keep the boundaries of writes (packet mode).
static void packets(void) {
    int ends[2], waiting;
    GIVES(pipe2(ends, O_DIRECT | O_NONBLOCK), 0);
    CHECK(fcntl(ends[1], F_GETFL) & O_DIRECT);
    GIVES(write(ends[1], "one", 3), 3);
    GIVES(write(ends[1], "three", 5), 5);
    GIVES(ioctl(ends[0], FIONREAD, &waiting), 0);
    GIVES(waiting, 8);
    GIVES(read(ends[0], buffer, 100), 3);
    // The rest of a packet beyond the requested length is lost.
    GIVES(read(ends[0], buffer, 2), 2);
    FAILS(read(ends[0], buffer, 100), EAGAIN);
    GIVES(write(ends[1], buffer, 5000), 5000);
    GIVES(read(ends[0], buffer, 10000), 4096);
    GIVES(read(ends[0], buffer, 10000), 904);
    int count = 0;
    while (write(ends[1], "x", 1) == 1) count++;
    GIVES(count, 16);
    GIVES(read(ends[0], buffer, 100), 1);
    GIVES(write(ends[1], "y", 1), 1);
    for (; count > 0; count--) GIVES(read(ends[0], buffer, 100), 1);
    // The flag applies at the time of the write.
    GIVES(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    GIVES(write(ends[1], "ab", 2), 2);
    GIVES(write(ends[1], "cd", 2), 2);
    GIVES(read(ends[0], buffer, 3), 3);
    GIVES(fcntl(ends[1], F_SETFL, O_DIRECT), 0);
    GIVES(write(ends[1], "ef", 2), 2);
    GIVES(write(ends[1], "gh", 2), 2);
    GIVES(read(ends[0], buffer, 4), 4);
    GIVES(read(ends[0], buffer, 4), 1);
    GIVES(write(ends[1], "ij", 2), 2);
    GIVES(write(ends[1], "kl", 2), 2);
    GIVES(read(ends[0], buffer, 1), 1);
    GIVES(read(ends[0], buffer, 4), 2);
    FAILS(read(ends[0], buffer, 100), EAGAIN);
    close(ends[0]), close(ends[1]);
}

static void fifos(void) {
    GIVES(mkfifo("fifo", 0600), 0);
    FAILS(open("fifo", O_WRONLY | O_NONBLOCK), ENXIO);
    int reader = open("fifo", O_RDONLY | O_NONBLOCK);
    CHECK(reader >= 0);
    GIVES(read(reader, buffer, 1), 0);
    int writer = open("fifo", O_WRONLY | O_NONBLOCK);
    CHECK(writer >= 0);
    FAILS(read(reader, buffer, 1), EAGAIN);
    GIVES(write(writer, "through", 7), 7);
    GIVES(read(reader, buffer, 100), 7);
    close(writer), close(reader);
    pid_t child = CHILD(int fd = open("fifo", O_WRONLY); _exit(write(fd, "hello", 5) != 5));
    reader = open("fifo", O_RDONLY);
    GIVES(read(reader, buffer, 100), 5);
    GIVES(status_of(child), 0);
    close(reader);
}

static void counters(void) {
    uint64_t value = 5;
    int fd = eventfd(3, EFD_NONBLOCK);
    GIVES(write(fd, &value, 8), 8);
    GIVES(read(fd, &value, 8), 8);
    GIVES(value, 8);
    FAILS(read(fd, &value, 8), EAGAIN);
    FAILS(read(fd, &value, 7), EINVAL);
    value = UINT64_MAX;
    FAILS(write(fd, &value, 8), EINVAL);
    value = UINT64_MAX - 1;
    GIVES(write(fd, &value, 8), 8);
    value = 1;
    FAILS(write(fd, &value, 8), EAGAIN);
    close(fd);
    fd = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
    GIVES(read(fd, &value, 8), 8);
    GIVES(value, 1);
    GIVES(read(fd, &value, 8), 8);
    FAILS(read(fd, &value, 8), EAGAIN);
    close(fd);
    FAILS(eventfd(0, 1 << 30), EINVAL);
}

static void splicing(void) {
    int first[2], second[2];
    GIVES(pipe(first), 0);
    GIVES(pipe(second), 0);
    int file = open("spliced", O_CREAT | O_RDWR | O_TRUNC, 0600);
    GIVES(write(file, "0123456789", 10), 10);
    // From a file to a pipe, with and without an explicit position.
    loff_t at = 2;
    GIVES(splice(file, &at, first[1], NULL, 4, 0), 4);
    GIVES(at, 6);
    lseek(file, 8, SEEK_SET);
    GIVES(splice(file, NULL, first[1], NULL, 100, 0), 2);
    GIVES(lseek(file, 0, SEEK_CUR), 10);
    GIVES(splice(file, NULL, first[1], NULL, 100, 0), 0);
    // tee copies and consumes nothing.
    GIVES(tee(first[0], second[1], 100, 0), 6);
    GIVES(read(first[0], buffer, 100), 6);
    CHECK(!memcmp(buffer, "234589", 6));
    GIVES(read(second[0], buffer, 3), 3);
    CHECK(!memcmp(buffer, "234", 3));
    // Between pipes, and from a pipe to a file.
    GIVES(splice(second[0], NULL, first[1], NULL, 100, 0), 3);
    at = 20;
    GIVES(splice(first[0], NULL, file, &at, 100, 0), 3);
    GIVES(at, 23);
    GIVES(pread(file, buffer, 100, 0), 23);
    CHECK(!memcmp(buffer + 20, "589", 3) && buffer[15] == 0);
    struct iovec parts[2] = {{"one ", 4}, {"two", 3}};
    GIVES(vmsplice(first[1], parts, 2, 0), 7);
    GIVES(read(first[0], buffer, 100), 7);
    CHECK(!memcmp(buffer, "one two", 7));
    GIVES(write(first[1], "to memory", 9), 9);
    struct iovec into = {buffer, 100};
    GIVES(vmsplice(first[0], &into, 1, 0), 9);
    CHECK(!memcmp(buffer, "to memory", 9));
    // Errors.
    FAILS(splice(file, NULL, file, NULL, 1, 0), EINVAL);
    FAILS(splice(first[0], &at, second[1], NULL, 1, 0), ESPIPE);
    FAILS(splice(first[0], NULL, first[1], NULL, 1, 0), EINVAL);
    FAILS(splice(9999, NULL, first[1], NULL, 1, 0), EBADF);
    FAILS(splice(first[1], NULL, file, NULL, 1, 0), EBADF);
    FAILS(splice(file, NULL, first[1], NULL, 1, 1 << 20), EINVAL);
    FAILS(tee(first[0], file, 1, 0), EINVAL);
    FAILS(tee(first[0], first[1], 1, 0), EINVAL);
    FAILS(splice(first[0], NULL, file, NULL, 1, SPLICE_F_NONBLOCK), EAGAIN);
    FAILS(tee(first[0], second[1], 1, SPLICE_F_NONBLOCK), EAGAIN);
    GIVES(splice(first[0], NULL, file, NULL, 0, 0), 0);
    int appending = open("spliced", O_WRONLY | O_APPEND);
    GIVES(write(first[1], "x", 1), 1);
    FAILS(splice(first[0], NULL, appending, NULL, 1, 0), EINVAL);
    close(appending);
    // It waits for data.
    GIVES(read(first[0], buffer, 1), 1);
    pid_t child = CHILD(usleep(20000); (void)!write(first[1], "late", 4));
    at = 0;
    GIVES(splice(first[0], NULL, file, &at, 100, 0), 4);
    GIVES(status_of(child), 0);
    for (int i = 0; i < 2; i++) close(first[i]), close(second[i]);
    close(file);
}

static void seals(void) {
    int fd = memfd_create("plain", 0);
    GIVES(fcntl(fd, F_GET_SEALS), F_SEAL_SEAL);
    FAILS(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EPERM);
    close(fd);
    fd = memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    GIVES(fcntl(fd, F_GETFD), FD_CLOEXEC);
    GIVES(fcntl(fd, F_GET_SEALS), 0);
    GIVES(write(fd, "contents", 8), 8);
    FAILS(fcntl(fd, F_ADD_SEALS, 1 << 20), EINVAL);
    GIVES(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    FAILS(write(fd, "more", 4), EPERM);
    FAILS(ftruncate(fd, 100), EPERM);
    FAILS(fallocate(fd, 0, 0, 100), EPERM);
    GIVES(pwrite(fd, "C", 1, 0), 1);
    GIVES(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    FAILS(ftruncate(fd, 1), EPERM);
    GIVES(ftruncate(fd, 8), 0);
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(shared != MAP_FAILED);
    FAILS(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
    GIVES(munmap(shared, 4096), 0);
    GIVES(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    FAILS(pwrite(fd, "x", 1, 0), EPERM);
    FAILS(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1), EPERM);
    FAILS(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), EPERM);
    shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(shared != MAP_FAILED && shared[0] == 'C');
    char *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(own != MAP_FAILED);
    own[0] = 'x';
    GIVES(shared[0], 'C');
    GIVES(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
    FAILS(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), EPERM);
    GIVES(fcntl(fd, F_GET_SEALS), F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    munmap(shared, 4096), munmap(own, 4096), close(fd);
    fd = open("nosquash", O_CREAT | O_RDWR, 0600);
    int ends[2];
    GIVES(pipe(ends), 0);
    FAILS(fcntl(ends[0], F_GET_SEALS), EINVAL);
    close(fd), close(ends[0]), close(ends[1]);
    FAILS(memfd_create("x", 1 << 20), EINVAL);
}

// Calls that put more into a pipe than it holds, and calls with positions.
static void portions(void) {
    int ends[2];
    GIVES(pipe(ends), 0);
    char *pages = mmap(NULL, 1 << 17, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(pages, 'p', 1 << 17);
    struct iovec parts[] = {{pages, 1 << 17}}, two[] = {{pages, 4096}, {pages + 4096, 4096}};
    GIVES(vmsplice(ends[1], parts, 1, 0), 65536);
    FAILS(vmsplice(ends[1], parts, 1, SPLICE_F_NONBLOCK), EAGAIN);
    GIVES(read(ends[0], buffer, 8192), 8192);
    GIVES(vmsplice(ends[1], two, 2, 0), 8192);
    GIVES(read(ends[0], buffer, sizeof buffer), 65536);
    CHECK(buffer[0] == 'p' && buffer[65535] == 'p');
    GIVES(vmsplice(ends[1], two, 0, 0), 0);
    parts[0].iov_base = (void *)8;
    FAILS(vmsplice(ends[1], parts, 1, 0), EFAULT);
    int fd = open("portions", O_CREAT | O_RDWR, 0600);
    GIVES(write(fd, pages, 1 << 17), 1 << 17);
    loff_t at = 0;
    GIVES(splice(fd, &at, ends[1], NULL, 1 << 17, 0), 65536);
    GIVES(at, 65536);
    parts[0] = (struct iovec){buffer, 1};
    FAILS(preadv2(ends[0], parts, 1, 0, 0), ESPIPE);
    FAILS(pwritev2(ends[1], parts, 1, 0, 0), ESPIPE);
    FAILS(preadv2(fd, parts, 1, -2, 0), EINVAL);
    GIVES(preadv2(ends[0], parts, 1, -1, 0), 1);
    GIVES(read(ends[0], buffer, sizeof buffer), 65535);
    GIVES(pwritev2(ends[1], parts, 1, -1, 0), 1);
    GIVES(preadv2(fd, parts, 1, 0, 0), 1);
    close(fd), close(ends[0]), close(ends[1]);
    munmap(pages, 1 << 17);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    pipes();
    packets();
    fifos();
    counters();
    splicing();
    if (!emulated) portions();
    seals();
    return finish("pipes");
}
