// Uses something up until it is refused, and goes on.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
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
    // Only other users than root are limited.
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

// A child that uses more than there is ends; its parent does not.
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
    if (strcmp(what, "memory") == 0) memory();
    printf("went on\n");
    fflush(stdout);
    _exit(0);
}
