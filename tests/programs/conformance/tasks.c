// Processes and threads: creation, waiting, groups, identity, futexes.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>

static long futex(uint32_t *word, int operation, uint32_t value, const struct timespec *timeout) {
    return syscall(SYS_futex, word, operation, value, timeout, NULL, ~0);
}

static void waiting(void) {
    int status;
    siginfo_t info;
    CHILD_EXITS(0, (void)0);
    CHILD_EXITS(77, _exit(77));
    CHILD_EXITS(1, _exit(257));
    CHILD_DIES(SIGKILL, raise(SIGKILL));
    CHILD_DIES(SIGTERM, raise(SIGTERM));
    CHILD_DIES(SIGABRT, abort());
    FAILS(wait(&status), ECHILD);
    FAILS(waitpid(99999, &status, 0), ECHILD);
    FAILS(waitpid(-1, &status, 1 << 20), EINVAL);
    pid_t child = CHILD(pause());
    GIVES(waitpid(child, &status, WNOHANG), 0);
    GIVES(kill(child, SIGSTOP), 0);
    GIVES(waitpid(child, &status, WUNTRACED), child);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    GIVES(kill(child, SIGCONT), 0);
    GIVES(waitpid(child, &status, WCONTINUED), child);
    CHECK(WIFCONTINUED(status));
    GIVES(kill(child, SIGKILL), 0);
    memset(&info, 0, sizeof info);
    GIVES(waitid(P_PID, child, &info, WEXITED | WNOWAIT), 0);
    CHECK(info.si_pid == child && info.si_code == CLD_KILLED && info.si_status == SIGKILL);
    GIVES(waitid(P_PID, child, &info, WEXITED), 0);
    FAILS(waitid(P_PID, child, &info, WEXITED), ECHILD);
    FAILS(waitid(P_PID, child, &info, 0), EINVAL);
    FAILS(kill(child, 0), ESRCH);
    FAILS(kill(getpid(), 65), EINVAL);
    GIVES(kill(getpid(), 0), 0);
    child = CHILD(_exit(3));
    struct rusage usage;
    GIVES(wait4(child, &status, 0, &usage), child);
    CHECK(usage.ru_utime.tv_sec >= 0);
    child = vfork();
    if (child == 0) _exit(4);
    GIVES(status_of(child), 4 << 8);
    // A parent that waits for its child by vfork can be killed.
    int ready[2], go[2];
    char byte;
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    child = CHILD({
        if (vfork() == 0) _exit(write(ready[1], "r", 1) != 1 || read(go[0], &byte, 1) != 1);
        // In qemu, it does not wait for its child.
        for (;;) pause();
    });
    GIVES(read(ready[0], &byte, 1), 1);
    GIVES(kill(child, SIGKILL), 0);
    GIVES(status_of(child), SIGKILL);
    GIVES(write(go[1], "g", 1), 1);
    // The orphan is a child of the first process.
    if (getpid() == 1) CHECK(wait(&status) > 0 && status == 0);
    for (int i = 0; i < 2; i++) CHECK(close(ready[i]) == 0 && close(go[i]) == 0);
}

static void families(void) {
    pid_t pid = getpid(), parent = getppid();
    CHECK(pid > 0 && parent >= 0);
    GIVES(syscall(SYS_gettid), pid);
    GIVES(getpgid(0), getpgrp());
    // 0: a session leader outside the PID namespace.
    CHECK(getsid(0) >= 0);
    FAILS(getpgid(99999), ESRCH);
    FAILS(getsid(99999), ESRCH);
    CHILD_EXITS(0, _exit(getppid() != pid));
    CHILD_EXITS(0, _exit(!(setsid() == getpid() && getpgrp() == getpid() && getsid(0) == getpid())));
    CHILD_EXITS(0, _exit(!(setpgid(0, 0) == 0 && getpgrp() == getpid())));
    CHILD_EXITS(0, setpgid(0, 0); _exit(!(setsid() == -1 && errno == EPERM)));
    FAILS(setpgid(99999, 0), ESRCH);
    FAILS(setpgid(0, -1), EINVAL);
    // An orphan gets another parent.
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHILD_EXITS(0, pid_t parent_of_orphan = getpid(); if (fork() == 0) {
        usleep(30000);
        int moved = getppid() != parent_of_orphan;
        _exit(write(ends[1], &moved, sizeof moved) < 0);
    });
    int moved = 0;
    GIVES(read(ends[0], &moved, sizeof moved), sizeof moved);
    CHECK(moved);
    close(ends[0]), close(ends[1]);
    // The first process of a PID namespace has the orphan.
    if (pid == 1) CHECK(wait(NULL) > 0);
}

static int nothing(void *unused) {
    (void)unused;
    return 0;
}

static volatile sig_atomic_t handled;

static void handle(int signal) { handled = signal; }

// The process is the first one of its PID namespace. Returns 0, or the number of what is wrong.
static int is_first(void) {
    static char stack[1 << 16] __attribute__((aligned(16)));
    int status;
    if (getpid() != 1 || getppid() != 0) return 1;
    if (clone(nothing, stack + sizeof stack, CLONE_PARENT | SIGCHLD, NULL) != -1 || errno != EINVAL)
        return 2;
    // Orphans are its children.
    pid_t middle = CHILD(if (fork() == 0) {
        while (getppid() != 1) usleep(1000);
        _exit(9);
    });
    for (int i = 0; i < 2; i++) {
        pid_t pid = wait(&status);
        if (pid <= 0 || status != (pid == middle ? 0 : 9 << 8)) return 3;
    }
    // A zombie that its parent has not waited for, too.
    middle = CHILD(pid_t zombie = fork(); if (zombie == 0) _exit(8);
                   siginfo_t info; waitid(P_PID, zombie, &info, WEXITED | WNOWAIT));
    for (int i = 0; i < 2; i++) {
        pid_t pid = wait(&status);
        if (pid <= 0 || status != (pid == middle ? 0 : 8 << 8)) return 4;
    }
    if (wait(&status) != -1 || errno != ECHILD) return 5;
    // A signal for all processes does not reach it, nor the sender.
    pid_t other = CHILD(pause());
    signal(SIGTERM, handle);
    pid_t sender = CHILD(_exit(kill(-1, SIGTERM) != 0));
    if (waitpid(sender, &status, 0) != sender || status != 0) return 6;
    if (waitpid(other, &status, 0) != other || !WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM)
        return 7;
    if (handled || kill(-1, SIGTERM) != -1 || errno != ESRCH) return 8;
    // One for itself does.
    if (kill(1, SIGTERM) != 0 || handled != SIGTERM) return 9;
    signal(SIGTERM, SIG_DFL);
    return 0;
}

static void first(void) {
    if (getpid() == 1) {
        GIVES(is_first(), 0);
        return;
    }
    // Where this process may make a PID namespace.
    CHILD_EXITS(0, {
        if (unshare(CLONE_NEWPID)) _exit(0);
        int status = status_of(CHILD(_exit(is_first())));
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
    });
}

static void identity(void) {
    uid_t real, effective, saved;
    GIVES(getresuid(&real, &effective, &saved), 0);
    CHECK(real == getuid() && effective == geteuid());
    FAILS(getresuid((void *)8, &effective, &saved), EFAULT);
    CHECK(getgroups(0, NULL) >= 0);
    FAILS(getgroups(-1, NULL), EINVAL);
    struct utsname names;
    GIVES(uname(&names), 0);
    CHECK(!strcmp(names.sysname, "Linux"));
    char name[16] = "";
    GIVES(prctl(PR_SET_NAME, "a name that is too long"), 0);
    GIVES(prctl(PR_GET_NAME, name), 0);
    CHECK(!strcmp(name, "a name that is "));
    GIVES(prctl(PR_SET_DUMPABLE, 0), 0);
    GIVES(prctl(PR_GET_DUMPABLE), 0);
    GIVES(prctl(PR_SET_DUMPABLE, 1), 0);
    FAILS(prctl(123456), EINVAL);
    GIVES(getpriority(PRIO_PROCESS, 0), 0);
    CHILD_EXITS(0, _exit(!(setpriority(PRIO_PROCESS, 0, 5) == 0 && getpriority(PRIO_PROCESS, 0) == 5)));
    FAILS(getpriority(99, 0), EINVAL);
    GIVES(sched_getscheduler(0), SCHED_OTHER);
    GIVES(sched_get_priority_max(SCHED_FIFO), 99);
    GIVES(sched_get_priority_min(SCHED_FIFO), 1);
    FAILS(sched_get_priority_max(99), EINVAL);
    cpu_set_t set;
    GIVES(sched_getaffinity(0, sizeof set, &set), 0);
    CHECK(CPU_COUNT(&set) >= 1);
    GIVES(sched_setaffinity(0, sizeof set, &set), 0);
    CPU_ZERO(&set);
    FAILS(sched_setaffinity(0, sizeof set, &set), EINVAL);
    GIVES(sched_yield(), 0);
}

#ifdef __riscv
// CPUs with given properties: RISCV_HWPROBE_WHICH_CPUS (Documentation/arch/riscv/hwprobe.rst).
static void probing(void) {
    enum { HWPROBE = 258, WHICH_CPUS = 1, MVENDORID = 0, BASE_BEHAVIOR = 3, IMA_EXT_0 = 4 };
    struct {
        int64_t key;
        uint64_t value;
    } pairs[2] = {{BASE_BEHAVIOR, 0}, {IMA_EXT_0, 0}};
    GIVES(syscall(HWPROBE, pairs, 2, 0, NULL, 0), 0);
    uint64_t extensions = pairs[1].value;
    CHECK(pairs[0].value == 1 && (extensions & 1));
    // qemu supports no flags.
    if (emulated) return;
    cpu_set_t all, set;
    GIVES(sched_getaffinity(0, sizeof all, &all), 0);
    // An empty set means all CPUs; a subset of their extensions matches.
    CPU_ZERO(&set);
    pairs[1].value = 1;
    GIVES(syscall(HWPROBE, pairs, 2, sizeof set, &set, WHICH_CPUS), 0);
    CHECK(CPU_EQUAL(&set, &all));
    CHECK(pairs[1].key == IMA_EXT_0 && pairs[1].value == 1);
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    GIVES(syscall(HWPROBE, pairs, 2, sizeof set, &set, WHICH_CPUS), 0);
    CHECK(CPU_COUNT(&set) == 1 && CPU_ISSET(0, &set));
    pairs[1].value = ~extensions;
    GIVES(syscall(HWPROBE, pairs, 2, sizeof set, &set, WHICH_CPUS), 0);
    GIVES(CPU_COUNT(&set), 0);
    // A value that is not a bit mask must be equal.
    pairs[1].key = MVENDORID;
    pairs[1].value = 12345;
    GIVES(syscall(HWPROBE, pairs, 2, sizeof set, &set, WHICH_CPUS), 0);
    GIVES(CPU_COUNT(&set), 0);
    // No CPU has an unknown property.
    pairs[0].key = 1 << 20;
    GIVES(syscall(HWPROBE, pairs, 1, sizeof set, &set, WHICH_CPUS), 0);
    CHECK(pairs[0].key == -1 && CPU_COUNT(&set) == 0);
    FAILS(syscall(HWPROBE, pairs, 1, 0, &set, WHICH_CPUS), EINVAL);
    FAILS(syscall(HWPROBE, pairs, 1, sizeof set, NULL, WHICH_CPUS), EINVAL);
    FAILS(syscall(HWPROBE, pairs, 1, sizeof set, (void *)8, WHICH_CPUS), EFAULT);
}
#else
static void probing(void) {}
#endif

// The result of a scheduling policy with this priority, 0 or an error.
static int schedule(int policy, int priority) {
    struct sched_param parameters = {.sched_priority = priority};
    return sched_setscheduler(0, policy, &parameters) ? errno : 0;
}

static int priority(void) {
    struct sched_param parameters = {.sched_priority = -1};
    return sched_getparam(0, &parameters) ? -1 : parameters.sched_priority;
}

static void policies(void) {
    struct timespec slice;
    GIVES(schedule(SCHED_BATCH, 0), 0);
    GIVES(sched_getscheduler(0), SCHED_BATCH);
    CHILD_EXITS(0, _exit(sched_getscheduler(0) != SCHED_BATCH));
    GIVES(schedule(SCHED_BATCH, 1), EINVAL);
    GIVES(schedule(SCHED_FIFO, 0), EINVAL);
    GIVES(schedule(SCHED_BATCH | SCHED_RESET_ON_FORK, 0), 0);
    GIVES(sched_getscheduler(0), SCHED_BATCH | SCHED_RESET_ON_FORK);
    GIVES(setpriority(PRIO_PROCESS, 0, 3), 0);
    CHILD_EXITS(0, _exit(sched_getscheduler(0) != SCHED_BATCH || getpriority(PRIO_PROCESS, 0) != 3));
    // The child does not inherit the flag.
    CHILD_EXITS(0, GIVES(setpriority(PRIO_PROCESS, 0, -3), 0);
                GIVES(schedule(SCHED_OTHER | SCHED_RESET_ON_FORK, 0), 0);
                CHILD_EXITS(0, _exit(getpriority(PRIO_PROCESS, 0) != 0)); _exit(failures != 0));
    GIVES(schedule(SCHED_OTHER, 0), 0);
    GIVES(setpriority(PRIO_PROCESS, 0, 0), 0);
    // A control group may have no budget for real time.
    CHILD_EXITS(0, int refused = schedule(SCHED_RR, 7); if (refused) _exit(refused != EPERM); if (priority() != 7) _exit(2);
                CHILD_EXITS(0, _exit(sched_getscheduler(0) != SCHED_RR || priority() != 7));
                struct sched_param other = {.sched_priority = 9};
                if (sched_setparam(0, &other) || priority() != 9) _exit(3);
                if (schedule(SCHED_RR | SCHED_RESET_ON_FORK, 7)) _exit(4);
                CHILD_EXITS(0, _exit(sched_getscheduler(0) != SCHED_OTHER || priority() != 0));
                _exit(failures != 0));
    GIVES(sched_rr_get_interval(0, &slice), 0);
    CHECK(slice.tv_sec == 0 && slice.tv_nsec >= 0);
    FAILS(sched_rr_get_interval(-1, &slice), EINVAL);
    FAILS(sched_rr_get_interval(99999, &slice), ESRCH);
    FAILS(getpriority(PRIO_PGRP, -1), ESRCH);
}

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
    uint32_t least, most;
};

static void attributes(void) {
    struct attributes got = {0}, new = {.size = 48, .policy = SCHED_BATCH, .nice = 2};
    GIVES(syscall(SYS_sched_setattr, 0, &new, 0), 0);
    GIVES(sched_getscheduler(0), SCHED_BATCH);
    GIVES(getpriority(PRIO_PROCESS, 0), 2);
    GIVES(syscall(SYS_sched_getattr, 0, &got, 48, 0), 0);
    CHECK(got.size == 48 && got.policy == SCHED_BATCH && got.nice == 2 && got.priority == 0);
    GIVES(syscall(SYS_sched_getattr, 0, &got, sizeof got, 0), 0);
    CHECK(got.size >= 48 && got.size <= sizeof got);
    FAILS(syscall(SYS_sched_getattr, 0, &got, 47, 0), EINVAL);
    FAILS(syscall(SYS_sched_getattr, 0, &got, 48, 1), EINVAL);
    FAILS(syscall(SYS_sched_getattr, 99999, &got, 48, 0), ESRCH);
    FAILS(syscall(SYS_sched_getattr, 0, NULL, 48, 0), EINVAL);
    FAILS(syscall(SYS_sched_setattr, 0, NULL, 0), EINVAL);
    FAILS(syscall(SYS_sched_setattr, 0, &new, 1), EINVAL);
    FAILS(syscall(SYS_sched_setattr, 99999, &new, 0), ESRCH);
    new.policy = 99;
    FAILS(syscall(SYS_sched_setattr, 0, &new, 0), EINVAL);
    new = (struct attributes){.size = 48, .policy = SCHED_FIFO};
    FAILS(syscall(SYS_sched_setattr, 0, &new, 0), EINVAL);
    new = (struct attributes){.size = 40};
    FAILS(syscall(SYS_sched_setattr, 0, &new, 0), E2BIG);
    new = (struct attributes){.size = 48, .flags = 1 << 20};
    FAILS(syscall(SYS_sched_setattr, 0, &new, 0), EINVAL);
    new = (struct attributes){.size = 48};
    GIVES(syscall(SYS_sched_setattr, 0, &new, 0), 0);
    GIVES(getpriority(PRIO_PROCESS, 0), 0);
}

static uint32_t word, stage;

static void *sleeper(void *argument) {
    while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0) futex(&word, FUTEX_WAIT, 0, NULL);
    __atomic_store_n(&stage, 1, __ATOMIC_SEQ_CST);
    return argument;
}

static void *identify(void *argument) {
    *(pid_t *)argument = (pid_t)syscall(SYS_gettid);
    return (void *)7;
}

static void threads(void) {
    pthread_t thread;
    pid_t tid = 0;
    void *result;
    GIVES(pthread_create(&thread, NULL, identify, &tid), 0);
    GIVES(pthread_join(thread, &result), 0);
    CHECK(result == (void *)7 && tid > 0 && tid != getpid());
    struct timespec short_time = {0, 5000000}, bad = {0, -1};
    FAILS(futex(&word, FUTEX_WAIT, 1, NULL), EAGAIN);
    FAILS(futex(&word, FUTEX_WAIT, 0, &short_time), ETIMEDOUT);
    FAILS(futex(&word, FUTEX_WAIT, 0, &bad), EINVAL);
    FAILS(futex((uint32_t *)((char *)&word + 1), FUTEX_WAIT, 0, NULL), EINVAL);
    FAILS(futex((uint32_t *)8, FUTEX_WAIT, 0, NULL), EFAULT);
    FAILS(futex(&word, 99, 0, NULL), ENOSYS);
    GIVES(futex(&word, FUTEX_WAKE, 1, NULL), 0);
    GIVES(pthread_create(&thread, NULL, sleeper, NULL), 0);
    usleep(10000);
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    CHECK(futex(&word, FUTEX_WAKE, 100, NULL) <= 1);
    GIVES(pthread_join(thread, NULL), 0);
    GIVES(stage, 1);
    // Many threads from many functions.
    pthread_t many[50];
    pid_t tids[50];
    int made = 0;
    for (int i = 0; i < 50; i++) made += pthread_create(&many[i], NULL, identify, &tids[i]) == 0;
    for (int i = 0; i < made; i++) pthread_join(many[i], NULL);
    GIVES(made, 50);
    FAILS(syscall(SYS_tgkill, getpid(), 99999, 0), ESRCH);
    FAILS(syscall(SYS_tgkill, -1, 1, 0), EINVAL);
    GIVES(syscall(SYS_tgkill, getpid(), getpid(), 0), 0);
}

// The numbers from pid_max on, which no task has.
static void numbers(void) {
    enum { THREAD = 6, PROCESS = 2 };
    int fd = open("/dev/null", O_RDONLY);
    for (pid_t none = 1 << 22; none < (1 << 22) + 2; none++) {
        struct timespec time;
        struct sched_param parameters = {0};
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(0, &set);
        FAILS(syscall(SYS_tkill, none, 0), ESRCH);
        FAILS(syscall(SYS_tgkill, none, none, 0), ESRCH);
        FAILS(syscall(SYS_tgkill, 0, none, 0), EINVAL);
        FAILS(kill(none, 0), ESRCH);
        FAILS(syscall(SYS_pidfd_open, none, 0), ESRCH);
        FAILS(sched_getaffinity(none, sizeof set, &set), ESRCH);
        FAILS(sched_setaffinity(none, sizeof set, &set), ESRCH);
        FAILS(sched_getscheduler(none), ESRCH);
        FAILS(sched_setscheduler(none, SCHED_OTHER, &parameters), ESRCH);
        FAILS(getpriority(PRIO_PROCESS, none), ESRCH);
        FAILS(syscall(SYS_clock_gettime, (clockid_t)((unsigned)~none << 3 | THREAD), &time), EINVAL);
        FAILS(syscall(SYS_clock_gettime, (clockid_t)((unsigned)~none << 3 | PROCESS), &time), EINVAL);
        struct f_owner_ex owner = {F_OWNER_TID, none};
        FAILS(fcntl(fd, F_SETOWN_EX, &owner), ESRCH);
        struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
        event._sigev_un._tid = none;
        timer_t timer;
        FAILS(timer_create(CLOCK_MONOTONIC, &event, &timer), EINVAL);
        // qemu refuses these operations.
        if (emulated) continue;
        size_t length;
        void *list;
        FAILS(syscall(SYS_get_robust_list, none, &list, &length), ESRCH);
        uint32_t lock = (uint32_t)none;
        FAILS(futex(&lock, FUTEX_LOCK_PI, 0, NULL), ESRCH);
    }
    close(fd);
}

static void executing(void) {
    char *arguments[] = {"x", NULL};
    FAILS(execve("none", arguments, NULL), ENOENT);
    FAILS(execve(".", arguments, NULL), EACCES);
    FAILS(execve("", arguments, NULL), ENOENT);
    int fd = open("text", O_CREAT | O_WRONLY, 0755);
    CHECK(write(fd, "not a program at all", 20) == 20);
    close(fd);
    FAILS(execve("text", arguments, NULL), ENOEXEC);
    chmod("text", 0644);
    FAILS(execve("text", arguments, NULL), EACCES);
    fd = open("script", O_CREAT | O_WRONLY, 0755);
    CHECK(write(fd, "#!none\n", 7) == 7);
    close(fd);
    FAILS(execve("script", arguments, NULL), ENOENT);
    FAILS(execve((char *)8, arguments, NULL), EFAULT);
    FAILS(execve("text/x", arguments, NULL), ENOTDIR);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    waiting();
    families();
    identity();
    if (!emulated) {
        first();
        policies();
        attributes();
    }
    probing();
    threads();
    numbers();
    executing();
    return finish("tasks");
}
