// Uses up a resource until a request is refused, and continues.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void *wait_for_ever(void *argument) {
    for (;;) pause();
    return argument;
}

static void threads(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    int count = 0, result;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    while ((result = pthread_create(&thread, &attributes, wait_for_ever, NULL)) == 0) count++;
    printf("threads %s, %s\n", count >= 10000 ? "many" : "few", strerror(result));
}

static void processes(void) {
    int count = 0;
    struct rlimit limit = {300, 300};
    setrlimit(RLIMIT_NPROC, &limit);
    // Only users other than root are limited.
    if (getuid() == 0 && setuid(1000) != 0) abort();
    pid_t pid;
    while ((pid = fork()) > 0) count++;
    if (pid == 0)
        for (;;) pause();
    printf("processes %s, %s\n", count > 200 && count < 300 ? "many" : "few", strerror(errno));
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    int ended = 0;
    while (wait(NULL) > 0) ended++;
    printf("ended %s\n", ended == count ? "all" : "some");
}

// All processes make children until the system has no room for more; the first one kills them.
static void bomb(void) {
    pid_t first = getpid(), pid;
    while ((pid = fork()) >= 0) {}
    int error = errno;
    if (getpid() != first)
        for (;;) pause();
    kill(-1, SIGKILL);
    while (wait(NULL) > 0) {}
    printf("bomb, %s\n", strerror(error));
    if ((pid = fork()) == 0) _exit(3);
    int status = -1;
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 3) printf("there is no room again\n");
}

// The file system is full: files stay intact, and there is room again after deletion.
static void space(void) {
    static char block[1 << 16];
    long written = 0, got;
    int fd = open("/scratch/large", O_CREAT | O_RDWR, 0600);
    while ((got = write(fd, block, sizeof block)) > 0) written += got;
    printf("space %s, %s\n", written > 1 << 20 ? "much" : "little", strerror(errno));
    int other = open("/scratch/other", O_CREAT | O_WRONLY, 0600);
    if (other >= 0 && write(other, block, sizeof block) > 0 && write(other, block, sizeof block) > 0)
        printf("there was room\n");
    if (lseek(fd, 0, SEEK_END) != written) printf("not all is there\n");
    if (ftruncate(fd, 0) < 0 || write(fd, block, sizeof block) != sizeof block)
        printf("there is no room again\n");
}

// As many files as there is room for.
static void inodes(void) {
    char name[32];
    long made = 0, gone = 0;
    for (;; made++) {
        snprintf(name, sizeof name, "/scratch/%ld", made);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0) break;
        close(fd);
    }
    printf("inodes %s, %s\n", made > 10000 ? "many" : "few", strerror(errno));
    for (long i = 0; i < made; i++) {
        snprintf(name, sizeof name, "/scratch/%ld", i);
        gone += unlink(name) == 0;
    }
    int fd = open("/scratch/again", O_CREAT | O_WRONLY, 0600);
    if (gone != made || fd < 0) printf("there is no room again\n");
}

// All open files of the system, although the limit of each process is higher.
static void files(void) {
    int first = -1, last = -1, fd, ready[2], status;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    while ((fd = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0) {
        if (first < 0) first = fd;
        last = fd;
    }
    printf("sockets %s, %s\n", last - first > 50000 ? "many" : "few", strerror(errno));
    close_range(first, last, 0);
    if (pipe(ready) < 0) abort();
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 600000; i++)
            if (open("/dev/null", O_RDONLY) < 0) abort();
        if (write(ready[1], "r", 1) != 1) abort();
        for (;;) pause();
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1) abort();
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd;
    printf("files %s, %s\n", last > 400000 ? "many" : "few", strerror(errno));
    if (pipe(ready) == 0 || errno != ENFILE || eventfd(0, 0) >= 0 || errno != ENFILE)
        printf("others are refused otherwise: %s\n", strerror(errno));
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    if (open("/dev/null", O_RDONLY) < 0) printf("there is no room again\n");
}

// Of several processes that use memory, the largest is killed, whichever requests more.
static void largest(void) {
    int ready[2], status;
    size_t sizes[2] = {(size_t)240 << 20, (size_t)60 << 20};
    pid_t pids[2];
    if (pipe(ready) < 0) abort();
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            prctl(PR_SET_NAME, i == 0 ? "large" : "small");
            memset(mmap(NULL, sizes[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                   1, sizes[i]);
            if (write(ready[1], "r", 1) != 1) abort();
            for (;;) pause();
        }
        char byte;
        if (read(ready[0], &byte, 1) != 1) abort();
    }
    size_t own = (size_t)230 << 20;
    char *all = mmap(NULL, own, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < own; at += 4096) all[at] = 1;
    waitpid(pids[0], &status, 0);
    printf("largest ended %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
    printf("small %s\n", waitpid(pids[1], &status, WNOHANG) == 0 ? "lives" : "ended");
    kill(pids[1], SIGKILL);
}

// A child that uses more memory than there is gets killed; its parent does not.
static void memory(void) {
    size_t size = (size_t)1 << 30;
    pid_t pid = fork();
    if (pid == 0) {
        char *all = mmap(NULL, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        memset(all, 1, size);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("ended %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    if (strcmp(what, "threads") == 0) threads();
    if (strcmp(what, "processes") == 0) processes();
    if (strcmp(what, "bomb") == 0) bomb();
    if (strcmp(what, "memory") == 0) memory();
    if (strcmp(what, "space") == 0) space();
    if (strcmp(what, "inodes") == 0) inodes();
    if (strcmp(what, "largest") == 0) largest();
    if (strcmp(what, "files") == 0) files();
    printf("went on\n");
    fflush(stdout);
    _exit(0);
}
