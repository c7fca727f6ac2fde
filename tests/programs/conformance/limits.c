// Limits: descriptors, resources, names, and the effect of reaching them.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

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
    resources();
    processor_time();
    descriptors();
    return finish("limits");
}
