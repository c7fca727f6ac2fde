// Tracers and tracees with filters of `seccomp`, several threads and different rights, and tracers that end:
// the wait status that ptrace(2) defines.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "../include/tracing.h"

#define ASKED (PTRACE_EVENT_SECCOMP << 8 | SIGTRAP)

// Makes a filter decide about `number`; other calls are allowed.
static void decide(long number, unsigned what) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, what),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) abort();
}

static void nothing(void) {}

static void handle(int signal) { (void)signal; }

static void filtered(void) {
    decide(SYS_getpriority, SECCOMP_RET_TRACE | 9);
    decide(SYS_getsid, SECCOMP_RET_ERRNO | 5);
    // Each call has 2 as its first argument.
    long served = syscall(SYS_getpriority, 2, 0), skipped = syscall(SYS_getpriority, 2, 0);
    long unasked = syscall(SYS_getpriority, 2, 0);
    int error = errno;
    long refused = syscall(SYS_getsid, 2);
    _exit(served == 20 && skipped == 123 && unasked == -1 && error == ENOSYS && refused == -1 && errno == 5
              ? 4
              : 1);
}

static void calls_info(pid_t pid, int op, uint64_t number, uint64_t argument, uint64_t data) {
    struct call_info info = {0};
    long length = request(GET_SYSCALL_INFO, pid, sizeof info, (long)&info);
    check("length of the information", length, op == 3 ? 84 : 80);
    check("kind of stop", info.op, op);
    check("number", info.data[0], number);
    check("argument", info.data[1], argument);
    check("data of the filter", info.data[7], data);
}

// Filters that ask the tracer, which comes behind the start of the call, and filters that refuse.
static void asks(void) {
    pid_t pid = child(filtered);
    unsigned long registers[32], data = 0;
    request(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("asked", pid, ASKED);
    request(PTRACE_GETEVENTMSG, pid, 0, (long)&data);
    check("data", data, 9);
    calls_info(pid, 3, SYS_getpriority, 2, 9);
    get(pid, registers);
    check("no result", registers[A0], -ENOSYS);
    request(PTRACE_SYSCALL, pid, 0, 0);
    stopped("end of the call", pid, SIGTRAP | 0x80);
    get(pid, registers);
    check("result", registers[A0], 20);
    request(PTRACE_SYSCALL, pid, 0, 0);
    stopped("start of the next one", pid, SIGTRAP | 0x80);
    calls_info(pid, 1, SYS_getpriority, 2, 0);
    request(PTRACE_SYSCALL, pid, 0, 0);
    stopped("asked after the start", pid, ASKED);
    get(pid, registers);
    registers[A7] = -1;
    registers[A0] = 123;
    set(pid, registers);
    request(PTRACE_SYSCALL, pid, 0, 0);
    stopped("end of the replaced call", pid, SIGTRAP | 0x80);
    request(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD);
    for (int i = 0; i < 2; i++) {
        request(PTRACE_SYSCALL, pid, 0, 0);
        stopped("start", pid, SIGTRAP | 0x80);
        calls_info(pid, 1, i ? SYS_getsid : SYS_getpriority, 2, 0);
        request(PTRACE_SYSCALL, pid, 0, 0);
        stopped("end of the refused call", pid, SIGTRAP | 0x80);
        get(pid, registers);
        check("error", registers[A0], i ? -5 : -ENOSYS);
    }
    request(PTRACE_CONT, pid, 0, 0);
    ended("asks", pid, 4 << 8);
    puts("filters ask the tracer");
}

static void filtered_once(void) {
    decide(SYS_getpriority, SECCOMP_RET_TRACE);
    long served = syscall(SYS_getpriority, 2, 0);
    _exit(served == 20 && syscall(SYS_getpriority, 2, 0) == -1 ? 4 : 1);
}

// A tracer that goes away lets the call for which it was asked be served.
static void asked_and_left(void) {
    pid_t pid = child(filtered_once);
    request(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESECCOMP);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("asked", pid, ASKED);
    check("DETACH", request(PTRACE_DETACH, pid, 0, 0), 0);
    ended("asked and left", pid, 4 << 8);
    // The end of the process is told behind the question for its last call.
    pid = child(nothing);
    request(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEEXIT);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("end", pid, SIGTRAP | PTRACE_EVENT_EXIT << 8);
    request(PTRACE_CONT, pid, 0, 0);
    ended("nothing", pid, 7 << 8);
    puts("a tracer that was asked leaves");
}

static volatile pid_t other_thread;

static void *waits(void *unused) {
    (void)unused;
    other_thread = syscall(SYS_gettid);
    for (;;) pause();
    return NULL;
}

static void *executes(void *unused) {
    (void)unused;
    execl("/proc/self/exe", "ptrace", "executed", NULL);
    abort();
}

static void thread_executes(void) {
    pthread_t threads[2];
    if (pthread_create(&threads[0], NULL, waits, NULL)) abort();
    if (pthread_create(&threads[1], NULL, executes, NULL)) abort();
    for (;;) pause();
}

// The thread that executes a program gets the number of its process.
static void exec_of_thread(void) {
    pid_t pid = child(thread_executes);
    unsigned long threads[2] = {0}, former = 0;
    int status = 0;
    request(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC);
    for (int i = 0; i < 2; i++) {
        request(PTRACE_CONT, pid, 0, 0);
        stopped("new thread", pid, SIGTRAP | PTRACE_EVENT_CLONE << 8);
        request(PTRACE_GETEVENTMSG, pid, 0, (long)&threads[i]);
        stopped("first stop of the thread", threads[i], SIGSTOP);
        request(PTRACE_CONT, threads[i], 0, 0);
    }
    request(PTRACE_CONT, pid, 0, 0);
    ended("the other thread", threads[0], 0);
    stopped("program", pid, SIGTRAP | PTRACE_EVENT_EXEC << 8);
    request(PTRACE_GETEVENTMSG, pid, 0, (long)&former);
    check("former number", former, threads[1]);
    fails("former thread", request(PTRACE_CONT, threads[1], 0, 0), ESRCH);
    request(PTRACE_CONT, pid, 0, 0);
    ended("program", pid, 12 << 8);
    fails("nothing more", waitpid(-1, &status, __WALL), ECHILD);
    puts("a thread executes a program");
}

// A signal that stops a process stops each of its threads.
static void group_stops(void) {
    fflush(stdout);
    int status;
    volatile pid_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, waits, NULL)) abort();
        while (!other_thread) usleep(1000);
        *shared = other_thread;
        for (;;) pause();
    }
    while (!*shared) usleep(1000);
    pid_t thread = *shared;
    check("SEIZE", request(PTRACE_SEIZE, pid, 0, PTRACE_O_EXITKILL), 0);
    check("SEIZE of the thread", request(PTRACE_SEIZE, thread, 0, 0), 0);
    kill(pid, SIGSTOP);
    pid_t first = waitpid(-1, &status, __WALL), second = first == pid ? thread : pid;
    check("SIGSTOP", status, SIGSTOP << 8 | 0x7f);
    request(PTRACE_CONT, first, 0, SIGSTOP);
    stopped("group-stop of the first", first, SIGSTOP | 128 << 8);
    stopped("group-stop of the second", second, SIGSTOP | 128 << 8);
    check("LISTEN", request(PTRACE_LISTEN, first, 0, 0), 0);
    check("LISTEN", request(PTRACE_LISTEN, second, 0, 0), 0);
    kill(pid, SIGCONT);
    stopped("continues", first, SIGTRAP | 128 << 8);
    stopped("continues too", second, SIGTRAP | 128 << 8);
    request(PTRACE_CONT, first, 0, 0);
    request(PTRACE_CONT, second, 0, 0);
    first = waitpid(-1, &status, __WALL);
    check("SIGCONT", status, SIGCONT << 8 | 0x7f);
    request(PTRACE_CONT, first, 0, SIGCONT);
    // A thread that stands in another stop comes to the group-stop afterwards.
    check("INTERRUPT", request(PTRACE_INTERRUPT, thread, 0, 0), 0);
    stopped("interrupt", thread, SIGTRAP | 128 << 8);
    kill(pid, SIGSTOP);
    stopped("SIGSTOP again", pid, SIGSTOP);
    request(PTRACE_CONT, pid, 0, SIGSTOP);
    stopped("group-stop of the process", pid, SIGSTOP | 128 << 8);
    request(PTRACE_CONT, thread, 0, 0);
    stopped("group-stop of the thread", thread, SIGSTOP | 128 << 8);
    kill(pid, SIGCONT);
    request(PTRACE_CONT, pid, 0, 0);
    stopped("continues once more", pid, SIGTRAP | 128 << 8);
    check("LISTEN", request(PTRACE_LISTEN, thread, 0, 0), 0);
    stopped("the thread too", thread, SIGTRAP | 128 << 8);
    kill(pid, SIGKILL);
    ended("killed thread", thread, SIGKILL);
    ended("killed", pid, SIGKILL);
    puts("group-stops of threads");
}

// What a user may attach to.
static void rights(void) {
    fflush(stdout);
    pid_t own = fork();
    if (own == 0) {
        if (setuid(1000)) abort();
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
        for (;;) pause();
    }
    pid_t closed = fork();
    if (closed == 0) {
        if (setuid(1000)) abort();
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        for (;;) pause();
    }
    usleep(50000);
    pid_t user = fork();
    if (user == 0) {
        if (setuid(1000)) abort();
        failures = 0;
        fails("process of root", request(PTRACE_ATTACH, getppid(), 0, 0), EPERM);
        fails("not dumpable", request(PTRACE_SEIZE, closed, 0, 0), EPERM);
        fails("itself", request(PTRACE_SEIZE, getpid(), 0, 0), EPERM);
        fails("nobody", request(PTRACE_SEIZE, 999999, 0, 0), ESRCH);
        fails("unknown option", request(PTRACE_SEIZE, own, 0, 1 << 30), EIO);
        check("its own", request(PTRACE_SEIZE, own, 0, 0), 0);
        fails("twice", request(PTRACE_ATTACH, own, 0, 0), EPERM);
        _exit(failures ? 1 : 3);
    }
    ended("user", user, 3 << 8);
    check("root", request(PTRACE_SEIZE, closed, 0, 0), 0);
    for (int i = 0; i < 2; i++) {
        kill(i ? own : closed, SIGKILL);
        ended("killed", i ? own : closed, SIGKILL);
    }
    puts("rights to attach");
}

// Where a tracee stands when its tracer ends.
enum { IN_SIGNAL, AT_START, AT_END, IN_EVENT, IN_GROUP_STOP, LISTENS, STATES };

static void calls_and_ends(void) {
    for (int i = 0; i < 3; i++) syscall(SYS_getppid);
    _exit(6);
}

static void trace_until(int state, pid_t pid) {
    int status;
    if (request(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEEXIT) || kill(pid, SIGCONT)) _exit(1);
    if (state == IN_GROUP_STOP || state == LISTENS) {
        kill(pid, SIGSTOP);
    }
    // SIGCONT ends its `sigwait`; it may be seen as a signal.
    for (int i = 0; i < 20; i++) {
        if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status)) _exit(2);
        int event = status >> 16, signal = WSTOPSIG(status);
        if (state == IN_SIGNAL && !event && signal == SIGUSR1) _exit(0);
        if (state == IN_EVENT && event == PTRACE_EVENT_EXIT) _exit(0);
        if (state == AT_START && !event && signal == SIGTRAP) _exit(0);
        if (state == AT_END && !event && signal == SIGTRAP && i > 2) _exit(0);
        if (event == PTRACE_EVENT_STOP && signal == SIGSTOP) {
            if (state == LISTENS) request(PTRACE_LISTEN, pid, 0, 0);
            _exit(0);
        }
        int passes = event || signal == SIGTRAP ? 0 : signal;
        request(state == AT_START || state == AT_END ? PTRACE_SYSCALL : PTRACE_CONT, pid, 0, passes);
    }
    _exit(3);
}

// A tracee goes on when its tracer ends, except that a stopped process stays stopped.
static void tracer_ends_in(int state) {
    fflush(stdout);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCONT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t tracee = fork();
    if (tracee == 0) {
        int signal;
        sigwait(&set, &signal);
        if (state == IN_SIGNAL) {
            struct sigaction ignore = {.sa_handler = handle};
            sigaction(SIGUSR1, &ignore, NULL);
            raise(SIGUSR1);
        }
        calls_and_ends();
    }
    pid_t tracer = fork();
    if (tracer == 0) trace_until(state, tracee);
    ended("tracer", tracer, 0);
    if (state == IN_GROUP_STOP || state == LISTENS) {
        int status = 0;
        check("stays stopped", waitpid(tracee, &status, WUNTRACED), tracee);
        check("stopped", status, SIGSTOP << 8 | 0x7f);
        kill(tracee, SIGCONT);
    }
    ended("tracee", tracee, 6 << 8);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    printf("tracer ends, state %d\n", state);
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "executed")) return 12;
    asks();
    asked_and_left();
    exec_of_thread();
    group_stops();
    rights();
    for (int state = 0; state < STATES; state++) tracer_ends_in(state);
    return failures != 0;
}
