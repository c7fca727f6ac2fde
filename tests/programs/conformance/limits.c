// Limits: descriptors, resources, names, and the effect of reaching them.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/sendfile.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>

static void resources(void) {
    struct rlimit limit, old;
    GIVES(getrlimit(RLIMIT_NOFILE, &old), 0);
    CHECK(old.rlim_cur <= old.rlim_max);
    limit = (struct rlimit){old.rlim_max, old.rlim_max - 1};
    FAILS(setrlimit(RLIMIT_NOFILE, &limit), EINVAL);
    FAILS(getrlimit(99, &limit), EINVAL);
    FAILS(getrlimit(RLIMIT_NOFILE, (void *)8), EFAULT);
    limit = (struct rlimit){0, 0};
    GIVES(getrlimit(RLIMIT_CORE, &limit), 0);
    limit.rlim_cur = 0;
    GIVES(setrlimit(RLIMIT_CORE, &limit), 0);
    limit = (struct rlimit){64, old.rlim_max};
    GIVES(setrlimit(RLIMIT_NOFILE, &limit), 0);
    GIVES(prlimit(0, RLIMIT_NOFILE, NULL, &limit), 0);
    GIVES(limit.rlim_cur, 64);
    FAILS(prlimit(99999, RLIMIT_NOFILE, NULL, &limit), ESRCH);
    // Children inherit limits.
    CHILD_EXITS(0, getrlimit(RLIMIT_NOFILE, &limit); _exit(limit.rlim_cur != 64));
}

static volatile int exceeded;

static void exceed(int signal) {
    (void)signal;
    exceeded++;
}

static void processor_time(void) {
    struct rlimit limit = {0, 0};
    CHILD_DIES(SIGKILL, setrlimit(RLIMIT_CPU, &limit); for (;;) continue);
    limit = (struct rlimit){1, RLIM_INFINITY};
    CHILD_DIES(SIGXCPU, setrlimit(RLIMIT_CPU, &limit); for (;;) continue);
    // After SIGXCPU, the soft limit increases by a second.
    CHILD_EXITS(0, signal(SIGXCPU, exceed); limit.rlim_cur = 0;
                setrlimit(RLIMIT_CPU, &limit); while (!exceeded) continue;
                getrlimit(RLIMIT_CPU, &limit); _exit(limit.rlim_cur != 1));
}

static void file_size(void) {
    enum { LIMIT = 8192 };
    static char block[3 * LIMIT];
    struct rlimit old, limit;
    GIVES(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){LIMIT, old.rlim_max};
    int fd = open("size", O_CREAT | O_RDWR, 0600), more = open("more", O_CREAT | O_RDWR, 0600);
    int null = open("/dev/null", O_WRONLY), ends[2];
    GIVES(pipe(ends), 0);
    GIVES(write(more, block, sizeof block), sizeof block);
    signal(SIGXFSZ, exceed);
    exceeded = 0;
    GIVES(setrlimit(RLIMIT_FSIZE, &limit), 0);
    // What fits is written, without a signal.
    GIVES(write(fd, block, sizeof block), LIMIT);
    GIVES(exceeded, 0);
    FAILS(write(fd, block, 1), EFBIG);
    GIVES(exceeded, 1);
    GIVES(write(fd, block, 0), 0);
    GIVES(pwrite(fd, block, 100, LIMIT - 1), 1);
    GIVES(exceeded, 1);
    FAILS(pwrite(fd, block, 100, LIMIT), EFBIG);
    GIVES(exceeded, 2);
    struct iovec parts[] = {{block, 10}, {block, 10}};
    GIVES(pwritev(fd, parts, 2, LIMIT - 10), 10);
    GIVES(pwritev(fd, parts, 2, LIMIT - 15), 15);
    GIVES(exceeded, 2);
    FAILS(pwritev(fd, parts, 2, LIMIT + 1), EFBIG);
    GIVES(exceeded, 3);
    FAILS(ftruncate(fd, LIMIT + 1), EFBIG);
    GIVES(exceeded, 4);
    FAILS(truncate("size", LIMIT + 1), EFBIG);
    GIVES(exceeded, 5);
    GIVES(ftruncate(fd, LIMIT), 0);
    FAILS(fallocate(fd, 0, 0, LIMIT + 1), EFBIG);
    GIVES(exceeded, 6);
    GIVES(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, LIMIT + 1), 0);
    // A longer file may become shorter, but not longer.
    GIVES(ftruncate(more, LIMIT + 5), 0);
    FAILS(ftruncate(more, LIMIT + 6), EFBIG);
    GIVES(exceeded, 7);
    GIVES(ftruncate(fd, 0), 0);
    GIVES(lseek(fd, 0, SEEK_SET), 0);
    GIVES(lseek(more, 0, SEEK_SET), 0);
    GIVES(sendfile(fd, more, NULL, LIMIT + 5), LIMIT);
    exceeded = 0;
    FAILS(sendfile(fd, more, NULL, 5), EFBIG);
    GIVES(exceeded, 1);
    GIVES(write(ends[1], block, 100), 100);
    loff_t at = LIMIT - 10, from = 0;
    // Linux may try to write the rest, which sends a signal.
    GIVES(splice(ends[0], NULL, fd, &at, 100, 0), 10);
    exceeded = 0;
    FAILS(splice(ends[0], NULL, fd, &at, 100, 0), EFBIG);
    GIVES(exceeded, 1);
    at = LIMIT - 10;
    GIVES(copy_file_range(more, &from, fd, &at, 100, 0), 10);
    GIVES(exceeded, 1);
    FAILS(copy_file_range(more, &from, fd, &at, 100, 0), EFBIG);
    GIVES(exceeded, 2);
    // The limit is for regular files.
    GIVES(write(null, block, sizeof block), sizeof block);
    GIVES(write(ends[1], block, sizeof block), sizeof block);
    GIVES(setrlimit(RLIMIT_FSIZE, &old), 0);
    CHILD_DIES(SIGXFSZ, signal(SIGXFSZ, SIG_DFL); setrlimit(RLIMIT_FSIZE, &limit);
               pwrite(fd, block, 1, LIMIT) < 0 ? _exit(1) : _exit(2));
    close(fd), close(more), close(null), close(ends[0]), close(ends[1]);
    exceeded = 0;
}

// Queued signals, of which each user has a number.
static void queued_signals(void) {
    struct rlimit old, limit;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigaddset(&set, SIGUSR1);
    GIVES(getrlimit(RLIMIT_SIGPENDING, &old), 0);
    GIVES(sigprocmask(SIG_BLOCK, &set, NULL), 0);
    limit = (struct rlimit){20, old.rlim_max};
    GIVES(setrlimit(RLIMIT_SIGPENDING, &limit), 0);
    int queued = 0;
    union sigval value = {.sival_int = 1};
    while (queued < 1000 && sigqueue(getpid(), SIGRTMIN, value) == 0) queued++;
    CHECK(errno == EAGAIN);
    CHECK(queued > 0 && queued <= 20);
    // A standard signal is pending nevertheless.
    GIVES(sigqueue(getpid(), SIGUSR1, value), 0);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    FAILS(timer_create(CLOCK_MONOTONIC, &event, &timer), EAGAIN);
    struct timespec none = {0, 0};
    GIVES(sigtimedwait(&set, NULL, &none), SIGUSR1);
    while (queued > 0 && sigtimedwait(&set, NULL, &none) == SIGRTMIN) queued--;
    GIVES(queued, 0);
    FAILS(sigtimedwait(&set, NULL, &none), EAGAIN);
    GIVES(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    GIVES(timer_delete(timer), 0);
    GIVES(setrlimit(RLIMIT_SIGPENDING, &old), 0);
    GIVES(sigprocmask(SIG_UNBLOCK, &set, NULL), 0);
}

static void descriptors(void) {
    int opened = 0, fd, ends[2];
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) opened++;
    CHECK(errno == EMFILE);
    CHECK(opened > 40 && opened < 64);
    FAILS(dup(0), EMFILE);
    FAILS(pipe(ends), EMFILE);
    FAILS(socket(AF_UNIX, SOCK_STREAM, 0), EMFILE);
    FAILS(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), EMFILE);
    FAILS(eventfd(0, 0), EMFILE);
    FAILS(fcntl(0, F_DUPFD, 10), EMFILE);
    FAILS(fcntl(0, F_DUPFD, 64), EINVAL);
    FAILS(dup2(0, 64), EBADF);
    FAILS(open("none", O_RDONLY), EMFILE);
    GIVES(close(63), 0);
    FAILS(pipe(ends), EMFILE);
    GIVES(dup(0), 63);
    for (fd = 3; fd < 64; fd++) close(fd);
    GIVES(pipe(ends), 0);
    close(ends[0]), close(ends[1]);
}

static void vectors(void) {
    static char byte;
    static struct iovec parts[1025];
    for (int i = 0; i < 1025; i++) parts[i] = (struct iovec){&byte, 1};
    int fd = open("vectors", O_CREAT | O_RDWR, 0600);
    GIVES(writev(fd, parts, 1024), 1024);
    FAILS(writev(fd, parts, 1025), EINVAL);
    FAILS(readv(fd, parts, 1025), EINVAL);
    FAILS(writev(fd, parts, -1), EINVAL);
    FAILS(writev(fd, (void *)8, 1), EFAULT);
    GIVES(writev(fd, NULL, 0), 0);
    close(fd);
}

static void depths(void) {
    char start[4096];
    CHECK(getcwd(start, sizeof start) != NULL);
    // Deeper than the longest path.
    int depth = 0;
    static const char name[] = "0123456789012345678901234567890123456789";
    while (depth < 120 && mkdir(name, 0755) == 0 && chdir(name) == 0) depth++;
    GIVES(depth, 120);
    CHECK(open("deep", O_CREAT | O_WRONLY, 0600) >= 0);
    GIVES(unlink("deep"), 0);
    while (depth > 0 && chdir("..") == 0 && rmdir(name) == 0) depth--;
    GIVES(depth, 0);
    char end[4096];
    CHECK(getcwd(end, sizeof end) != NULL && !strcmp(start, end));
    // Many files in one directory.
    int made = 0;
    char file[32];
    for (int i = 0; i < 2000; i++) {
        snprintf(file, sizeof file, "f%d", i);
        int fd = open(file, O_CREAT | O_WRONLY, 0600);
        made += fd >= 0;
        close(fd);
    }
    GIVES(made, 2000);
    for (int i = 0; i < 2000; i++) {
        snprintf(file, sizeof file, "f%d", i);
        made -= unlink(file) == 0;
    }
    GIVES(made, 0);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    vectors();
    depths();
    file_size();
    queued_signals();
    resources();
    processor_time();
    descriptors();
    return finish("limits");
}
