// /proc: the process itself, others, the system.
#define _GNU_SOURCE
#include "check.h"
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/timerfd.h>
#include <sys/utsname.h>

static char text[1 << 16];

// A file's contents, or its error as a negative number.
static long contents(const char *path) {
    int fd = open(path, O_RDONLY);
    if (fd < 0) return -errno;
    long length = 0, got;
    while ((got = read(fd, text + length, sizeof text - 1 - length)) > 0) length += got;
    close(fd);
    text[length] = 0;
    return got < 0 ? -errno : length;
}

static char *of(pid_t pid, const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    return path;
}

// Field `number`, from 3 on, of a stat file.
static long field(int number) {
    char *at = strrchr(text, ')');
    for (int i = 2; at && i < number; i++) at = strchr(at + 1, ' ');
    return at ? atol(at + 1) : -1;
}

static int has_entry(const char *path, const char *name) {
    DIR *directory = opendir(path);
    int found = 0;
    if (!directory) return -1;
    for (struct dirent *entry; (entry = readdir(directory));) found |= !strcmp(entry->d_name, name);
    closedir(directory);
    return found;
}

static void self(void) {
    char link[4096], name[32];
    snprintf(name, sizeof name, "%d", getpid());
    GIVES(readlink("/proc/self", link, sizeof link), strlen(name));
    CHECK(!strncmp(link, name, strlen(name)));
    prctl(PR_SET_NAME, "a (name) x");
    CHECK(contents("/proc/self/comm") > 0 && !strcmp(text, "a (name) x\n"));
    CHECK(contents("/proc/self/cmdline") > 0 && strlen(text) > 0);
    CHECK(contents("/proc/self/status") > 0);
    CHECK(strstr(text, "\nPid:\t") && atoi(strstr(text, "\nPid:\t") + 6) == getpid());
    CHECK(strstr(text, "\nPPid:\t") && atoi(strstr(text, "\nPPid:\t") + 7) == getppid());
    CHECK(strstr(text, "\nUid:\t") && (uid_t)atoi(strstr(text, "\nUid:\t") + 6) == getuid());
    CHECK(strstr(text, "\nState:\t") != NULL);
    if (!emulated) CHECK(strstr(text, "\nState:\tR") && strstr(text, "\nThreads:\t1\n"));
    CHECK(contents("/proc/self/maps") > 0 && strstr(text, "[stack]") != NULL);
    int fd = open("data", O_CREAT | O_RDWR, 0600);
    CHECK(write(fd, "0123456789", 10) == 10);
    snprintf(name, sizeof name, "fd/%d", fd);
    long length = readlink(of(getpid(), name), link, sizeof link - 1);
    CHECK(length > 5);
    link[length > 0 ? length : 0] = 0;
    CHECK(!strcmp(link + length - 5, "/data"));
    struct stat a, b;
    CHECK(stat(of(getpid(), name), &a) == 0 && fstat(fd, &b) == 0 && a.st_ino == b.st_ino);
    int again = open(of(getpid(), name), O_RDONLY);
    CHECK(again >= 0 && read(again, link, 4) == 4 && !memcmp(link, "0123", 4));
    close(again);
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fd);
    CHECK(contents(name) > 0 && strstr(text, "pos:\t10\n") && strstr(text, "flags:\t"));
    snprintf(name, sizeof name, "%d", fd);
    GIVES(has_entry("/proc/self/fd", name), 1);
    GIVES(unlink("data"), 0);
    length = readlink(of(getpid(), strcat(strcpy(link + 2000, "fd/"), name)), link, 1000);
    CHECK(length > 10 && !memcmp(link + length - 10, " (deleted)", 10));
    close(fd);
    snprintf(link, sizeof link, "/proc/self/fd/%s", name);
    FAILS(lstat(link, &a), ENOENT);
    CHECK(getcwd(text, sizeof text) != NULL);
    length = readlink("/proc/self/cwd", link, sizeof link);
    CHECK(length == (long)strlen(text) && !memcmp(link, text, length));
    CHECK(readlink("/proc/self/exe", link, sizeof link) > 0);
    GIVES(readlink("/proc/self/root", link, sizeof link), 1);
    snprintf(name, sizeof name, "%d", getpid());
    GIVES(has_entry("/proc/self/task", name), 1);
    FAILS(open("/proc/self/none", O_RDONLY), ENOENT);
    FAILS(open("/proc/self/status/x", O_RDONLY), ENOTDIR);
    FAILS_EITHER(mkdir("/proc/x", 0755), ENOENT, EACCES);
    FAILS_EITHER(unlink("/proc/self/status"), EPERM, EACCES);
}

static void others(void) {
    char name[32], link[4096];
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t child = CHILD(prctl(PR_SET_NAME, "the child"); (void)!write(ready[1], "r", 1);
                        for (;;) pause());
    CHECK(read(ready[0], name, 1) == 1);
    wait_until_asleep(child);
    snprintf(name, sizeof name, "%d", child);
    GIVES(has_entry("/proc", name), 1);
    CHECK(contents(of(child, "stat")) > 0);
    CHECK(atoi(text) == child && strstr(text, "(the child) S "));
    GIVES(field(4), getpid());
    GIVES(field(5), getpgrp());
    if (!emulated) GIVES(field(20), 1);
    CHECK(contents(of(child, "comm")) > 0 && !strcmp(text, "the child\n"));
    CHECK(contents(of(child, "status")) > 0);
    CHECK(strstr(text, "Name:\tthe child\n") && strstr(text, "\nState:\tS (sleeping)\n"));
    CHECK(contents(of(child, "cmdline")) > 0);
    CHECK(contents(of(child, "statm")) > 0 && atoi(text) > 0);
    CHECK(contents(of(child, "maps")) > 0 && strstr(text, "[stack]"));
    CHECK(contents(of(child, "environ")) >= 0);
    snprintf(name, sizeof name, "%d", ready[1]);
    GIVES(has_entry(of(child, "fd"), name), 1);
    CHECK(readlink(of(child, "cwd"), link, sizeof link) > 0);
    CHECK(readlink(of(child, "exe"), link, sizeof link) > 0);
    snprintf(name, sizeof name, "fd/%d", ready[1]);
    CHECK(readlink(of(child, name), link, sizeof link) > 6 && !memcmp(link, "pipe:[", 6));
    snprintf(name, sizeof name, "%d", child);
    GIVES(has_entry(of(child, "task"), name), 1);
    CHECK(kill(child, SIGSTOP) == 0);
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child);
    CHECK(contents(of(child, "stat")) > 0 && strstr(text, "(the child) T "));
    CHECK(kill(child, SIGKILL) == 0);
    siginfo_t ended;
    CHECK(waitid(P_PID, child, &ended, WEXITED | WNOWAIT) == 0);
    CHECK(contents(of(child, "stat")) > 0 && strstr(text, "(the child) Z "));
    GIVES(contents(of(child, "cmdline")), 0);
    GIVES(waitpid(child, &status, 0), child);
    GIVES(contents(of(child, "stat")), -ENOENT);
    GIVES(has_entry("/proc", name), 0);
    close(ready[0]), close(ready[1]);
    struct stat s;
    GIVES(stat("/proc/1234567", &s), -1);
}

static void machine(void) {
    static const struct {
        const char *path, *part;
    } files[] = {
        {"/proc/meminfo", "MemTotal:"},      {"/proc/meminfo", "MemAvailable:"},
        {"/proc/stat", "\nbtime "},          {"/proc/stat", "cpu0 "},
        {"/proc/loadavg", "/"},              {"/proc/uptime", "."},
        {"/proc/version", "Linux version "}, {"/proc/filesystems", "proc\n"},
        {"/proc/cpuinfo", "processor"},      {"/proc/mounts", " /proc "},
        {"/proc/vmstat", "nr_free_pages "},  {"/proc/self/limits", "Max open files"},
        {"/proc/self/mountinfo", " - "},     {"/proc/sys/kernel/ostype", "Linux\n"},
        {"/proc/sysvipc/shm", " shmid perms"}, {"/proc/sysvipc/sem", " semid perms"},
        {"/proc/sysvipc/msg", " msqid perms"}, {"/proc/sys/kernel/sem", "\t"},
    };
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        CHECK(contents(files[i].path) > 0);
        CHECK(strstr(text, files[i].part) != NULL);
    }
    static const char *const present[] = {"osrelease", "pid_max", "hostname", "random/uuid",
                                          "shmmax", "shmall", "shmmni", "msgmax", "msgmnb", "msgmni"};
    for (unsigned i = 0; i < sizeof present / sizeof *present; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/sys/kernel/%s", present[i]);
        CHECK(contents(path) > 1);
    }
    static const char *const sets[] = {"online", "possible", "present"};
    for (unsigned i = 0; i < sizeof sets / sizeof *sets; i++) {
        char path[64];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/%s", sets[i]);
        CHECK(contents(path) > 1 && text[0] == '0');
    }
    double loads[3];
    int running, tasks, last;
    CHECK(contents("/proc/loadavg") > 0);
    GIVES(sscanf(text, "%lf %lf %lf %d/%d %d", &loads[0], &loads[1], &loads[2], &running, &tasks,
                 &last),
          6);
    CHECK(loads[0] >= 0 && running >= 1 && tasks >= running && last >= 1);
    struct sysinfo info;
    GIVES(sysinfo(&info), 0);
    CHECK(info.procs >= 1 && info.loads[0] < 1ul << 32);
    CHECK(sysconf(_SC_NPROCESSORS_ONLN) >= 1);
    CHECK(contents("/dev/null") == 0);
}

static long adjust(const char *text) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_TRUNC);
    long result = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

static long score(void) {
    return contents("/proc/self/oom_score") > 0 ? atol(text) : -1;
}

// The adjustment that counts in the score, that a process inherits, and that only a privileged one lowers.
static void killing(void) {
    char text[16] = "";
    long unadjusted = score();
    int fd = open("/proc/self/oom_score_adj", O_RDONLY);
    GIVES(adjust("500"), 3);
    CHECK(pread(fd, text, sizeof text, 0) == 4 && !strcmp(text, "500\n"));
    // A third of the adjustment does not count, and the memory may change a little.
    long raised = score() - unadjusted;
    CHECK(raised >= 330 && raised <= 336);
    GIVES(adjust(" 70\n"), 4);
    CHECK(pread(fd, text, sizeof text, 0) == 3 && !memcmp(text, "70\n", 3));
    FAILS(adjust("1001"), EINVAL);
    FAILS(adjust("-1001"), EINVAL);
    FAILS(adjust("many"), EINVAL);
    FAILS(write(fd, "1", 1), EBADF);
    int inherited = open("/proc/self/oom_score_adj", O_RDWR);
    CHILD_EXITS(0, char own[16] = ""; int here = open("/proc/self/oom_score_adj", O_RDONLY);
                _exit(read(here, own, sizeof own) != 3 || memcmp(own, "70\n", 3)));
    CHILD_EXITS(0, int before = failures; GIVES(setuid(12345), 0);
                GIVES(write(inherited, "300", 3), 3); FAILS(write(inherited, "-1", 2), EACCES);
                _exit(failures != before));
    GIVES(adjust("0"), 1);
    close(fd), close(inherited);
}

static long rename_task(const char *path, const char *name, long length) {
    int fd = open(path, O_WRONLY | O_TRUNC);
    if (fd < 0) return -errno;
    long result = write(fd, name, length);
    result = result < 0 ? -errno : result;
    close(fd);
    return result;
}

// The names of tasks: a process may write those of its own.
static void naming(void) {
    char own[16] = "", path[64];
    GIVES(rename_task("/proc/self/comm", "first", 5), 5);
    GIVES(prctl(PR_GET_NAME, own), 0);
    CHECK(!strcmp(own, "first"));
    GIVES(rename_task("/proc/self/comm", "a name of more than 15 bytes", 28), 28);
    CHECK(contents("/proc/self/comm") == 16 && !strcmp(text, "a name of more \n"));
    GIVES(rename_task("/proc/thread-self/comm", "line\n", 5), 5);
    CHECK(contents("/proc/self/comm") == 6 && !strcmp(text, "line\n\n"));
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", getpid());
    GIVES(rename_task(path, "x\0y", 3), 3);
    CHECK(contents("/proc/self/stat") > 0 && strstr(text, " (x) R "));
    snprintf(path, sizeof path, "/proc/%d/comm", getppid());
    long denied = rename_task(path, "other", 5);
    CHECK(denied == -EINVAL || denied == -EACCES);
    struct stat found;
    CHECK(stat("/proc/self/comm", &found) == 0 && (found.st_mode & 0777) == 0644);
    snprintf(path, sizeof path, "%d/task/%d", getpid(), getpid());
    long length = readlink("/proc/thread-self", text, sizeof text - 1);
    CHECK(length == (long)strlen(path) && !memcmp(text, path, length));
}

// The kernel's log: without the capability nothing, with it at least the message of the start.
static void kernel_log(void) {
    static char log[1 << 18];
    long size = klogctl(10, NULL, 0);
    if (size < 0) {
        GIVES(errno, EPERM);
        return;
    }
    CHECK(size >= 4096);
    GIVES(klogctl(0, NULL, 0), 0);
    GIVES(klogctl(1, NULL, 0), 0);
    FAILS(klogctl(3, log, -1), EINVAL);
    FAILS(klogctl(3, NULL, 10), EINVAL);
    GIVES(klogctl(3, log, 0), 0);
    FAILS(klogctl(8, NULL, 0), EINVAL);
    FAILS(klogctl(8, NULL, 9), EINVAL);
    FAILS(klogctl(11, NULL, 0), EINVAL);
    FAILS(klogctl(-1, NULL, 0), EINVAL);
    long length = klogctl(3, log, sizeof log);
    CHECK(length > 0 && log[0] == '<' && log[length - 1] == '\n');
    CHECK(klogctl(9, NULL, 0) >= 0);
    CHILD_EXITS(0, int before = failures; GIVES(setuid(12345), 0); FAILS(klogctl(3, log, sizeof log), EPERM);
                FAILS(klogctl(5, NULL, 0), EPERM); _exit(failures != before));
    struct utsname names;
    if (uname(&names) || !strstr(names.release, "hartline")) return;
    // What changes the log for others: here it is this VM's.
    CHECK(strstr(log, "] Linux version ") != NULL);
    GIVES(klogctl(3, log, length - 1), 0);
    GIVES(klogctl(9, NULL, 0), length);
    GIVES(klogctl(2, log, 5), 5);
    GIVES(klogctl(9, NULL, 0), length - 5);
    GIVES(klogctl(2, log + 5, sizeof log - 5), length - 5);
    CHECK(!memcmp(log, "<5>[", 4) && strstr(log, "] Linux version "));
    CHILD_DIES(SIGALRM, alarm(1); klogctl(2, log, sizeof log));
    GIVES(klogctl(4, log, sizeof log), length);
    GIVES(klogctl(3, log, sizeof log), 0);
    GIVES(klogctl(8, NULL, 6), 0);
    CHECK(contents("/proc/sys/kernel/printk") > 0 && text[0] == '6');
    GIVES(klogctl(6, NULL, 0), 0);
    CHECK(contents("/proc/sys/kernel/printk") > 0 && text[0] == '1');
    GIVES(klogctl(7, NULL, 0), 0);
    CHECK(contents("/proc/sys/kernel/printk") > 0 && text[0] == '6');
}

// Processors in /sys.
static void processors(void) {
    char path[96];
    unsigned long long mask;
    int last = -1;
    CHECK(contents("/sys/devices/system/cpu/online") > 0);
    CHECK(sscanf(text, "0-%d", &last) == 1 || !strcmp(text, "0\n"));
    last = last < 0 ? 0 : last;
    CHECK(contents("/sys/devices/system/cpu/kernel_max") > 1 && atoi(text) >= last);
    for (int cpu = 0; cpu <= last; cpu++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_cpus", cpu);
        // Emulators of CPUs may have no topology.
        if (contents(path) < 0) continue;
        CHECK(sscanf(strrchr(text, ',') ? strrchr(text, ',') + 1 : text, "%llx", &mask) == 1);
        CHECK(cpu >= 32 || mask >> cpu & 1);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
        CHECK(contents(path) > 1);
        snprintf(path, sizeof path, "cpu%d", cpu);
        GIVES(has_entry("/sys/devices/system/cpu", path), 1);
    }
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", 4096);
    GIVES(contents(path), -ENOENT);
}

// Control groups: /proc/self/cgroup names a group of the hierarchy that is mounted.
static void groups(void) {
    char mounted[256] = "", group[128] = "", path[512], *line, *end;
    struct stat found;
    CHECK(contents("/proc/self/cgroup") > 0);
    line = strstr(text, "0::/");
    if (!line) return;
    sscanf(line, "0::%127s", group);
    CHECK(contents("/proc/self/mountinfo") > 0);
    for (line = text; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        if (strstr(line, " - cgroup2 ")) sscanf(line, "%*d %*d %*s / %255s", mounted);
    }
    if (!mounted[0]) return;
    snprintf(path, sizeof path, "%s%s/cgroup.controllers", mounted, group);
    CHECK(stat(path, &found) == 0 && S_ISREG(found.st_mode));
    snprintf(path, sizeof path, "%s%s/cgroup.procs", mounted, group);
    CHECK(contents(path) > 0);
    int own = 0;
    for (line = text; *line; line = strchr(line, '\n') + 1) own |= atoi(line) == getpid();
    CHECK(own);
    snprintf(path, sizeof path, "%s%s/memory.max", mounted, group);
    // The root of all groups has no limits.
    if (stat(path, &found)) return;
    CHECK(contents(path) > 1 && (isdigit(text[0]) || !strcmp(text, "max\n")));
    snprintf(path, sizeof path, "%s%s/memory.current", mounted, group);
    CHECK(contents(path) > 1 && atoll(text) > 0);
    snprintf(path, sizeof path, "%s%s/cpu.max", mounted, group);
    long quota = contents(path);
    CHECK(quota == -ENOENT || (quota > 0 && strchr(text, ' ')));
}

// The host name; on another system in a namespace of its own.
static void renaming(void) {
    struct utsname names;
    char text[128] = "";
    GIVES(uname(&names), 0);
    if (unshare(CLONE_NEWUTS) && !strstr(names.release, "hartline")) return;
    GIVES(sethostname("another.name", 7), 0);
    GIVES(setdomainname("domain", 6), 0);
    FAILS(sethostname(text, 65), EINVAL);
    FAILS(sethostname((char *)8, 5), EFAULT);
    GIVES(uname(&names), 0);
    CHECK(!strcmp(names.nodename, "another") && !strcmp(names.domainname, "domain"));
    int fd = open("/proc/sys/kernel/hostname", O_RDONLY);
    CHECK(read(fd, text, sizeof text) == 8 && !memcmp(text, "another\n", 8));
    close(fd);
}

// Children, resident pages, and the owner of what a process keeps to itself.
static void details(void) {
    int told[2], ends[2];
    CHECK(pipe(told) == 0 && pipe(ends) == 0);
    pid_t child = CHILD({
        char byte = 0;
        close(told[0]), close(ends[1]);
        if (setgid(1) || setuid(1)) _exit(1);
        (void)!write(told[1], "1", 1);
        (void)!read(ends[0], &byte, 1);
        if (prctl(PR_SET_DUMPABLE, 1) || open("/proc/self/environ", O_RDONLY) < 0) _exit(2);
        (void)!write(told[1], "2", 1);
        _exit(read(ends[0], &byte, 1) < 0);
    });
    char byte = 0, name[64], wanted[32];
    struct stat found;
    CHECK(read(told[0], &byte, 1) == 1 && byte == '1');
    CHECK(stat(of(child, "environ"), &found) == 0 && found.st_uid == 0);
    CHECK(stat(of(child, "status"), &found) == 0 && found.st_uid == 0);
    CHECK(stat(of(child, ""), &found) == 0 && found.st_uid == 1);
    CHECK(write(ends[1], "x", 1) == 1);
    CHECK(read(told[0], &byte, 1) == 1 && byte == '2');
    CHECK(stat(of(child, "environ"), &found) == 0 && found.st_uid == 1);
    snprintf(name, sizeof name, "/proc/self/task/%d/children", getpid());
    snprintf(wanted, sizeof wanted, "%d ", child);
    if (access(name, R_OK) == 0) {
        CHECK(contents(name) > 0 && strstr(text, wanted));
    }
    CHECK(write(ends[1], "x", 1) == 1);
    GIVES(status_of(child), 0);
    if (access(name, R_OK) == 0) CHECK(contents(name) >= 0 && !strstr(text, wanted));
    close(told[0]), close(told[1]), close(ends[0]), close(ends[1]);

    // The pages are far apart, because a page fault may map several.
    const size_t length = 16 << 20;
    uint64_t words[2] = {0};
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory[length - 1] = 1;
    size_t first = (uintptr_t)memory / 4096 * 8, last = first + (length / 4096 - 1) * 8;
    int fd = open("/proc/self/pagemap", O_RDONLY);
    CHECK(fd >= 0);
    GIVES(pread(fd, words, 8, first), 8);
    GIVES(pread(fd, words + 1, 8, last), 8);
    GIVES(words[0] >> 63, 0);
    GIVES(words[1] >> 63, 1);
    FAILS(pread(fd, words, 8, 4), EINVAL);
    GIVES(lseek(fd, last, SEEK_SET), last);
    GIVES(read(fd, words, 8), 8);
    GIVES(words[0] >> 63, 1);
    close(fd);
    munmap(memory, length);
}

static int gate[2];
static pid_t thread_id;
static int finds_itself;

static void *thread(void *unused) {
    char byte, link[64] = "", own[64];
    prctl(PR_SET_NAME, "second");
    thread_id = syscall(SYS_gettid);
    snprintf(own, sizeof own, "%d/task/%d", getpid(), thread_id);
    finds_itself = readlink("/proc/thread-self", link, sizeof link) > 0 && !strcmp(link, own);
    finds_itself &= access("/proc/thread-self/comm", R_OK | W_OK) == 0;
    (void)!write(gate[1], "1", 1);
    (void)!read(gate[0], &byte, 1);
    return unused;
}

// A thread that is not the first one has a directory too, which is not listed.
static void threads(void) {
    pthread_t id;
    char byte = 0, name[64], own[32];
    int down[2], up[2];
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    gate[0] = down[0], gate[1] = up[1];
    GIVES(pthread_create(&id, NULL, thread, NULL), 0);
    GIVES(read(up[0], &byte, 1), 1);
    CHECK(finds_itself);
    snprintf(name, sizeof name, "%d", thread_id), snprintf(own, sizeof own, "%d", getpid());
    GIVES(has_entry("/proc", name), 0);
    GIVES(has_entry("/proc", own), 1);
    CHECK(contents(of(thread_id, "status")) > 0);
    CHECK(strstr(text, "Name:\tsecond\n") && strstr(text, "\nThreads:\t2\n"));
    CHECK(strstr(text, "\nTgid:\t") && atoi(strstr(text, "\nTgid:\t") + 7) == getpid());
    CHECK(strstr(text, "\nPid:\t") && atoi(strstr(text, "\nPid:\t") + 6) == thread_id);
    CHECK(contents(of(thread_id, "comm")) > 0 && !strcmp(text, "second\n"));
    CHECK(contents(of(thread_id, "stat")) > 0 && atoi(text) == thread_id);
    GIVES(has_entry(of(thread_id, "task"), name), 1);
    GIVES(has_entry(of(thread_id, "task"), own), 1);
    GIVES(has_entry(of(thread_id, "fd"), "0"), has_entry("/proc/self/fd", "0"));
    char link[4096] = "", same[4096] = "";
    CHECK(readlink(of(thread_id, "exe"), link, sizeof link - 1) > 0);
    CHECK(readlink("/proc/self/exe", same, sizeof same - 1) > 0 && !strcmp(link, same));
    snprintf(name, sizeof name, "/proc/%d/task/%d/comm", thread_id, getpid());
    CHECK(contents(name) > 0 && strcmp(text, "second\n"));
    GIVES(write(down[1], "x", 1), 1);
    GIVES(pthread_join(id, NULL), 0);
    for (int i = 0; i < 5000 && access(of(thread_id, "status"), F_OK) == 0; i++) usleep(1000);
    FAILS(access(of(thread_id, "status"), F_OK), ENOENT);
    for (int i = 0; i < 2; i++) close(down[i]), close(up[i]);
}

// Files below /proc/sys that programs read.
static void settings(void) {
    static const char *const names[] = {
        "kernel/core_pattern", "kernel/overflowuid",          "kernel/tainted",
        "vm/swappiness",       "fs/epoll/max_user_watches",   "net/core/somaxconn",
        "net/ipv4/tcp_keepalive_time", "net/ipv4/ip_local_port_range",
    };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128], line[128] = "";
        snprintf(path, sizeof path, "/proc/sys/%s", names[i]);
        FILE *file = fopen(path, "r");
        CHECK(file && fgets(line, sizeof line, file) && strlen(line) > 1);
        if (file) fclose(file);
    }
}

// Whether a line of fdinfo of the descriptor begins like this.
static int shows(int fd, const char *start) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "r");
    int found = 0;
    while (file && fgets(line, sizeof line, file))
        found |= strncmp(line, start, strlen(start)) == 0;
    if (file) fclose(file);
    return found;
}

// What /proc/PID/fdinfo has besides position and flags.
static void descriptors(void) {
    char line[64];
    pid_t child = CHILD(pause());
    int fd = syscall(SYS_pidfd_open, child, 0);
    snprintf(line, sizeof line, "Pid:\t%d\n", child);
    CHECK(shows(fd, line));
    snprintf(line, sizeof line, "NSpid:\t%d\n", child);
    CHECK(shows(fd, line));
    kill(child, SIGKILL);
    status_of(child);
    CHECK(shows(fd, "Pid:\t-1\n"));
    close(fd);
    fd = eventfd(0x1f, EFD_SEMAPHORE);
    CHECK(shows(fd, "eventfd-count:               1f\n"));
    CHECK(shows(fd, "eventfd-semaphore: 1\n"));
    int list = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0xabc};
    GIVES(epoll_ctl(list, EPOLL_CTL_ADD, fd, &event), 0);
    // EPOLLERR and EPOLLHUP are always watched, and Linux shows them.
    snprintf(line, sizeof line, "tfd: %8d events: %8x data: %16x  pos:0 ino:", fd,
             EPOLLIN | EPOLLERR | EPOLLHUP, 0xabc);
    CHECK(shows(list, line));
    close(list), close(fd);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    fd = signalfd(-1, &set, 0);
    CHECK(shows(fd, "sigmask:\t0000000000000200\n"));
    close(fd);
    fd = timerfd_create(CLOCK_BOOTTIME, 0);
    struct itimerspec when = {.it_value = {1000, 0}, .it_interval = {7, 5}};
    GIVES(timerfd_settime(fd, 0, &when, NULL), 0);
    CHECK(shows(fd, "clockid: 7\n") && shows(fd, "ticks: 0\n"));
    CHECK(shows(fd, "it_value: (999, ") && shows(fd, "it_interval: (7, 5)\n"));
    close(fd);
}

// PR_SET_MM moves the strings that cmdline shows.
static void retitling(void) {
    char *title = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char text[32] = "";
    strcpy(title, "a title");
    FAILS(prctl(PR_SET_MM, PR_SET_MM_ARG_START, title, 1, 0), EINVAL);
    // The end first, if the start would be behind it.
    unsigned long end = (unsigned long)title + 8;
    if (prctl(PR_SET_MM, PR_SET_MM_ARG_START, title, 0, 0) < 0) {
        // Without CAP_SYS_RESOURCE, which root may lack in a container.
        if (errno == EPERM) return;
        GIVES(prctl(PR_SET_MM, PR_SET_MM_ARG_END, end, 0, 0), 0);
        GIVES(prctl(PR_SET_MM, PR_SET_MM_ARG_START, title, 0, 0), 0);
    }
    GIVES(prctl(PR_SET_MM, PR_SET_MM_ARG_END, end, 0, 0), 0);
    FAILS(prctl(PR_SET_MM, PR_SET_MM_ARG_END, title - 1, 0, 0), EINVAL);
    FAILS(prctl(PR_SET_MM, PR_SET_MM_ARG_START, 0, 0, 0), EINVAL);
    int fd = open("/proc/self/cmdline", O_RDONLY);
    GIVES(read(fd, text, sizeof text), 8);
    CHECK(strcmp(text, "a title") == 0);
    close(fd);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    self();
    others();
    machine();
    if (!emulated) {
        details();
        killing();
        threads();
        CHILD_EXITS(0, int before = failures; naming(); _exit(failures != before));
        kernel_log();
        processors();
        groups();
        descriptors();
        CHILD_EXITS(0, int before = failures; retitling(); _exit(failures != before));
        CHILD_EXITS(0, int before = failures; renaming(); _exit(failures != before));
    }
    settings();
    return finish("proc");
}
