// seccomp: strict mode, checks of filters, their actions, inheritance, threads.
#define _GNU_SOURCE
#include "check.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#ifdef __riscv
#define ARCH AUDIT_ARCH_RISCV64
#define RESULT(context) (context)->uc_mcontext.__gregs[REG_A0]
#else
#define ARCH AUDIT_ARCH_X86_64
#define RESULT(context) (context)->uc_mcontext.gregs[REG_RAX]
#endif
#define FIELD(name) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define ARGUMENT(n, high)                                                                    \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * n + 4 * high)
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define PROGRAM(array) (&(struct sock_fprog){LENGTH(array), array})

#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1
#endif

static long seccomp(unsigned operation, unsigned flags, void *argument) {
    return syscall(SYS_seccomp, operation, flags, argument);
}

// Adds a filter with this action for one system call.
static long filter(unsigned flags, int number, unsigned action) {
    struct sock_filter code[] = {
        FIELD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS),
        FIELD(nr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        RETURN(action),
        RETURN(SECCOMP_RET_ALLOW),
    };
    return seccomp(SECCOMP_SET_MODE_FILTER, flags, PROGRAM(code));
}

// The error of a system call; 0 if it succeeds.
static int error_of(long number) {
    errno = 0;
    return syscall(number, 0, 0, 0) < 0 ? errno : 0;
}

static void requests(void) {
    GIVES(prctl(PR_GET_SECCOMP), 0);
    FAILS(prctl(PR_SET_SECCOMP, 7, 0), EINVAL);
    FAILS(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 8), EFAULT);
    FAILS(seccomp(99, 0, NULL), EINVAL);
    FAILS(seccomp(SECCOMP_SET_MODE_STRICT, 1, NULL), EINVAL);
    FAILS(seccomp(SECCOMP_SET_MODE_STRICT, 0, &(int){0}), EINVAL);
    FAILS(seccomp(SECCOMP_SET_MODE_FILTER, 1u << 30, NULL), EINVAL);
    FAILS(seccomp(SECCOMP_SET_MODE_FILTER, 0, NULL), EFAULT);
    unsigned actions[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP,
                          SECCOMP_RET_ERRNO,        SECCOMP_RET_TRACE,       SECCOMP_RET_LOG,
                          SECCOMP_RET_ALLOW};
    for (size_t i = 0; i < LENGTH(actions); i++)
        GIVES(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &actions[i]), 0);
    unsigned unknown = 0x00010000;
    FAILS(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &unknown), EOPNOTSUPP);
    FAILS(seccomp(SECCOMP_GET_ACTION_AVAIL, 1, &unknown), EINVAL);
    FAILS(seccomp(SECCOMP_GET_ACTION_AVAIL, 0, NULL), EFAULT);
    // Notifications are a part of their own, which may be missing.
    char sizes[64];
    long result = seccomp(SECCOMP_GET_NOTIF_SIZES, 0, sizes);
    CHECK(result == 0 || errno == EINVAL);
    unsigned notify = SECCOMP_RET_USER_NOTIF;
    long available = seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &notify);
    CHECK(result ? available < 0 && errno == EOPNOTSUPP : available == 0);
    char text[256] = "";
    FILE *file = fopen("/proc/sys/kernel/seccomp/actions_avail", "r");
    CHECK(file && fgets(text, sizeof text, file));
    CHECK(strstr(text, "kill_process kill_thread trap errno "));
    if (file) fclose(file);
}

static void checks_programs(void) {
    struct sock_filter bad[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 0),
        BPF_STMT(BPF_LD | BPF_MEM, 0),
        BPF_STMT(BPF_ST, 16),
        BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0),
        BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 32),
        BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, 3),
        BPF_STMT(BPF_JMP | BPF_JA, 1),
        BPF_STMT(BPF_JMP | BPF_JA, -1),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_MISC | 0x40, 0),
        BPF_STMT(0x100 | BPF_LD, 0),
    };
    for (size_t i = 0; i < LENGTH(bad); i++) {
        struct sock_filter code[] = {bad[i], RETURN(SECCOMP_RET_ALLOW)};
        FAILS(seccomp(SECCOMP_SET_MODE_FILTER, 0, PROGRAM(code)), EINVAL);
    }
    struct sock_filter no_return[] = {FIELD(nr)};
    FAILS(seccomp(SECCOMP_SET_MODE_FILTER, 0, PROGRAM(no_return)), EINVAL);
    static struct sock_filter many[4097];
    for (size_t i = 0; i < LENGTH(many); i++) many[i] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
    FAILS(seccomp(SECCOMP_SET_MODE_FILTER, 0, PROGRAM(many)), EINVAL);
    FAILS(seccomp(SECCOMP_SET_MODE_FILTER, 0, &(struct sock_fprog){0, many}), EINVAL);
    FAILS(seccomp(SECCOMP_SET_MODE_FILTER, 0, &(struct sock_fprog){2, (void *)8}), EFAULT);
    CHILD_EXITS(0, {
        int done = 0;
        while (done < 9 && !seccomp(SECCOMP_SET_MODE_FILTER, 0, &(struct sock_fprog){4096, many})) done++;
        _exit(done == 0 || done == 9 || errno != ENOMEM);
    });
    // Without rights, a filter needs a promise to gain none.
    CHILD_EXITS(0, {
        if (setgid(1) || setuid(1)) _exit(1);
        if (filter(0, SYS_getppid, SECCOMP_RET_ERRNO | 5) != -1 || errno != EACCES) _exit(2);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) _exit(3);
        if (filter(0, SYS_getppid, SECCOMP_RET_ERRNO | 5)) _exit(4);
        _exit(error_of(SYS_getppid) != 5);
    });
}

static void fails_calls(void) {
    CHILD_EXITS(0, {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) != -1) _exit(1);
        if (filter(0, SYS_getppid, SECCOMP_RET_ERRNO | EBADFD)) _exit(2);
        if (error_of(SYS_getppid) != EBADFD || error_of(SYS_getpid)) _exit(3);
        // Of equal actions, the newest counts.
        if (filter(0, SYS_getppid, SECCOMP_RET_ERRNO | 0)) _exit(4);
        if (syscall(SYS_getppid) != 0) _exit(5);
        if (filter(0, SYS_getppid, SECCOMP_RET_ERRNO | 0xffff)) _exit(6);
        if (error_of(SYS_getppid) != 4095) _exit(7);
        if (filter(0, SYS_getuid, SECCOMP_RET_LOG) || error_of(SYS_getuid)) _exit(8);
        if (filter(0, SYS_getuid, SECCOMP_RET_TRACE | 3)) _exit(9);
        if (error_of(SYS_getuid) != ENOSYS) _exit(10);
        // A weaker action does not replace a stronger one.
        if (filter(0, SYS_getuid, SECCOMP_RET_ALLOW) || error_of(SYS_getuid) != ENOSYS) _exit(11);
        if (filter(SECCOMP_FILTER_FLAG_LOG | SECCOMP_FILTER_FLAG_SPEC_ALLOW, SYS_getgid,
                   SECCOMP_RET_ERRNO | 6)) _exit(12);
        if (error_of(SYS_getgid) != 6 || prctl(PR_GET_SECCOMP) != 2) _exit(13);
        if (seccomp(SECCOMP_SET_MODE_STRICT, 0, NULL) != -1 || errno != EINVAL) _exit(14);
        int mode = 0; int filters = 0;
        char line[256];
        FILE *file = fopen("/proc/self/status", "r");
        while (fgets(line, sizeof line, file)) {
            sscanf(line, "Seccomp: %d", &mode);
            sscanf(line, "Seccomp_filters: %d", &filters);
        }
        _exit(mode != 2 || filters != 7);
    });
    // Both halves of arguments, scratch memory, arithmetic.
    CHILD_EXITS(0, {
        struct sock_filter code[] = {
            FIELD(nr),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 1, 0),
            RETURN(SECCOMP_RET_ALLOW),
            ARGUMENT(1, 1),
            BPF_STMT(BPF_ST, 3),
            ARGUMENT(5, 0),
            BPF_STMT(BPF_LDX | BPF_MEM, 3),
            BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0),
            BPF_STMT(BPF_ALU | BPF_OR | BPF_K, SECCOMP_RET_ERRNO),
            BPF_STMT(BPF_RET | BPF_A, 0),
        };
        if (seccomp(SECCOMP_SET_MODE_FILTER, 0, PROGRAM(code))) _exit(1);
        if (syscall(SYS_getppid, 0, 0x300000009, 0, 0, 0, 0x900000004) != -1) _exit(2);
        _exit(errno != 7);
    });
    // Calls that Linux does not have are filtered too.
    CHILD_EXITS(0, _exit(filter(0, 5000, SECCOMP_RET_ERRNO | 9) || error_of(5000) != 9));
}

static volatile int traps, trap_error, trap_call;

static void trapped(int signal, siginfo_t *info, void *context) {
    (void)signal;
    traps += info->si_code == SYS_SECCOMP && info->si_arch == (unsigned)ARCH && info->si_call_addr;
    trap_error = info->si_errno;
    trap_call = info->si_syscall;
    RESULT((ucontext_t *)context) = 4711;
}

static void handle(void) {
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
}

static void *calls(void *number) {
    syscall((long)number, 0, 0, 0);
    return NULL;
}

static void ends_programs(void) {
    CHILD_EXITS(0, {
        handle();
        if (filter(0, SYS_getppid, SECCOMP_RET_TRAP | 123)) _exit(1);
        for (int i = 1; i < 3; i++)
            if (syscall(SYS_getppid) != 4711 || traps != i) _exit(2);
        _exit(trap_error != 123 || trap_call != SYS_getppid);
    });
    CHILD_DIES(SIGSYS, filter(0, SYS_getppid, SECCOMP_RET_TRAP); error_of(SYS_getppid));
    CHILD_DIES(SIGSYS, {
        handle();
        sigset_t set;
        sigemptyset(&set), sigaddset(&set, SIGSYS), sigprocmask(SIG_BLOCK, &set, NULL);
        filter(0, SYS_getppid, SECCOMP_RET_TRAP);
        error_of(SYS_getppid);
    });
    CHILD_DIES(SIGSYS, signal(SIGSYS, SIG_IGN); filter(0, SYS_getppid, SECCOMP_RET_TRAP);
               error_of(SYS_getppid));
    CHILD_DIES(SIGSYS, handle(); filter(0, SYS_getppid, SECCOMP_RET_KILL_PROCESS);
               error_of(SYS_getppid));
    CHILD_DIES(SIGSYS, handle(); filter(0, SYS_getppid, SECCOMP_RET_KILL_THREAD);
               error_of(SYS_getppid));
    // An unknown action.
    CHILD_DIES(SIGSYS, filter(0, SYS_getppid, 0x00010000); error_of(SYS_getppid));
    CHILD_DIES(SIGSYS, {
        pthread_t thread;
        filter(0, SYS_getppid, SECCOMP_RET_KILL_PROCESS);
        pthread_create(&thread, NULL, calls, (void *)SYS_getppid);
        pthread_join(thread, NULL);
    });
    CHILD_EXITS(7, {
        pthread_t thread;
        filter(0, SYS_getppid, SECCOMP_RET_KILL_THREAD);
        pthread_create(&thread, NULL, calls, (void *)SYS_getppid);
        pthread_join(thread, NULL);
        _exit(7);
    });
    CHILD_EXITS(5, {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) _exit(1);
        if (write(1, "", 0)) syscall(SYS_exit, 2);
        syscall(SYS_exit, 5);
    });
    CHILD_DIES(SIGKILL, seccomp(SECCOMP_SET_MODE_STRICT, 0, NULL); error_of(SYS_getpid));
    CHILD_DIES(SIGKILL, prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT); _exit(0));
}

static void inherits(void) {
    CHILD_EXITS(0, {
        filter(0, SYS_getppid, SECCOMP_RET_ERRNO | 9);
        int status = status_of(CHILD(_exit(error_of(SYS_getppid) != 9)));
        if (status) _exit(1);
        execl("/proc/self/exe", "conformance", "seccomp", "filtered", NULL);
        _exit(3);
    });
}

static int ready[2], go[2];

// A thread, with a filter of its own if the argument says so, that waits and then makes a call.
static void *waits(void *own) {
    char byte;
    if (own && filter(0, SYS_getuid, SECCOMP_RET_ERRNO | 8)) return (void *)-1;
    int tid = syscall(SYS_gettid);
    if (write(ready[1], &tid, sizeof tid) != sizeof tid || read(go[0], &byte, 1) != 1) return (void *)-2;
    return (void *)(long)error_of(SYS_getppid);
}

static void threads(void) {
    CHILD_EXITS(0, {
        pthread_t thread;
        void *result;
        int tid;
        if (pipe(ready) || pipe(go)) _exit(1);
        pthread_create(&thread, NULL, waits, NULL);
        if (read(ready[0], &tid, sizeof tid) != sizeof tid) _exit(2);
        // Without the flag, only the caller has the filter.
        if (filter(0, SYS_getgid, SECCOMP_RET_ERRNO | 3)) _exit(3);
        if (filter(SECCOMP_FILTER_FLAG_TSYNC, SYS_getppid, SECCOMP_RET_ERRNO | 4)) _exit(4);
        if (write(go[1], "x", 1) != 1) _exit(5);
        pthread_join(thread, &result);
        _exit((long)result != 4);
    });
    CHILD_EXITS(0, {
        pthread_t thread;
        void *result;
        int tid;
        if (pipe(ready) || pipe(go)) _exit(1);
        pthread_create(&thread, NULL, waits, (void *)1);
        if (read(ready[0], &tid, sizeof tid) != sizeof tid) _exit(2);
        if (filter(SECCOMP_FILTER_FLAG_TSYNC, SYS_getppid, SECCOMP_RET_ERRNO | 4) != tid) _exit(3);
        unsigned flags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH;
        if (filter(flags, SYS_getppid, SECCOMP_RET_ERRNO | 4) != -1 || errno != ESRCH) _exit(4);
        if (error_of(SYS_getppid)) _exit(5);
        if (write(go[1], "x", 1) != 1) _exit(6);
        pthread_join(thread, &result);
        _exit(result != NULL);
    });
}

int main(int count, char **arguments) {
    if (!strcmp(arguments[count - 1], "filtered"))
        return prctl(PR_GET_SECCOMP) != 2 || error_of(SYS_getppid) != 9;
    enter(count, arguments);
    requests();
    checks_programs();
    fails_calls();
    ends_programs();
    inherits();
    threads();
    // Nothing of this reached the program itself.
    GIVES(prctl(PR_GET_SECCOMP), 0);
    return finish("seccomp");
}
