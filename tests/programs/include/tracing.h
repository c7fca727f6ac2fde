// Helpers of programs that trace others: requests, and checks of what they return. A line that begins with
// "wrong" is a difference.
#pragma once

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

// <linux/ptrace.h>, which conflicts with <sys/ptrace.h>.
struct call_info {
    uint8_t op, pad[3];
    uint32_t arch;
    uint64_t pc, sp, data[8];
};
#define GET_SYSCALL_INFO 0x420e

enum { PC, A0 = 10, A7 = 17 };
static int failures;
static volatile long word = 0x1122334455667788;

static void check(const char *what, long got, long expected) {
    if (got == expected) return;
    failures++;
    printf("wrong: %s: %#lx, not %#lx\n", what, got, expected);
    fflush(stdout);
}

static void fails(const char *what, long result, int error) {
    check(what, result, -1);
    check(what, errno, error);
}

static void stopped(const char *what, pid_t pid, int code) {
    int status = 0;
    check(what, waitpid(pid, &status, __WALL), pid);
    check(what, status, code << 8 | 0x7f);
}

static void ended(const char *what, pid_t pid, int expected) {
    int status = 0;
    check(what, waitpid(pid, &status, __WALL), pid);
    check(what, status, expected);
}

static long request(int what, pid_t pid, long address, long data) {
    return syscall(SYS_ptrace, what, pid, address, data);
}

static void get(pid_t pid, unsigned long registers[32]) {
    struct iovec vector = {registers, 32 * 8};
    check("GETREGSET", request(PTRACE_GETREGSET, pid, NT_PRSTATUS, (long)&vector), 0);
    check("length of registers", vector.iov_len, 32 * 8);
}

static void set(pid_t pid, unsigned long registers[32]) {
    struct iovec vector = {registers, 32 * 8};
    check("SETREGSET", request(PTRACE_SETREGSET, pid, NT_PRSTATUS, (long)&vector), 0);
}

// A child that lets its parent trace it, stops, and goes on with `body`.
static pid_t child(void (*body)(void)) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        request(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        body();
        _exit(7);
    }
    // "Signal-delivery-stop".
    stopped("first stop", pid, SIGSTOP);
    return pid;
}
