// Requests of tracers about system calls, filters and restartable sequences, which are alike on all machines:
// the program must print the same on the host.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/rseq.h>

#include "../include/tracing.h"

#define GET_FILTER 0x420c
#define GET_RSEQ_CONFIGURATION 0x420f
#define SET_SYSCALL_INFO 0x4212
#define MARKED (SIGTRAP | 0x80)
#define NOWHERE 8
#ifndef RSEQ_SIG
#define RSEQ_SIG 0xf1401073 // <asm/rseq.h> of RISC-V
#endif

enum { NONE, ENTRY, EXIT, SECCOMP };
// Results of calls.
enum { SLACK = 4321, EMPTY = 0x10000000 };

static void install(struct sock_filter *code, int length) {
    struct sock_fprog program = {length, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) abort();
}

static struct call_info information(pid_t pid, int op, long length) {
    struct call_info info = {0};
    check("length", request(GET_SYSCALL_INFO, pid, sizeof info, (long)&info), length);
    check("kind", info.op, op);
    return info;
}

static long replace(pid_t pid, struct call_info *info) {
    return request(SET_SYSCALL_INFO, pid, sizeof *info, (long)info);
}

// Continues up to the next stop at a call, which has this kind.
static struct call_info next(pid_t pid, int op) {
    request(PTRACE_SYSCALL, pid, 0, 0);
    stopped("stop at a call", pid, MARKED);
    unsigned long message = 0;
    request(PTRACE_GETEVENTMSG, pid, 0, (long)&message);
    check("message", message, op);
    return information(pid, op, op == ENTRY ? 80 : 33);
}

static void calls(void) {
    prctl(PR_SET_TIMERSLACK, SLACK);
    raise(SIGSTOP);
    int right = syscall(SYS_getppid) == SLACK;
    right += syscall(SYS_getppid) == EMPTY;
    right += syscall(SYS_getppid) == 123;
    right += syscall(SYS_getppid) == -1 && errno == ENOSYS;
    right += syscall(SYS_getppid) == -1 && errno == ENOSYS;
    right += syscall(SYS_getppid) == -1 && errno == EDOM;
    right += syscall(SYS_getppid) == getppid();
    _exit(right);
}

// What is refused at the start of a call.
static void refused(pid_t pid, struct call_info info) {
    struct call_info other = info;
    fails("too short", request(SET_SYSCALL_INFO, pid, sizeof info - 1, (long)&info), EINVAL);
    fails("nowhere", request(SET_SYSCALL_INFO, pid, sizeof info, NOWHERE), EFAULT);
    for (int op = NONE; op <= SECCOMP + 1; op++) {
        other.op = op;
        if (op != ENTRY) fails("another kind", replace(pid, &other), EINVAL);
    }
    for (int i = 0; i < 3; i++) {
        other = info;
        other.pad[i] = 1;
        fails("reserved", replace(pid, &other), EINVAL);
    }
    other = info;
    other.data[0] = 0xffffffff;
    fails("a large number", replace(pid, &other), ERANGE);
    other.data[0] = 1ul << 32 | SYS_getppid;
    fails("a larger number", replace(pid, &other), ERANGE);
    // These fields are not used.
    other = info;
    other.arch = 1, other.pc = 2, other.sp = 3;
    check("ignored", request(SET_SYSCALL_INFO, pid, sizeof info + 8, (long)&other), 0);
    other = information(pid, ENTRY, 80);
    check("unchanged", memcmp(&other, &info, 80), 0);
}

static void changed_calls(void) {
    pid_t pid = child(calls);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("calls", pid, SIGSTOP);
    struct call_info info = information(pid, NONE, 24);
    fails("no call", replace(pid, &info), EINVAL);
    info.op = ENTRY;
    fails("no call", replace(pid, &info), EINVAL);
    request(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD);
    // Another call.
    info = next(pid, ENTRY);
    check("number", info.data[0], SYS_getppid);
    refused(pid, info);
    info.data[0] = SYS_prctl, info.data[1] = PR_GET_TIMERSLACK;
    check("another call", replace(pid, &info), 0);
    info = information(pid, ENTRY, 80);
    check("another number", info.data[0], SYS_prctl);
    check("another argument", info.data[1], PR_GET_TIMERSLACK);
    check("its result", next(pid, EXIT).data[0], SLACK);
    // One with six arguments.
    info = next(pid, ENTRY);
    uint64_t map[] = {SYS_mmap, EMPTY, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0};
    memcpy(info.data, map, sizeof map);
    check("six arguments", replace(pid, &info), 0);
    check("their result", next(pid, EXIT).data[0], EMPTY);
    // No call, with a result, and without one.
    for (int i = 0; i < 2; i++) {
        info = next(pid, ENTRY);
        info.data[0] = -1;
        check("no call", replace(pid, &info), 0);
        info = next(pid, EXIT);
        check("no result", info.data[0], -ENOSYS);
        info.data[0] = 123, info.data[1] = 0;
        if (i == 0) check("a result", replace(pid, &info), 0);
    }
    info = next(pid, ENTRY);
    info.data[0] = 100000;
    check("an unknown call", replace(pid, &info), 0);
    check("an unknown call", next(pid, EXIT).data[0], -ENOSYS);
    // An error.
    next(pid, ENTRY);
    info = next(pid, EXIT);
    info.op = ENTRY;
    fails("the other kind", replace(pid, &info), EINVAL);
    info.op = EXIT, info.data[0] = -EDOM, info.data[1] = 1;
    check("an error", replace(pid, &info), 0);
    info = information(pid, EXIT, 33);
    check("the error", info.data[0], -EDOM);
    check("is one", info.data[1] & 0xff, 1);
    request(PTRACE_CONT, pid, 0, 0);
    ended("calls", pid, 7 << 8);
    puts("changed calls");
}

static void forever(void) {
    for (;;) syscall(SYS_getppid);
}

// Stops that do not say that they are at a call, and a tracee that runs.
static void unmarked(void) {
    pid_t pid = child(forever);
    struct call_info info;
    unsigned long message = 0;
    for (int i = 0; i < 2; i++) {
        request(PTRACE_SYSCALL, pid, 0, 0);
        stopped("unmarked", pid, SIGTRAP);
        request(PTRACE_GETEVENTMSG, pid, 0, (long)&message);
        check("message", message, i + 1);
        info = information(pid, NONE, 24);
        fails("unmarked", replace(pid, &info), EINVAL);
        info.op = i + 1;
        fails("unmarked", replace(pid, &info), EINVAL);
    }
    kill(pid, SIGUSR1);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("signal", pid, SIGUSR1);
    request(PTRACE_GETEVENTMSG, pid, 0, (long)&message);
    check("no message", message, 0);
    request(PTRACE_CONT, pid, 0, 0);
    fails("running", replace(pid, &info), ESRCH);
    fails("running", request(GET_FILTER, pid, 0, 0), ESRCH);
    fails("running", request(GET_RSEQ_CONFIGURATION, pid, 0, 0), ESRCH);
    kill(pid, SIGKILL);
    ended("killed", pid, SIGKILL);
    puts("other stops");
}

static struct sock_filter first[] = {
    // Fields that have no meaning are kept.
    {BPF_LD | BPF_IMM, 1, 2, SECCOMP_RET_ALLOW},
    {BPF_RET | BPF_A, 3, 4, 5},
};
static struct sock_filter second[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | 9),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

static void filtered(void) {
    prctl(PR_SET_TIMERSLACK, SLACK);
    install(first, 2);
    install(second, 4);
    raise(SIGSTOP);
    _exit(syscall(SYS_getppid) == SLACK ? 4 : 1);
}

static pid_t filtered_child(void) {
    pid_t pid = child(filtered);
    fails("no filter", request(GET_FILTER, pid, 0, 0), EINVAL);
    request(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESECCOMP);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("filtered", pid, SIGSTOP);
    return pid;
}

// A call for which the tracer is asked becomes another one.
static void changed_question(void) {
    pid_t pid = filtered_child();
    request(PTRACE_CONT, pid, 0, 0);
    stopped("asked", pid, PTRACE_EVENT_SECCOMP << 8 | SIGTRAP);
    struct call_info info = information(pid, SECCOMP, 84);
    info.data[0] = SYS_prctl, info.data[1] = PR_GET_TIMERSLACK;
    check("another call", replace(pid, &info), 0);
    info.op = ENTRY;
    fails("another kind", replace(pid, &info), EINVAL);
    request(PTRACE_CONT, pid, 0, 0);
    ended("filtered", pid, 4 << 8);
    puts("changed question");
}

static void filters(void) {
    pid_t pid = filtered_child();
    struct sock_filter got[4];
    check("length of the first", request(GET_FILTER, pid, 0, 0), 2);
    check("length of the second", request(GET_FILTER, pid, 1, 0), 4);
    check("the first", request(GET_FILTER, pid, 0, (long)got), 2);
    check("the first", memcmp(got, first, sizeof first), 0);
    check("the second", request(GET_FILTER, pid, 1, (long)got), 4);
    check("the second", memcmp(got, second, sizeof second), 0);
    fails("the third", request(GET_FILTER, pid, 2, (long)got), ENOENT);
    fails("the last", request(GET_FILTER, pid, -1, (long)got), ENOENT);
    fails("nowhere", request(GET_FILTER, pid, 0, NOWHERE), EFAULT);
    kill(pid, SIGKILL);
    ended("killed", pid, SIGKILL);
    puts("filters");
}

// Tracers that may not read filters: a user, and one with a filter of its own.
static void no_filters(void) {
    for (int i = 0; i < 2; i++) {
        fflush(stdout);
        pid_t tracer = fork();
        if (tracer == 0) {
            failures = 0;
            struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
            if (i == 0 && setuid(1000)) abort();
            if (i == 1) install(&allow, 1);
            pid_t pid = child(forever);
            fails("not allowed", request(GET_FILTER, pid, 0, 0), EACCES);
            kill(pid, SIGKILL);
            ended("killed", pid, SIGKILL);
            _exit(failures ? 1 : 3);
        }
        ended("tracer", tracer, 3 << 8);
    }
    puts("filters of others");
}

struct configuration {
    uint64_t pointer;
    uint32_t size, signature, flags, pad;
};
static char area[32] __attribute__((aligned(32)));

static void sequences(void) {
    char *own = (char *)__builtin_thread_pointer() + __rseq_offset;
    if (__rseq_size && syscall(SYS_rseq, own, sizeof area, 1, RSEQ_SIG) != 0) abort();
    raise(SIGSTOP);
    if (syscall(SYS_rseq, area, sizeof area, 0, RSEQ_SIG) != 0) abort();
    raise(SIGSTOP);
}

static void configurations(void) {
    struct configuration got, none = {0};
    pid_t pid = child(sequences);
    for (int i = 0; i < 2; i++) {
        request(PTRACE_CONT, pid, 0, 0);
        stopped("sequences", pid, SIGSTOP);
        memset(&got, 0xff, sizeof got);
        check("size", request(GET_RSEQ_CONFIGURATION, pid, sizeof got + 8, (long)&got), sizeof got);
        if (i == 0) check("none", memcmp(&got, &none, sizeof got), 0);
    }
    check("pointer", got.pointer, (long)area);
    check("size", got.size, sizeof area);
    check("signature", got.signature, RSEQ_SIG);
    check("flags", got.flags | got.pad, 0);
    memset(&got, 0xff, sizeof got);
    check("a part", request(GET_RSEQ_CONFIGURATION, pid, 12, (long)&got), sizeof got);
    check("a part", got.size, sizeof area);
    check("the rest", got.signature, 0xffffffff);
    check("nothing", request(GET_RSEQ_CONFIGURATION, pid, 0, 0), sizeof got);
    fails("nowhere", request(GET_RSEQ_CONFIGURATION, pid, sizeof got, NOWHERE), EFAULT);
    request(PTRACE_CONT, pid, 0, 0);
    ended("sequences", pid, 7 << 8);
    puts("restartable sequences");
}

int main(void) {
    changed_calls();
    unmarked();
    changed_question();
    filters();
    no_filters();
    configurations();
    return failures != 0;
}
