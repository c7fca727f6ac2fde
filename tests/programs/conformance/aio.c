// Linux AIO: contexts, operations on files and pipes, events; io_uring, where there is none.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

static aio_context_t context;

static long submit(struct iocb *request) {
    return syscall(SYS_io_submit, context, 1, &request);
}

static long events(long least, long most, struct io_event *list, long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    return syscall(SYS_io_getevents, context, least, most, list, milliseconds < 0 ? NULL : &time);
}

// Submits one operation; the result of its event.
static long outcome(struct iocb *request) {
    struct io_event event = {0};
    GIVES(submit(request), 1);
    GIVES(events(1, 1, &event, 5000), 1);
    GIVES(event.obj, (uintptr_t)request);
    GIVES(event.data, request->aio_data);
    return event.res;
}

static struct iocb request(int operation, int fd, void *buffer, size_t length, long offset) {
    return (struct iocb){.aio_data = 77 + operation,
                         .aio_lio_opcode = operation,
                         .aio_fildes = fd,
                         .aio_buf = (uintptr_t)buffer,
                         .aio_nbytes = length,
                         .aio_offset = offset};
}

static void contexts(void) {
    aio_context_t none = 0, some = 1;
    FAILS(syscall(SYS_io_setup, 0, &none), EINVAL);
    FAILS(syscall(SYS_io_setup, 1, &some), EINVAL);
    FAILS(syscall(SYS_io_setup, 1, (void *)8), EFAULT);
    FAILS(syscall(SYS_io_setup, 1 << 24, &none), EINVAL);
    FAILS(syscall(SYS_io_setup, 1 << 20, &none), EAGAIN);
    FAILS(syscall(SYS_io_destroy, 4096ul), EINVAL);
    FAILS(syscall(SYS_io_submit, 4096ul, 0, NULL), EINVAL);
    GIVES(syscall(SYS_io_setup, 8, &context), 0);
    CHECK(context != 0);
    // libaio reads the memory there.
    CHECK(*(volatile unsigned *)context <= UINT32_MAX);
}

static void files(void) {
    char text[64] = "";
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct iocb one = request(IOCB_CMD_PWRITE, fd, "some text", 9, 4);
    one.aio_key = 99;
    GIVES(outcome(&one), 9);
    GIVES(one.aio_key, 0);
    one = request(IOCB_CMD_PREAD, fd, text, sizeof text, 5);
    GIVES(outcome(&one), 8);
    GIVES(memcmp(text, "ome text", 9), 0);
    GIVES(lseek(fd, 0, SEEK_CUR), 0);
    struct iovec parts[] = {{"ab", 2}, {"cde", 3}};
    one = request(IOCB_CMD_PWRITEV, fd, parts, 2, 0);
    GIVES(outcome(&one), 5);
    struct iovec rest[] = {{text, 3}, {text + 10, 3}};
    one = request(IOCB_CMD_PREADV, fd, rest, 2, 0);
    GIVES(outcome(&one), 6);
    GIVES(memcmp(text + 10, "deo", 3), 0);
    one = request(IOCB_CMD_FDSYNC, fd, NULL, 0, 0);
    GIVES(outcome(&one), 0);
    one = request(IOCB_CMD_PREAD, fd, (void *)8, 4, 0);
    GIVES(outcome(&one), -EFAULT);

    one = request(IOCB_CMD_PREAD, -1, text, 1, 0);
    FAILS(submit(&one), EBADF);
    one = request(99, fd, text, 1, 0);
    FAILS(submit(&one), EINVAL);
    one = request(IOCB_CMD_PREAD, fd, text, 1, -1);
    FAILS(submit(&one), EINVAL);
    one = request(IOCB_CMD_PREAD, fd, text, -1, 0);
    FAILS(submit(&one), EINVAL);
    one = request(IOCB_CMD_PREAD, fd, text, 1, 0);
    one.aio_reserved2 = 1;
    FAILS(submit(&one), EINVAL);
    FAILS(submit((void *)8), EFAULT);
    FAILS(syscall(SYS_io_submit, context, -1l, NULL), EINVAL);
    int only = open("file", O_RDONLY);
    one = request(IOCB_CMD_PWRITE, only, text, 1, 0);
    FAILS(submit(&one), EBADF);
    close(only);
    // What comes before a bad request is submitted.
    struct iocb good = request(IOCB_CMD_PREAD, fd, text, 1, 0), bad = request(99, fd, text, 1, 0);
    struct iocb *list[] = {&good, &bad, &good};
    GIVES(syscall(SYS_io_submit, context, 3, list), 1);
    struct io_event event;
    GIVES(events(1, 1, &event, -1), 1);
    GIVES(events(0, 1, &event, 0), 0);
    FAILS(events(2, 1, &event, 0), EINVAL);
    FAILS(events(-1, 1, &event, 0), EINVAL);
    FAILS(syscall(SYS_io_cancel, context, &good, &event), EINVAL);
    close(fd);
}

static void notifies(void) {
    char text[8];
    uint64_t number = 0;
    int fd = open("file", O_RDONLY), told = eventfd(0, 0);
    struct iocb one = request(IOCB_CMD_PREAD, fd, text, 4, 0);
    one.aio_flags = IOCB_FLAG_RESFD, one.aio_resfd = told;
    GIVES(submit(&one), 1);
    struct pollfd ready = {.fd = told, .events = POLLIN};
    GIVES(poll(&ready, 1, 5000), 1);
    GIVES(read(told, &number, 8), 8);
    GIVES(number, 1);
    one.aio_resfd = fd;
    FAILS(submit(&one), EINVAL);
    struct io_event event;
    GIVES(events(1, 1, &event, 5000), 1);
    GIVES(event.res, 4);
    close(fd), close(told);
}

static void *later(void *fd) {
    usleep(20000);
    struct iocb one = request(IOCB_CMD_PWRITE, (int)(long)fd, "x", 1, 0);
    return (void *)submit(&one);
}

static void waits(void) {
    int ends[2];
    struct io_event list[2];
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    GIVES(events(1, 2, list, 30), 0);
    clock_gettime(CLOCK_MONOTONIC, &after);
    CHECK((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >= 29);
    GIVES(pipe(ends), 0);
    pthread_t thread;
    GIVES(pthread_create(&thread, NULL, later, (void *)(long)ends[1]), 0);
    GIVES(events(1, 2, list, -1), 1);
    GIVES(list[0].res, 1);
    void *result;
    pthread_join(thread, &result);
    GIVES((long)result, 1);
    char byte = 0;
    struct iocb one = request(IOCB_CMD_PREAD, ends[0], &byte, 1, 0);
    GIVES(outcome(&one), 1);
    GIVES(byte, 'x');
    close(ends[0]), close(ends[1]);
    struct {
        const void *mask;
        size_t size;
    } set = {NULL, 0};
    struct timespec none = {0};
    GIVES(syscall(SYS_io_pgetevents, context, 0l, 1l, list, &none, &set), 0);
}

static void nothing(int signal) { (void)signal; }

// A signal ends the operation that waits; those before and after it are complete.
static void interrupted(void) {
    int ends[2];
    char byte = 0;
    struct io_event list[4];
    // Repeated: on a busy machine the first one may come before the read that it ends.
    struct itimerval soon = {.it_value.tv_usec = 30000, .it_interval.tv_usec = 30000}, never = {0};
    GIVES(pipe(ends), 0);
    for (int restarts = 0; restarts < 2; restarts++) {
        struct sigaction action = {.sa_handler = nothing, .sa_flags = restarts ? SA_RESTART : 0};
        sigaction(SIGALRM, &action, NULL);
        struct iocb writes = request(IOCB_CMD_PWRITE, ends[1], "x", 1, 0);
        struct iocb reads = request(IOCB_CMD_PREAD, ends[0], &byte, 1, 0);
        struct iocb *four[] = {&writes, &reads, &reads, &writes};
        setitimer(ITIMER_REAL, &soon, NULL);
        GIVES(syscall(SYS_io_submit, context, 4, four), 4);
        setitimer(ITIMER_REAL, &never, NULL);
        GIVES(events(4, 4, list, 5000), 4);
        GIVES(list[0].res, 1);
        GIVES(list[1].res, 1);
        GIVES(list[2].res, -EINTR);
        GIVES(list[3].res, 1);
        GIVES(read(ends[0], &byte, 1), 1);
    }
    // A wait in the middle does not repeat the operations before it.
    pid_t child = CHILD({
        struct iocb writes = request(IOCB_CMD_PWRITE, ends[1], "x", 1, 0);
        struct iocb reads = request(IOCB_CMD_PREAD, ends[0], &byte, 1, 0);
        struct iocb *three[] = {&writes, &reads, &reads};
        context = 0;
        if (syscall(SYS_io_setup, 8, &context)) _exit(1);
        _exit(syscall(SYS_io_submit, context, 3, three) != 3);
    });
    wait_until_asleep(child);
    GIVES(write(ends[1], "y", 1), 1);
    int status = status_of(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(ends[0]), close(ends[1]);
}

static struct iocb poll_of(int fd, int wanted) {
    return request(IOCB_CMD_POLL, fd, (void *)(long)wanted, 0, 0);
}

// Operations that wait until a file is ready.
static void polls(void) {
    int ends[2], told = eventfd(0, EFD_NONBLOCK);
    char byte = 0;
    uint64_t number = 0;
    struct io_event event = {0}, two[2];
    GIVES(pipe(ends), 0);
    struct iocb writable = poll_of(ends[1], POLLOUT), readable = poll_of(ends[0], POLLIN);
    GIVES(outcome(&writable), POLLOUT);
    GIVES(submit(&readable), 1);
    GIVES(events(0, 1, &event, 0), 0);
    GIVES(write(ends[1], "xy", 2), 2);
    GIVES(events(1, 1, &event, 5000), 1);
    GIVES(event.res & POLLIN, POLLIN);
    GIVES(event.obj, (uintptr_t)&readable);
    GIVES(event.data, 77 + IOCB_CMD_POLL);
    // It is reported once.
    GIVES(write(ends[1], "z", 1), 1);
    GIVES(events(0, 1, &event, 0), 0);
    GIVES(outcome(&readable), POLLIN);
    for (int i = 0; i < 3; i++) GIVES(read(ends[0], &byte, 1), 1);
    // The file is open until the operation ends: the writer is not alone.
    GIVES(submit(&readable), 1);
    GIVES(close(ends[0]), 0);
    GIVES(write(ends[1], "x", 1), 1);
    GIVES(events(1, 1, &event, 5000), 1);
    GIVES(event.res & POLLIN, POLLIN);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 1000 && write(ends[1], "x", 1) == 1; i++) usleep(1000);
    FAILS(write(ends[1], "x", 1), EPIPE);
    close(ends[1]);
    // The end of the writer, which is reported unasked; the eventfd hears of it.
    GIVES(pipe(ends), 0);
    readable = poll_of(ends[0], 0);
    readable.aio_flags = IOCB_FLAG_RESFD, readable.aio_resfd = told;
    GIVES(submit(&readable), 1);
    FAILS(read(told, &number, 8), EAGAIN);
    close(ends[1]);
    struct pollfd hears = {.fd = told, .events = POLLIN};
    GIVES(poll(&hears, 1, 5000), 1);
    GIVES(read(told, &number, 8), 8);
    GIVES(events(1, 1, &event, 5000), 1);
    GIVES(event.res & POLLHUP, POLLHUP);
    close(ends[0]);
    // Several at a time, and a wait for them.
    int first = eventfd(0, 0), second = eventfd(0, 0);
    struct iocb one = poll_of(first, POLLIN), other = poll_of(second, POLLIN);
    struct iocb *both[] = {&one, &other};
    GIVES(syscall(SYS_io_submit, context, 2, both), 2);
    pid_t child = CHILD({
        wait_until_asleep(getppid());
        number = 1;
        if (write(second, &number, 8) != 8 || write(first, &number, 8) != 8) _exit(1);
    });
    GIVES(events(2, 2, two, -1), 2);
    GIVES(two[0].res & POLLIN, POLLIN);
    GIVES(two[1].res & POLLIN, POLLIN);
    GIVES(two[0].obj + two[1].obj, (uintptr_t)&one + (uintptr_t)&other);
    GIVES(status_of(child), 0);
    GIVES(read(first, &number, 8), 8);
    // A canceled operation has an event too.
    FAILS(syscall(SYS_io_cancel, context, &one, &event), EINVAL);
    GIVES(submit(&one), 1);
    FAILS(syscall(SYS_io_cancel, context, &other, &event), EINVAL);
    one.aio_key = 1;
    FAILS(syscall(SYS_io_cancel, context, &one, &event), EINVAL);
    one.aio_key = 0;
    FAILS(syscall(SYS_io_cancel, 4096ul, &one, &event), EINVAL);
    FAILS(syscall(SYS_io_cancel, context, 8, &event), EFAULT);
    FAILS(syscall(SYS_io_cancel, context, &one, &event), EINPROGRESS);
    GIVES(events(1, 1, &event, 5000), 1);
    GIVES(event.obj, (uintptr_t)&one);
    GIVES(event.res, 0);
    FAILS(syscall(SYS_io_cancel, context, &one, &event), EINVAL);
    number = 1;
    GIVES(write(first, &number, 8), 8);
    GIVES(events(0, 1, &event, 0), 0);
    // A regular file is always ready, and cannot be waited for.
    int file = open("file", O_RDONLY);
    one = poll_of(file, POLLIN | POLLOUT | POLLPRI);
    GIVES(outcome(&one), POLLIN | POLLOUT);
    one = poll_of(file, POLLPRI);
    FAILS(submit(&one), EINVAL);
    close(file);
    one = poll_of(-1, POLLIN);
    FAILS(submit(&one), EBADF);
    one = poll_of(first, 1 << 16);
    FAILS(submit(&one), EINVAL);
    one = poll_of(first, POLLIN), one.aio_nbytes = 1;
    FAILS(submit(&one), EINVAL);
    one = poll_of(first, POLLIN), one.aio_offset = 1;
    FAILS(submit(&one), EINVAL);
    one = poll_of(first, POLLIN), one.aio_rw_flags = 1;
    FAILS(submit(&one), EINVAL);
    // What waits takes room, and ends with its context or its program.
    aio_context_t whole = context;
    context = 0;
    GIVES(syscall(SYS_io_setup, 1, &context), 0);
    other = poll_of(told, POLLIN);
    struct iocb many = poll_of(told, POLLIN);
    long taken = 0;
    while (taken < 4096 && submit(&many) == 1) taken++;
    CHECK(taken >= 1 && errno == EAGAIN);
    GIVES(syscall(SYS_io_destroy, context), 0);
    number = 1;
    GIVES(write(told, &number, 8), 8);
    context = whole;
    CHILD_EXITS(0, {
        context = 0;
        if (syscall(SYS_io_setup, 8, &context) || pipe(ends)) _exit(1);
        struct iocb last = poll_of(ends[0], POLLIN);
        _exit(submit(&last) != 1);
    });
    close(first), close(second), close(told);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    contexts();
    files();
    notifies();
    waits();
    interrupted();
    polls();
    GIVES(syscall(SYS_io_destroy, context), 0);
    FAILS(syscall(SYS_io_destroy, context), EINVAL);
    // Without io_uring, programs take other calls. Then all three calls are refused alike.
    long ring = syscall(SYS_io_uring_setup, 1, (char[120]){0});
    int refused = errno;
    CHECK(ring >= 0 || refused == ENOSYS || refused == EPERM);
    FAILS_EITHER(syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0), EBADF, refused);
    FAILS_EITHER(syscall(SYS_io_uring_register, -1, 0, NULL, 0), EBADF, refused);
    if (ring >= 0) close(ring);
    return finish("aio");
}
