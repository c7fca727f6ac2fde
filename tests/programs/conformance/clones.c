// What processes share: clone in its combinations, unshare; and what a process may see of another.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <time.h>

enum { STACK = 1 << 16, NOBODY = 12345 };

static int (*body)(void);

static int begin(void *argument) {
    (void)argument;
    return body();
}

// The exit status of a function that a child of clone runs; -1 if clone fails.
static int cloned(int flags, int (*function)(void)) {
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    body = function;
    fflush(stdout);
    pid_t child = clone(begin, stack + STACK, flags | SIGCHLD, NULL);
    int error = errno, status = child < 0 ? -1 : status_of(child);
    munmap(stack, STACK);
    errno = error;
    return child < 0 ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int opened;

static int open_one(void) {
    opened = open("/dev/null", O_RDONLY);
    return opened < 0 ? 99 : opened;
}

static int close_one(void) { return close(opened); }

static int open_alone(void) {
    if (unshare(CLONE_FILES)) return 98;
    int fd = open_one();
    return fd == close(0) ? 97 : fd;
}

static int close_alone(void) {
    // CLOSE_RANGE_UNSHARE
    return close_range(opened, opened, 2) || fcntl(opened, F_GETFD) != -1;
}

static int execute(void) {
    // The new program has its own descriptors: the old ones stay open.
    fcntl(opened, F_SETFD, FD_CLOEXEC);
    char *arguments[] = {"program", "clones", NULL}, *environment[] = {"LEAVE=1", NULL};
    execve("/proc/self/exe", arguments, environment);
    return 96;
}

static void descriptors(void) {
    // A child with CLONE_FILES opens and closes for its parent.
    int fd = cloned(CLONE_FILES, open_one);
    CHECK(fd > 2 && fd < 90);
    GIVES(fcntl(fd, F_GETFD), 0);
    opened = fd;
    GIVES(cloned(CLONE_FILES, close_one), 0);
    FAILS(fcntl(fd, F_GETFD), EBADF);
    // Without the flag it has copies.
    GIVES(cloned(0, open_one), fd);
    FAILS(fcntl(fd, F_GETFD), EBADF);
    // It may stop sharing.
    GIVES(cloned(CLONE_FILES, open_alone), fd);
    FAILS(fcntl(fd, F_GETFD), EBADF);
    CHECK(fcntl(0, F_GETFD) >= 0);
    opened = open("/dev/null", O_RDONLY);
    GIVES(cloned(CLONE_FILES, close_alone), 0);
    GIVES(fcntl(opened, F_GETFD), 0);
    GIVES(cloned(CLONE_FILES | CLONE_VM, execute), 7);
    GIVES(fcntl(opened, F_GETFD), FD_CLOEXEC);
    close(opened);
    // The end of one process leaves them open for the other.
    int ends[2];
    CHECK(!pipe(ends));
    char byte;
    GIVES(cloned(CLONE_FILES, open_one), ends[1] + 1);
    GIVES(write(ends[1], "x", 1), 1);
    GIVES(read(ends[0], &byte, 1), 1);
    close(ends[0]), close(ends[1]), close(ends[1] + 1);
}

static int move(void) { return mkdir("inside", 0700) || chdir("inside") || umask(0123) == 0123; }

static int move_alone(void) { return unshare(CLONE_FS) || chdir("/") || umask(0) == 0; }

static void directories(void) {
    char before[4096], after[4096];
    CHECK(getcwd(before, sizeof before) != NULL);
    mode_t old = umask(022);
    GIVES(cloned(CLONE_FS, move), 0);
    CHECK(getcwd(after, sizeof after) && !strcmp(after + strlen(before), "/inside"));
    GIVES(umask(022), 0123);
    GIVES(chdir(".."), 0);
    GIVES(cloned(CLONE_FS, move_alone), 0);
    CHECK(getcwd(after, sizeof after) && !strcmp(after, before));
    GIVES(umask(old), 022);
    GIVES(rmdir("inside"), 0);
    GIVES(cloned(0, move), 0);
    CHECK(getcwd(after, sizeof after) && !strcmp(after, before));
    GIVES(rmdir("inside"), 0);
}

static int shared_word;

static int store(void) {
    shared_word++;
    return 0;
}

static void caught(int signal) { shared_word += signal; }

static int handle(void) {
    signal(SIGUSR1, caught);
    return 0;
}

static int handle_alone(void) {
    handle();
    // Other processes with the same memory would lose their actions.
    return unshare(CLONE_SIGHAND) == 0 || errno != EINVAL;
}

static pid_t parent;

static int check_parent(void) { return getppid() != parent; }

static void memory(void) {
    shared_word = 0;
    GIVES(cloned(CLONE_VM, store), 0);
    GIVES(shared_word, 1);
    GIVES(cloned(0, store), 0);
    GIVES(shared_word, 1);
    // The actions of signals.
    signal(SIGUSR1, SIG_IGN);
    GIVES(cloned(CLONE_VM, handle), 0);
    raise(SIGUSR1);
    GIVES(shared_word, 1);
    GIVES(cloned(CLONE_VM | CLONE_SIGHAND, handle_alone), 0);
    raise(SIGUSR1);
    GIVES(shared_word, 1 + SIGUSR1);
    GIVES(cloned(CLONE_VM | CLONE_SIGHAND | CLONE_FILES | CLONE_FS, store), 0);
    signal(SIGUSR1, SIG_DFL);
    // A child with the parent of its parent.
    parent = getpid();
    body = check_parent;
    CHILD_EXITS(0, static char stack[STACK] __attribute__((aligned(16)));
                pid_t child = clone(begin, stack + STACK, CLONE_PARENT | SIGCHLD, NULL);
                _exit(!(child > 0 && waitpid(child, NULL, 0) == -1 && errno == ECHILD)));
    int status = -1;
    CHECK(wait(&status) > 0);
    GIVES(status, 0);
    FAILS(cloned(CLONE_SIGHAND, store), EINVAL);
    FAILS(cloned(CLONE_THREAD | CLONE_VM, store), EINVAL);
    FAILS(cloned(CLONE_FS | CLONE_NEWNS, store), EINVAL);
    GIVES(cloned(CLONE_IO | CLONE_UNTRACED | CLONE_PTRACE, store), 0);
}

static void namespaces(void) {
    static const int flags[] = {CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET};
    GIVES(unshare(0), 0);
    GIVES(unshare(CLONE_FILES | CLONE_FS | CLONE_SYSVSEM), 0);
    GIVES(unshare(CLONE_THREAD | CLONE_SIGHAND | CLONE_VM), 0);
    FAILS(unshare(CLONE_SETTLS), EINVAL);
    // An ordinary user may make none of these.
    CHILD_EXITS(0, GIVES(setuid(NOBODY), 0); for (int i = 0; i < 5; i++) {
        FAILS(unshare(flags[i]), EPERM);
        FAILS(cloned(flags[i], store), EPERM);
    } _exit(failures != 0));
    FAILS(setns(-1, 0), EBADF);
    FAILS(setns(0, CLONE_NEWNS), EINVAL);
}

static void reaping(void) {
    int on = 1, off = 2, ends[2];
    GIVES(prctl(PR_GET_CHILD_SUBREAPER, &off), 0);
    GIVES(off, 0);
    GIVES(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    GIVES(prctl(PR_GET_CHILD_SUBREAPER, &on), 0);
    GIVES(on, 1);
    // A child does not inherit it, and its orphans become children of this process.
    CHECK(!pipe(ends));
    CHILD_EXITS(0, prctl(PR_GET_CHILD_SUBREAPER, &on); pid_t orphan = fork(); if (orphan == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 9 : 8);
    } _exit(on));
    close(ends[1]);
    int status = 0;
    CHECK(wait(&status) > 0);
    GIVES(status, 9 << 8);
    close(ends[0]);
    // An orphan that had ended before.
    CHILD_EXITS(0, if (fork() == 0) _exit(5); siginfo_t info;
                _exit(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) != 0));
    CHECK(wait(&status) > 0);
    GIVES(status, 5 << 8);
    FAILS(wait(&status), ECHILD);
    GIVES(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

static void slack(void) {
    long first = prctl(PR_GET_TIMERSLACK);
    CHECK(first > 0);
    GIVES(prctl(PR_SET_TIMERSLACK, 1000), 0);
    GIVES(prctl(PR_GET_TIMERSLACK), 1000);
    CHILD_EXITS(0, GIVES(prctl(PR_GET_TIMERSLACK), 1000); prctl(PR_SET_TIMERSLACK, 5);
                prctl(PR_SET_TIMERSLACK, 0); _exit(prctl(PR_GET_TIMERSLACK) != 1000));
    GIVES(prctl(PR_SET_TIMERSLACK, 0), 0);
    GIVES(prctl(PR_GET_TIMERSLACK), first);
}

static char pages[3 * 4096] __attribute__((aligned(4096)));

static void other_memory(void) {
    char here[8192];
    strcpy(pages + 4090, "across pages");
    strcpy(pages + 100, "first");
    pid_t child = CHILD(pause());
    strcpy(pages + 4090, "changed here");
    struct iovec local = {here, 13}, remote = {pages + 4090, 13};
    GIVES(process_vm_readv(child, &local, 1, &remote, 1, 0), 13);
    CHECK(!strcmp(here, "across pages"));
    struct iovec parts[] = {{pages + 100, 5}, {NULL, 0}, {pages + 4090, 7}};
    local = (struct iovec){here, sizeof here};
    memset(here, 0, sizeof here);
    GIVES(process_vm_readv(child, &local, 1, parts, 3, 0), 12);
    CHECK(!strcmp(here, "firstacross "));
    // Writing changes the other process only.
    local = (struct iovec){"written", 8};
    GIVES(process_vm_writev(child, &local, 1, &remote, 1, 0), 8);
    CHECK(!strcmp(pages + 4090, "changed here"));
    local = (struct iovec){here, 8};
    GIVES(process_vm_readv(child, &local, 1, &remote, 1, 0), 8);
    CHECK(!strcmp(here, "written"));
    GIVES(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), 8);
    CHECK(!memcmp(here, "changed ", 8));
    remote.iov_base = (void *)8;
    FAILS(process_vm_readv(child, &local, 1, &remote, 1, 0), EFAULT);
    FAILS(process_vm_writev(child, &local, 1, &remote, 1, 0), EFAULT);
    FAILS(process_vm_readv(child, &local, 1, &remote, 1, 1), EINVAL);
    FAILS(process_vm_readv(99999, &local, 1, &remote, 1, 0), ESRCH);
    GIVES(process_vm_readv(child, &local, 0, &remote, 1, 0), 0);
    remote.iov_base = pages;
    CHILD_EXITS(0, GIVES(setuid(NOBODY), 0);
                FAILS(process_vm_readv(child, &local, 1, &remote, 1, 0), EPERM);
                FAILS(syscall(SYS_kcmp, child, child, KCMP_VM, 0, 0), EPERM);
                _exit(failures != 0));
    kill(child, SIGKILL);
    status_of(child);
}

static void comparing(void) {
    pid_t own = getpid(), child = CHILD(pause());
    int copy = dup(0), other = open("/dev/null", O_RDONLY);
    GIVES(syscall(SYS_kcmp, own, own, KCMP_FILE, 0, copy), 0);
    CHECK(syscall(SYS_kcmp, own, own, KCMP_FILE, 0, other) > 0);
    GIVES(syscall(SYS_kcmp, own, child, KCMP_FILE, 0, 0), 0);
    GIVES(syscall(SYS_kcmp, own, own, KCMP_VM, 0, 0), 0);
    long one = syscall(SYS_kcmp, own, child, KCMP_VM, 0, 0);
    long two = syscall(SYS_kcmp, child, own, KCMP_VM, 0, 0);
    CHECK((one == 1 && two == 2) || (one == 2 && two == 1));
    CHECK(syscall(SYS_kcmp, own, child, KCMP_FILES, 0, 0) > 0);
    GIVES(syscall(SYS_kcmp, child, child, KCMP_FS, 0, 0), 0);
    FAILS(syscall(SYS_kcmp, own, own, KCMP_FILE, 0, 9999), EBADF);
    FAILS(syscall(SYS_kcmp, own, own, 99, 0, 0), EINVAL);
    FAILS(syscall(SYS_kcmp, own, 99999, KCMP_VM, 0, 0), ESRCH);
    close(copy), close(other);
    kill(child, SIGKILL);
    status_of(child);
}

static void other_descriptors(void) {
    int ends[2], ready[2];
    char byte;
    CHECK(!pipe(ready));
    pid_t child = CHILD(CHECK(!pipe(ends)); CHECK(write(ends[1], "q", 1) == 1);
                        CHECK(write(ready[1], &ends[0], sizeof ends[0]) > 0); pause());
    int theirs = -1;
    GIVES(read(ready[0], &theirs, sizeof theirs), sizeof theirs);
    int process = (int)syscall(SYS_pidfd_open, child, 0);
    int fd = (int)syscall(SYS_pidfd_getfd, process, theirs, 0);
    CHECK(fd >= 0);
    GIVES(fcntl(fd, F_GETFD), FD_CLOEXEC);
    GIVES(read(fd, &byte, 1), 1);
    CHECK(byte == 'q');
    FAILS(syscall(SYS_pidfd_getfd, process, 9999, 0), EBADF);
    FAILS(syscall(SYS_pidfd_getfd, process, theirs, 1), EINVAL);
    FAILS(syscall(SYS_pidfd_getfd, 0, theirs, 0), EBADF);
    kill(child, SIGKILL);
    status_of(child);
    FAILS(syscall(SYS_pidfd_getfd, process, theirs, 0), ESRCH);
    close(fd), close(process), close(ready[0]), close(ready[1]);
}

// An ordinary user cannot set the clock.
static void clock_setting(void) {
    struct timespec time = {1000000000, 0}, bad = {0, 1000000000};
    struct timeval value = {1000000000, 0};
    struct timex state = {0};
    GIVES(setuid(NOBODY), 0);
    FAILS(clock_settime(CLOCK_REALTIME, &time), EPERM);
    FAILS(clock_settime(CLOCK_REALTIME, &bad), EINVAL);
    FAILS(clock_settime(CLOCK_MONOTONIC, &time), EINVAL);
    FAILS(clock_settime(999, &time), EINVAL);
    FAILS(settimeofday(&value, NULL), EPERM);
    int told = adjtimex(&state);
    CHECK(told >= 0 && told <= TIME_ERROR);
    CHECK(state.tick >= 9000 && state.tick <= 11000 && state.time.tv_sec > 1600000000);
    GIVES(clock_adjtime(CLOCK_REALTIME, &state), told);
    state.modes = ADJ_FREQUENCY;
    FAILS(adjtimex(&state), EPERM);
    FAILS(clock_adjtime(CLOCK_REALTIME, &state), EPERM);
    FAILS(clock_adjtime(CLOCK_MONOTONIC, &state), EOPNOTSUPP);
    FAILS(sethostname("name", 4), EPERM);
}

int main(int count, char **arguments) {
    if (getenv("LEAVE")) return 7;
    enter(count, arguments);
    descriptors();
    directories();
    memory();
    namespaces();
    reaping();
    slack();
    other_memory();
    comparing();
    other_descriptors();
    CHILD_EXITS(0, clock_setting(); _exit(failures != 0));
    return finish("clones");
}
