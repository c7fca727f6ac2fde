// A tracer and its tracees: each request and each stop, with the wait status that ptrace(2) defines.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "../include/tracing.h"

static void nothing(void) {}

static void memory(void) {
    pid_t pid = child(nothing);
    long value = 0;
    check("PEEKDATA", request(PTRACE_PEEKDATA, pid, (long)&word, (long)&value), 0);
    check("word", value, 0x1122334455667788);
    check("POKEDATA", request(PTRACE_POKEDATA, pid, (long)&word, 42), 0);
    check("PEEKTEXT", request(PTRACE_PEEKTEXT, pid, (long)&word, (long)&value), 0);
    check("new word", value, 42);
    check("own word", word, 0x1122334455667788);
    fails("no memory", request(PTRACE_PEEKDATA, pid, 8, (long)&value), EIO);
    fails("poke nowhere", request(PTRACE_POKEDATA, pid, 8, 1), EIO);
    fails("bad result", request(PTRACE_PEEKDATA, pid, (long)&word, 8), EFAULT);
    fails("unknown request", request(0x7777, pid, 0, 0), EIO);
    fails("unknown set", request(PTRACE_GETREGSET, pid, 0x999, (long)&value), EINVAL);
    fails("bad options", request(PTRACE_SETOPTIONS, pid, 0, 1 << 30), EINVAL);
    fails("bad signal", request(PTRACE_CONT, pid, 0, 999), EIO);
    fails("second tracer", request(PTRACE_ATTACH, pid, 0, 0), EPERM);
    fails("not seized", request(PTRACE_INTERRUPT, pid, 0, 0), EIO);
    fails("oneself", request(PTRACE_ATTACH, getpid(), 0, 0), EPERM);
    fails("nobody", request(PTRACE_ATTACH, 99999, 0, 0), ESRCH);
    fails("not a tracee", request(PTRACE_CONT, 1, 0, 0), ESRCH);
    unsigned long floats[33];
    struct iovec vector = {floats, sizeof floats};
    check("GETREGSET of floats", request(PTRACE_GETREGSET, pid, NT_PRFPREG, (long)&vector), 0);
    check("length of floats", vector.iov_len, 33 * 8);
    siginfo_t info;
    check("GETSIGINFO", request(PTRACE_GETSIGINFO, pid, 0, (long)&info), 0);
    check("si_signo", info.si_signo, SIGSTOP);
    check("si_code", info.si_code, SI_TKILL);
    uint64_t mask = 0;
    check("GETSIGMASK", request(PTRACE_GETSIGMASK, pid, 8, (long)&mask), 0);
    check("mask", mask, 0);
    char path[64], line[128];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    long tracer = -1;
    char state = 0;
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "TracerPid: %ld", &tracer);
        sscanf(line, "State: %c", &state);
    }
    if (file) {
        fclose(file);
        check("TracerPid", tracer, getpid());
        check("State", state, 't');
    }
    check("CONT", request(PTRACE_CONT, pid, 0, 0), 0);
    fails("not stopped, or ended", request(PTRACE_GETEVENTMSG, pid, 0, (long)&value), ESRCH);
    ended("exit", pid, 7 << 8);
    puts("memory and registers");
}

static void calls(void) {
    syscall(SYS_getpriority, 11, 22);
    _exit(syscall(SYS_getpriority, 1, 2) == 77 ? 3 : 4);
}

// Entry and exit stops; a changed call and a changed result ("Syscall-stops").
static void system_calls(void) {
    enum { TRAP = SIGTRAP | 0x80 };
    pid_t pid = child(calls);
    unsigned long registers[32];
    struct call_info info;
    check("SETOPTIONS", request(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD), 0);
    // raise() goes on with rt_sigprocmask on some systems: up to the first getpriority.
    do {
        request(PTRACE_SYSCALL, pid, 0, 0);
        stopped("stop at a call", pid, TRAP);
        request(GET_SYSCALL_INFO, pid, sizeof info, (long)&info);
    } while (info.op != 1 || info.data[0] != SYS_getpriority);
    check("first argument", info.data[1], 11);
    check("second argument", info.data[2], 22);
    get(pid, registers);
    check("a0 at the entry", registers[A0], -ENOSYS);
    check("a7", registers[A7], SYS_getpriority);
    check("pc", registers[PC], info.pc);
    request(PTRACE_SYSCALL, pid, 0, 0);
    stopped("exit stop", pid, TRAP);
    check("size", request(GET_SYSCALL_INFO, pid, sizeof info, (long)&info), 33);
    check("exit", info.op, 2);
    check("result", info.data[0], -EINVAL);
    check("is error", info.data[1] & 0xff, 1);
    request(PTRACE_SYSCALL, pid, 0, 0);
    stopped("second entry", pid, TRAP);
    // The call is skipped: its result is what the tracer leaves in a0.
    get(pid, registers);
    registers[A7] = -1;
    registers[A0] = 5;
    set(pid, registers);
    request(PTRACE_SYSCALL, pid, 0, 0);
    stopped("second exit", pid, TRAP);
    get(pid, registers);
    check("a0 of a skipped call", registers[A0], 5);
    registers[A0] = 77;
    set(pid, registers);
    request(PTRACE_CONT, pid, 0, 0);
    ended("changed result", pid, 3 << 8);
    puts("system calls");
}

static volatile int handled;
static void handle(int signal) { handled = signal; }

static void signals_body(void) {
    signal(SIGUSR1, handle);
    signal(SIGUSR2, handle);
    raise(SIGUSR1);
    if (handled) _exit(1);
    raise(SIGUSR1);
    if (handled != SIGUSR2) _exit(2);
    raise(SIGCHLD);
    raise(SIGTERM);
    _exit(3);
}

static void deliveries(void) {
    pid_t pid = child(signals_body);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("a signal", pid, SIGUSR1);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("the next", pid, SIGUSR1);
    request(PTRACE_CONT, pid, 0, SIGUSR2);
    // An ignored signal is seen, too.
    stopped("ignored", pid, SIGCHLD);
    // The one behind it is not delivered with it, which would stop the group.
    syscall(SYS_tkill, pid, SIGSTOP);
    request(PTRACE_CONT, pid, 0, SIGCHLD);
    stopped("behind an ignored one", pid, SIGSTOP);
    siginfo_t info;
    check("no group-stop", request(PTRACE_GETSIGINFO, pid, 0, (long)&info), 0);
    check("its sender", info.si_code, SI_TKILL);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("to end by", pid, SIGTERM);
    request(PTRACE_CONT, pid, 0, SIGTERM);
    ended("signal", pid, SIGTERM);
    puts("signals");
}

__attribute__((noinline)) static void target(void) { __asm__ volatile("nop; nop"); }
static void call_target(void) {
    target();
    _exit(9);
}

static void steps(void) {
    pid_t pid = child(call_target);
    unsigned long registers[32];
    long code = 0, address = (long)target & -8;
    request(PTRACE_PEEKTEXT, pid, address, (long)&code);
    int shift = ((long)target & 7) * 8;
    // c.ebreak
    long with = (code & ~(0xffffL << shift)) | 0x9002L << shift;
    check("breakpoint", request(PTRACE_POKETEXT, pid, address, with), 0);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("breakpoint", pid, SIGTRAP);
    get(pid, registers);
    check("pc of the breakpoint", registers[PC], (long)target);
    siginfo_t info;
    request(PTRACE_GETSIGINFO, pid, 0, (long)&info);
    check("TRAP_BRKPT", info.si_code, TRAP_BRKPT);
    request(PTRACE_POKETEXT, pid, address, code);
    check("SINGLESTEP", request(PTRACE_SINGLESTEP, pid, 0, 0), 0);
    stopped("step", pid, SIGTRAP);
    get(pid, registers);
    check("pc after the step", registers[PC] > (unsigned long)target && registers[PC] <= (unsigned long)target + 4, 1);
    request(PTRACE_CONT, pid, 0, 0);
    ended("after steps", pid, 9 << 8);
    puts("breakpoint and step");
}

static void forks(void) {
    pid_t pid = fork();
    if (pid == 0) _exit(5);
    int status;
    waitpid(pid, &status, 0);
    pid = vfork();
    if (pid == 0) _exit(6);
    waitpid(pid, &status, 0);
    _exit(WEXITSTATUS(status));
}

static void events(void) {
    pid_t pid = child(forks);
    unsigned long made = 0;
    request(PTRACE_SETOPTIONS, pid, 0,
            PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEVFORKDONE | PTRACE_O_TRACEEXIT);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("fork", pid, SIGTRAP | PTRACE_EVENT_FORK << 8);
    request(PTRACE_GETEVENTMSG, pid, 0, (long)&made);
    stopped("child of fork", made, SIGSTOP);
    request(PTRACE_CONT, made, 0, 0);
    stopped("exit of the child", made, SIGTRAP | PTRACE_EVENT_EXIT << 8);
    unsigned long code = 0;
    request(PTRACE_GETEVENTMSG, made, 0, (long)&code);
    check("code", code, 5 << 8);
    request(PTRACE_CONT, made, 0, 0);
    ended("child of fork", made, 5 << 8);
    request(PTRACE_CONT, pid, 0, 0);
    // SIGCHLD of the child, after this process has waited for it.
    stopped("SIGCHLD", pid, SIGCHLD);
    request(PTRACE_CONT, pid, 0, SIGCHLD);
    stopped("vfork", pid, SIGTRAP | PTRACE_EVENT_VFORK << 8);
    request(PTRACE_GETEVENTMSG, pid, 0, (long)&made);
    stopped("child of vfork", made, SIGSTOP);
    request(PTRACE_CONT, pid, 0, 0);
    check("DETACH", request(PTRACE_DETACH, made, 0, 0), 0);
    stopped("end of vfork", pid, SIGTRAP | PTRACE_EVENT_VFORK_DONE << 8);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("SIGCHLD again", pid, SIGCHLD);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("exit", pid, SIGTRAP | PTRACE_EVENT_EXIT << 8);
    request(PTRACE_CONT, pid, 0, 0);
    ended("parent", pid, 6 << 8);
    puts("events of processes");
}

// PTRACE_SEIZE does not stop; PTRACE_INTERRUPT does, whether the task waits or computes.
static void seize(int computes) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        while (computes) {}
        for (;;) pause();
    }
    check("SEIZE", request(PTRACE_SEIZE, pid, 0, PTRACE_O_EXITKILL), 0);
    check("INTERRUPT", request(PTRACE_INTERRUPT, pid, 0, 0), 0);
    stopped("interrupt", pid, SIGTRAP | 128 << 8);
    request(PTRACE_CONT, pid, 0, 0);
    check("INTERRUPT", request(PTRACE_INTERRUPT, pid, 0, 0), 0);
    stopped("interrupt again", pid, SIGTRAP | 128 << 8);
    check("DETACH", request(PTRACE_DETACH, pid, 0, 0), 0);
    check("ATTACH", request(PTRACE_ATTACH, pid, 0, 0), 0);
    stopped("attach", pid, SIGSTOP);
    kill(pid, SIGKILL);
    ended("killed in a stop", pid, SIGKILL);
    puts(computes ? "seize a task that computes" : "seize a task that waits");
}

// A task in a group-stop that listens: SIGCONT and PTRACE_INTERRUPT stop it again, other requests fail.
static void listens(void) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        for (;;) pause();
    }
    int status;
    check("SEIZE", request(PTRACE_SEIZE, pid, 0, PTRACE_O_EXITKILL), 0);
    fails("runs", request(PTRACE_LISTEN, pid, 0, 0), ESRCH);
    kill(pid, SIGSTOP);
    stopped("SIGSTOP", pid, SIGSTOP);
    fails("no group-stop", request(PTRACE_LISTEN, pid, 0, 0), EIO);
    request(PTRACE_CONT, pid, 0, SIGSTOP);
    stopped("group-stop", pid, SIGSTOP | 128 << 8);
    check("LISTEN", request(PTRACE_LISTEN, pid, 0, 0), 0);
    fails("listens", request(PTRACE_CONT, pid, 0, 0), ESRCH);
    fails("listens", request(PTRACE_LISTEN, pid, 0, 0), ESRCH);
    fails("listens", request(PTRACE_DETACH, pid, 0, 0), ESRCH);
    usleep(20000);
    check("nothing new", waitpid(pid, &status, __WALL | WNOHANG), 0);
    check("INTERRUPT", request(PTRACE_INTERRUPT, pid, 0, 0), 0);
    stopped("interrupted", pid, SIGSTOP | 128 << 8);
    check("LISTEN", request(PTRACE_LISTEN, pid, 0, 0), 0);
    kill(pid, SIGCONT);
    stopped("continues", pid, SIGTRAP | 128 << 8);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("SIGCONT", pid, SIGCONT);
    request(PTRACE_CONT, pid, 0, SIGSTOP);
    stopped("group-stop again", pid, SIGSTOP | 128 << 8);
    check("LISTEN", request(PTRACE_LISTEN, pid, 0, 0), 0);
    kill(pid, SIGKILL);
    ended("killed while it listens", pid, SIGKILL);
    puts("listens");
}

static void with_pending(void) {
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 3; i++) sigqueue(getpid(), SIGRTMIN + i, (union sigval){.sival_int = 40 + i});
    syscall(SYS_tgkill, getpid(), getpid(), SIGUSR2);
    raise(SIGSTOP);
    for (;;) pause();
}

// Pending signals of a task, and of its process.
static void peeks(void) {
    struct { uint64_t off; uint32_t flags; int32_t nr; } what = {0, 0, 8};
    siginfo_t found[8];
    pid_t pid = child(with_pending);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("it has signals", pid, SIGSTOP);
    check("one of the task", request(0x4209, pid, (long)&what, (long)found), 1);
    check("SIGUSR2", found[0].si_signo, SIGUSR2);
    what.flags = 1;
    check("of the process", request(0x4209, pid, (long)&what, (long)found), 3);
    check("the third", found[2].si_value.sival_int, 42);
    what.off = 1;
    what.nr = 1;
    check("the second", request(0x4209, pid, (long)&what, (long)found), 1);
    check("the second", found[0].si_signo, SIGRTMIN + 1);
    what.off = -1;
    check("beyond", request(0x4209, pid, (long)&what, (long)found), 0);
    what.nr = -1;
    fails("negative", request(0x4209, pid, (long)&what, (long)found), EINVAL);
    what.nr = 1;
    what.flags = 2;
    fails("unknown flag", request(0x4209, pid, (long)&what, (long)found), EINVAL);
    what = (typeof(what)){0, 1, 1};
    fails("no place", request(0x4209, pid, (long)&what, 8), EFAULT);
    kill(pid, SIGKILL);
    ended("killed", pid, SIGKILL);
    puts("pending signals");
}

static void killed_in_call(void) {
    pid_t pid = child(calls);
    request(PTRACE_SYSCALL, pid, 0, 0);
    stopped("entry", pid, SIGTRAP);
    kill(pid, SIGKILL);
    ended("killed at the entry", pid, SIGKILL);
    puts("killed in a system call");
}

// The end of a tracer lets its tracee go on, or kills it (PTRACE_O_EXITKILL).
static void tracer_ends(long options) {
    fflush(stdout);
    pid_t tracee = fork();
    if (tracee == 0) {
        for (;;) pause();
    }
    pid_t tracer = fork();
    if (tracer == 0) {
        if (request(PTRACE_SEIZE, tracee, 0, options)) _exit(1);
        if (request(PTRACE_INTERRUPT, tracee, 0, 0)) _exit(2);
        int status;
        if (waitpid(tracee, &status, __WALL) != tracee) _exit(3);
        _exit(0);
    }
    ended("tracer", tracer, 0);
    if (!options) kill(tracee, SIGTERM);
    ended("tracee", tracee, options ? SIGKILL : SIGTERM);
    puts(options ? "tracer ends and kills" : "tracer ends");
}

// A program of root with set-user-ID.
#define PRIVILEGED "/scratch/privileged"

// Executes it as another user, maybe traced. Returns its exit code.
static int execute(uid_t tracer, int is_traced, char *what) {
    pid_t middle = fork();
    if (middle == 0) {
        if (tracer != 0 && setuid(tracer) != 0) abort();
        pid_t pid = fork();
        if (pid == 0) {
            if (tracer == 0 && setuid(1000) != 0) abort();
            if (is_traced && request(PTRACE_TRACEME, 0, 0, 0) != 0) abort();
            execl(PRIVILEGED, "privileged", what, NULL);
            abort();
        }
        int status = 0;
        while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) request(PTRACE_CONT, pid, 0, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    int status = 0;
    waitpid(middle, &status, 0);
    return status >> 8;
}

// execve(2): set-user-ID has no effect for a tracee whose tracer has not the rights. capabilities(7):
// a tracer needs those of its tracee, or CAP_SYS_PTRACE.
static void privileges(void) {
    int from = open("/proc/self/exe", O_RDONLY), to = open(PRIVILEGED, O_CREAT | O_WRONLY, 0755);
    struct stat status;
    if (from < 0 || to < 0 || fstat(from, &status) != 0) abort();
    for (long left = status.st_size, done; left > 0; left -= done)
        if ((done = sendfile(to, from, NULL, left)) <= 0) abort();
    if (fchmod(to, 04755) != 0 || close(to) != 0) abort();
    check("set-user-ID", execute(1000, 0, "user"), 7);
    check("set-user-ID under a user's tracer", execute(1000, 1, "user"), 8);
    check("set-user-ID under a tracer of root", execute(0, 1, "user"), 7);
    check("a parent with fewer rights", execute(1000, 0, "trace"), 7);
    puts("privileges");
}

static int as_privileged(const char *what) {
    if (!strcmp(what, "user")) return geteuid() == 0 ? 7 : 8;
    return request(PTRACE_TRACEME, 0, 0, 0) == -1 && errno == EPERM ? 7 : 8;
}

int main(int count, char **arguments) {
    if (count > 1) return as_privileged(arguments[1]);
    privileges();
    fflush(stdout);
    memory();
    system_calls();
    deliveries();
    steps();
    events();
    seize(0);
    seize(1);
    listens();
    peeks();
    killed_in_call();
    tracer_ends(0);
    tracer_ends(PTRACE_O_EXITKILL);
    return failures != 0;
}
