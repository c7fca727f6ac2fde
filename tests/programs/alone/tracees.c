// Many tracees at once, and random requests to tracees that make system calls and processes. Run as
// `tracees SEED`.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 1000, ROUNDS = 100, REQUESTS = 60 };
static pid_t tracees[MANY];
static char buffer[4096];

static long request(long what, pid_t pid, long address, long data) {
    return syscall(SYS_ptrace, what, pid, address, data);
}

static void many(void) {
    int status, wrong = 0;
    for (int i = 0; i < MANY; i++) {
        tracees[i] = fork();
        if (tracees[i] == 0)
            for (;;) pause();
        wrong += request(PTRACE_SEIZE, tracees[i], 0, PTRACE_O_EXITKILL) != 0;
    }
    for (int i = 0; i < MANY; i++) wrong += request(PTRACE_INTERRUPT, tracees[i], 0, 0) != 0;
    for (int i = 0; i < MANY; i++)
        wrong += waitpid(tracees[i], &status, __WALL) != tracees[i] || status != 0x80057f;
    for (int i = 0; i < MANY; i++) kill(tracees[i], SIGKILL);
    for (int i = 0; i < MANY; i++)
        wrong += waitpid(tracees[i], &status, 0) != tracees[i] || status != SIGKILL;
    printf("%d tracees, %d wrong\n", MANY, wrong);
}

static void tracee(void) {
    request(PTRACE_TRACEME, 0, 0, 0);
    raise(SIGSTOP);
    for (int i = 0; i < 50; i++) {
        getppid();
        if (i % 10 == 0) {
            pid_t child = fork();
            if (child == 0) _exit(0);
            waitpid(child, NULL, 0);
        }
    }
    _exit(0);
}

static long word(void) {
    switch (random() % 4) {
    case 0: return random();
    case 1: return (long)buffer;
    default: return random() % 600;
    }
}

static void round_of_requests(void) {
    int status;
    pid_t pid = fork();
    if (pid == 0) tracee();
    waitpid(pid, &status, 0);
    for (int i = 0; i < REQUESTS; i++) {
        request(random() % 3 == 0 ? 0x4200 + random() % 16 : random() % 34, pid, word(), word());
        pid_t other;
        while ((other = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
            if (other == pid && !WIFSTOPPED(status)) return;
            if (other != pid && WIFSTOPPED(status)) request(PTRACE_DETACH, other, 0, 0);
        }
    }
    kill(pid, SIGKILL);
    // It may stop before it ends (PTRACE_O_TRACEEXIT).
    while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status)) request(PTRACE_CONT, pid, 0, 0);
}

int main(int count, char **arguments) {
    srandom(count > 1 ? atoi(arguments[1]) : 1);
    many();
    fflush(stdout);
    for (int i = 0; i < ROUNDS; i++) round_of_requests();
    puts("random requests");
}
