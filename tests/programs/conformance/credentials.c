// Users, groups and capabilities: changes, checks, set-ID programs.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

// All assertions of the statements hold, in a child.
#define HOLDS(...)                  \
    CHILD_EXITS(0, {                \
        failures = 0;               \
        __VA_ARGS__;                \
        fflush(stdout);             \
        _exit(failures != 0);       \
    })

enum { USER = 1000, OTHER = 1001, GROUP = 2000, AMBIENT = PR_CAP_AMBIENT };

static int is_user(uid_t real, uid_t effective, uid_t saved) {
    uid_t r, e, s;
    return getresuid(&r, &e, &s) == 0 && r == real && e == effective && s == saved &&
           getuid() == real && geteuid() == effective && setfsuid(-1) == (int)effective;
}

static int is_group(gid_t real, gid_t effective, gid_t saved) {
    gid_t r, e, s;
    return getresgid(&r, &e, &s) == 0 && r == real && e == effective && s == saved &&
           getgid() == real && getegid() == effective && setfsgid(-1) == (int)effective;
}

struct sets {
    unsigned long long effective, permitted, inheritable;
};

static struct sets sets_of(pid_t pid) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, pid};
    struct __user_cap_data_struct data[2] = {{0}};
    struct sets sets = {-1, -1, -1};
    if (syscall(SYS_capget, &header, data) == 0) {
        sets.effective = data[0].effective | (unsigned long long)data[1].effective << 32;
        sets.permitted = data[0].permitted | (unsigned long long)data[1].permitted << 32;
        sets.inheritable = data[0].inheritable | (unsigned long long)data[1].inheritable << 32;
    }
    return sets;
}

static int set_sets(unsigned long long effective, unsigned long long permitted,
                    unsigned long long inheritable) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {
        {effective, permitted, inheritable},
        {effective >> 32, permitted >> 32, inheritable >> 32},
    };
    return syscall(SYS_capset, &header, data);
}

static unsigned long long bit(int capability) { return 1ull << capability; }

// Removes one capability from the effective set.
static int lose(int capability) {
    struct sets sets = sets_of(0);
    return set_sets(sets.effective & ~bit(capability), sets.permitted, sets.inheritable);
}

static int become(uid_t uid) {
    return setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 &&
           setresuid(uid, uid, uid) == 0;
}

// A line of /proc/self/status.
static int status_has(const char *line) {
    char text[8192];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) return 0;
    text[length] = 0;
    return strstr(text, line) != NULL;
}

static void users(void) {
    HOLDS({
        // Root gives up its rights for a while.
        CHECK(is_user(0, 0, 0));
        GIVES(setresuid(-1, -1, OTHER), 0);
        CHECK(is_user(0, 0, OTHER));
        GIVES(setresuid(-1, USER, 0), 0);
        CHECK(is_user(0, USER, 0));
        FAILS(setresuid(OTHER, -1, -1), EPERM);
        FAILS(setreuid(-1, OTHER), EPERM);
        FAILS(setuid(OTHER), EPERM);
        GIVES(seteuid(0), 0);
        CHECK(is_user(0, 0, 0));
        GIVES(setreuid(USER, OTHER), 0);
        CHECK(is_user(USER, OTHER, OTHER));
        GIVES(setreuid(OTHER, USER), 0);
        CHECK(is_user(OTHER, USER, USER));
        FAILS(setuid(0), EPERM);
        FAILS(seteuid(0), EPERM);
        GIVES(setuid(OTHER), 0);
        CHECK(is_user(OTHER, OTHER, USER));
        GIVES(setresuid(USER, USER, USER), 0);
        CHECK(is_user(USER, USER, USER));
        FAILS(setresuid(-1, -1, 0), EPERM);
    });
    HOLDS({
        FAILS(setuid(-1), EINVAL);
        FAILS(setgid(-1), EINVAL);
        GIVES(setuid(USER), 0);
        CHECK(is_user(USER, USER, USER));
        FAILS(setuid(0), EPERM);
        FAILS(setgid(GROUP), EPERM);
        gid_t group = GROUP;
        FAILS(setgroups(1, &group), EPERM);
        if (!emulated) FAILS(setgroups(1 << 20, &group), EPERM);
        CHECK(status_has("\nUid:\t1000\t1000\t1000\t1000\n"));
        CHECK(status_has("\nCapEff:\t0000000000000000\n"));
    });
    HOLDS({
        GIVES(setresgid(GROUP, USER, OTHER), 0);
        CHECK(is_group(GROUP, USER, OTHER));
        gid_t groups[] = {7, 5, 6};
        GIVES(setgroups(3, groups), 0);
        GIVES(getgroups(0, NULL), 3);
        GIVES(setresuid(0, USER, OTHER), 0);
        CHECK(status_has("\nUid:\t0\t1000\t1001\t1000\n"));
        CHECK(status_has("\nGid:\t2000\t1000\t1001\t1000\n"));
        CHECK(status_has("\nGroups:\t5 6 7 \n"));
        FAILS(setresgid(0, -1, -1), EPERM);
        GIVES(setregid(-1, OTHER), 0);
        CHECK(is_group(GROUP, OTHER, OTHER));
        GIVES(setgid(GROUP), 0);
        CHECK(is_group(GROUP, GROUP, OTHER));
    });
    HOLDS({
        // The user for files alone.
        close(open("roots", O_CREAT | O_WRONLY, 0600));
        GIVES(setfsuid(USER), 0);
        GIVES(setfsuid(-1), USER);
        FAILS(open("roots", O_RDONLY), EACCES);
        CHECK(!(sets_of(0).effective & bit(CAP_DAC_OVERRIDE)));
        CHECK(sets_of(0).effective & bit(CAP_KILL));
        GIVES(setfsuid(0), USER);
        CHECK(sets_of(0).effective & bit(CAP_DAC_OVERRIDE));
        CHECK(open("roots", O_RDONLY) >= 0);
        GIVES(setfsgid(GROUP), 0);
        struct stat s;
        close(open("of-group", O_CREAT | O_WRONLY, 0600));
        GIVES(stat("of-group", &s), 0);
        CHECK(s.st_uid == 0 && s.st_gid == GROUP);
        GIVES(setresuid(USER, USER, USER), 0);
        GIVES(setfsuid(OTHER), USER);
        GIVES(setfsuid(-1), USER);
    });
}

static void capabilities(void) {
    struct sets all = sets_of(0);
    CHECK(all.effective == all.permitted && (all.effective & bit(CAP_CHOWN)));
    CHECK(sets_of(getpid()).permitted == all.permitted);
    struct __user_cap_header_struct header = {1, 0};
    GIVES(syscall(SYS_capget, &header, NULL), 0);
    CHECK(header.version == _LINUX_CAPABILITY_VERSION_3);
    struct __user_cap_data_struct data[2] = {{0}};
    header.version = 1;
    FAILS(syscall(SYS_capget, &header, data), EINVAL);
    header.version = _LINUX_CAPABILITY_VERSION_1;
    GIVES(syscall(SYS_capget, &header, data), 0);
    CHECK(data[0].effective == (unsigned)all.effective && data[1].effective == 0);
    header.version = _LINUX_CAPABILITY_VERSION_3;
    header.pid = -1;
    FAILS(syscall(SYS_capget, &header, data), EINVAL);
    header.pid = 1 << 22;
    FAILS(syscall(SYS_capget, &header, data), ESRCH);
    FAILS(syscall(SYS_capset, &header, data), EPERM);
    HOLDS({
        unsigned long long two = bit(CAP_CHOWN) | bit(CAP_SETUID);
        GIVES(set_sets(bit(CAP_CHOWN), two, 0), 0);
        CHECK(sets_of(0).effective == bit(CAP_CHOWN) && sets_of(0).permitted == two);
        FAILS(set_sets(0, two | bit(CAP_KILL), 0), EPERM);
        FAILS(set_sets(bit(CAP_KILL), two, 0), EPERM);
        FAILS(setresuid(USER, USER, USER), EPERM);
        GIVES(set_sets(two, two, 0), 0);
        GIVES(setresuid(USER, USER, USER), 0);
        CHECK(sets_of(0).effective == 0 && sets_of(0).permitted == 0);
    });
    HOLDS({
        GIVES(prctl(PR_GET_KEEPCAPS), 0);
        FAILS(prctl(PR_SET_KEEPCAPS, 2), EINVAL);
        GIVES(prctl(PR_SET_KEEPCAPS, 1), 0);
        GIVES(prctl(PR_GET_KEEPCAPS), 1);
        GIVES(setuid(USER), 0);
        CHECK(sets_of(0).effective == 0 && sets_of(0).permitted == all.permitted);
        FAILS(chown("roots", USER, -1), EPERM);
        unsigned long long chown_only = bit(CAP_CHOWN);
        FAILS(prctl(AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0), EPERM);
        GIVES(set_sets(chown_only, chown_only, chown_only), 0);
        GIVES(prctl(AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0), 0);
        GIVES(prctl(AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0), 0);
        GIVES(prctl(AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0), 1);
        FAILS(prctl(AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0), EPERM);
        FAILS(prctl(AMBIENT, PR_CAP_AMBIENT_RAISE, 77, 0, 0), EINVAL);
        FAILS(prctl(AMBIENT, 9, CAP_CHOWN, 0, 0), EINVAL);
        CHECK(status_has("\nCapAmb:\t0000000000000001\n"));
        CHECK(status_has("\nCapPrm:\t0000000000000001\n"));
        GIVES(chown("roots", OTHER, -1), 0);
        FAILS(chmod("roots", 0644), EPERM);
        GIVES(prctl(AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), 0);
        GIVES(prctl(AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0), 0);
    });
    HOLDS({
        GIVES(prctl(PR_CAPBSET_READ, CAP_KILL), 1);
        GIVES(prctl(PR_CAPBSET_DROP, CAP_KILL), 0);
        GIVES(prctl(PR_CAPBSET_READ, CAP_KILL), 0);
        FAILS(prctl(PR_CAPBSET_READ, 77), EINVAL);
        FAILS(prctl(PR_CAPBSET_DROP, 77), EINVAL);
        GIVES(prctl(PR_GET_SECUREBITS), 0);
        GIVES(prctl(PR_SET_SECUREBITS, 3), 0);
        GIVES(prctl(PR_GET_SECUREBITS), 3);
        FAILS(prctl(PR_SET_SECUREBITS, 0), EPERM);
        GIVES(lose(CAP_SETPCAP), 0);
        FAILS(prctl(PR_CAPBSET_DROP, CAP_CHOWN), EPERM);
        FAILS(prctl(PR_SET_SECUREBITS, 3), EPERM);
    });
}

// Root without a capability is refused what needs it.
static void refusals(void) {
    HOLDS({
        close(open("file", O_CREAT | O_WRONLY, 0644));
        GIVES(chown("file", USER, USER), 0);
        GIVES(chmod("file", 0400), 0);
        GIVES(mkdir("directory", 0700), 0);
        GIVES(chown("directory", USER, USER), 0);
        GIVES(lose(CAP_DAC_OVERRIDE), 0);
        CHECK(open("file", O_RDONLY) >= 0);
        FAILS(open("file", O_WRONLY), EACCES);
        FAILS(open("directory/none", O_RDONLY), ENOENT);
        FAILS(mkdir("directory/none", 0700), EACCES);
        GIVES(lose(CAP_DAC_READ_SEARCH), 0);
        FAILS(open("file", O_RDONLY), EACCES);
        FAILS(open("directory/none", O_RDONLY), EACCES);
        GIVES(lose(CAP_FOWNER), 0);
        FAILS(chmod("file", 0600), EPERM);
        GIVES(lose(CAP_CHOWN), 0);
        FAILS(chown("file", 0, 0), EPERM);
        GIVES(lose(CAP_SYS_CHROOT), 0);
        FAILS(chroot("."), EPERM);
        if (!emulated) {
            GIVES(lose(CAP_MKNOD), 0);
            FAILS(mknod("device", S_IFCHR | 0600, 1 << 8 | 3), EPERM);
        }
        struct rlimit limit;
        GIVES(getrlimit(RLIMIT_CORE, &limit), 0);
        limit.rlim_cur = limit.rlim_max = 0;
        GIVES(setrlimit(RLIMIT_CORE, &limit), 0);
        limit.rlim_max = 4096;
        GIVES(lose(CAP_SYS_RESOURCE), 0);
        FAILS(setrlimit(RLIMIT_CORE, &limit), EPERM);
    });
    // access(2) asks for the real user, AT_EACCESS for the effective one.
    HOLDS({
        close(open("secret", O_CREAT | O_WRONLY, 0600));
        GIVES(setresuid(USER, 0, 0), 0);
        FAILS(access("secret", R_OK), EACCES);
        CHECK(open("secret", O_RDONLY) >= 0);
        if (!emulated) GIVES(syscall(SYS_faccessat2, AT_FDCWD, "secret", R_OK, AT_EACCESS), 0);
        GIVES(setresuid(0, USER, 0), 0);
        GIVES(access("secret", R_OK), 0);
        FAILS(open("secret", O_RDONLY), EACCES);
    });
}

static int mode_of(const char *path) {
    struct stat s;
    return stat(path, &s) ? -1 : (int)(s.st_mode & 07777);
}

static int reset(const char *path, int owner) {
    return chown(path, owner, GROUP) == 0 && chmod(path, 06777) == 0;
}

// Changes of contents and owner clear the set-ID bits.
static void stripped(void) {
    int fd = open("set-id", O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0);
    CHECK(reset("set-id", USER) && mode_of("set-id") == 06777);
    GIVES(write(fd, "x", 1), 1);
    GIVES(mode_of("set-id"), 06777);
    GIVES(chown("set-id", OTHER, -1), 0);
    GIVES(mode_of("set-id"), 0777);
    GIVES(chmod("set-id", 06767), 0);
    GIVES(chown("set-id", -1, GROUP), 0);
    GIVES(mode_of("set-id"), 02767);
    CHECK(reset("set-id", USER));
    HOLDS({
        GIVES(lose(CAP_FSETID), 0);
        GIVES(pwrite(fd, "y", 1, 0), 1);
        GIVES(mode_of("set-id"), 0777);
    });
    CHECK(reset("set-id", USER));
    HOLDS({
        CHECK(become(OTHER));
        GIVES(ftruncate(fd, 0), 0);
        GIVES(mode_of("set-id"), 0777);
    });
    CHECK(reset("set-id", USER));
    HOLDS({
        CHECK(become(OTHER));
        CHECK(open("set-id", O_WRONLY | O_TRUNC) >= 0);
        GIVES(mode_of("set-id"), 0777);
    });
    CHECK(reset("set-id", USER));
    HOLDS({
        CHECK(become(USER));
        GIVES(chmod("set-id", 06755), 0);
        GIVES(mode_of("set-id"), 04755);
    });
    close(fd);
}

static int seen;
static siginfo_t from;

static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    from = *info;
    seen++;
}

static void signals(void) {
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t target = fork();
    if (target == 0) {
        become(USER);
        signal(SIGUSR1, SIG_IGN);
        signal(SIGCONT, SIG_IGN);
        write(ready[1], "", 1);
        for (;;) pause();
    }
    read(ready[0], &byte, 1);
    HOLDS({
        CHECK(become(OTHER));
        FAILS(kill(target, 0), EPERM);
        FAILS(kill(target, SIGUSR1), EPERM);
        FAILS(syscall(SYS_tkill, target, SIGUSR1), EPERM);
        FAILS(syscall(SYS_tgkill, target, target, SIGUSR1), EPERM);
        GIVES(kill(target, SIGCONT), 0);
        siginfo_t info = {.si_code = SI_QUEUE};
        FAILS(syscall(SYS_rt_sigqueueinfo, target, SIGUSR1, &info), EPERM);
        FAILS(setpriority(PRIO_PROCESS, target, 5), EPERM);
        unsigned long cpus = 1;
        FAILS(syscall(SYS_sched_setaffinity, target, sizeof cpus, &cpus), EPERM);
        struct rlimit limit;
        FAILS(prlimit(target, RLIMIT_CORE, NULL, &limit), EPERM);
    });
    HOLDS({
        CHECK(become(USER));
        GIVES(kill(target, SIGUSR1), 0);
        GIVES(setpriority(PRIO_PROCESS, target, 5), 0);
        GIVES(getpriority(PRIO_PROCESS, target), 5);
        FAILS(setpriority(PRIO_PROCESS, target, 4), EACCES);
    });
    HOLDS({
        // The real user counts too, the effective one of the target does not.
        GIVES(setresuid(USER, OTHER, OTHER), 0);
        GIVES(kill(target, 0), 0);
    });
    HOLDS({
        GIVES(lose(CAP_KILL), 0);
        FAILS(kill(target, 0), EPERM);
    });
    // Only a task itself gets information of the kernel or of kill.
    siginfo_t info = {.si_code = SI_USER};
    FAILS(syscall(SYS_rt_sigqueueinfo, target, SIGUSR1, &info), EPERM);
    info.si_code = SI_TKILL;
    FAILS(syscall(SYS_rt_sigqueueinfo, target, SIGUSR1, &info), EPERM);
    FAILS(syscall(SYS_rt_tgsigqueueinfo, target, target, SIGUSR1, &info), EPERM);
    info.si_code = SI_QUEUE;
    GIVES(syscall(SYS_rt_sigqueueinfo, target, SIGUSR1, &info), 0);
    kill(target, SIGKILL);
    waitpid(target, NULL, 0);
    // The sender's real user.
    HOLDS({
        struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
        GIVES(sigaction(SIGUSR2, &action, NULL), 0);
        GIVES(setresuid(USER, OTHER, OTHER), 0);
        GIVES(kill(getpid(), SIGUSR2), 0);
        CHECK(seen == 1 && from.si_uid == USER && from.si_code == SI_USER);
    });
}

static ssize_t send_as(int fd, pid_t pid, uid_t uid, gid_t gid) {
    struct ucred who = {pid, uid, gid};
    char control[CMSG_SPACE(sizeof who)] = {0};
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){CMSG_LEN(sizeof who), SOL_SOCKET, SCM_CREDENTIALS};
    memcpy(CMSG_DATA(header), &who, sizeof who);
    return sendmsg(fd, &message, 0);
}

static void sockets(void) {
    HOLDS({
        GIVES(setresgid(GROUP, GROUP, GROUP), 0);
        GIVES(setresuid(USER, OTHER, 0), 0);
        int pair[2];
        GIVES(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
        struct ucred peer;
        socklen_t length = sizeof peer;
        GIVES(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &peer, &length), 0);
        CHECK(peer.uid == OTHER && peer.gid == GROUP && peer.pid == getpid());
        if (!emulated) {
            GIVES(send_as(pair[0], getpid(), USER, GROUP), 1);
            GIVES(send_as(pair[0], getpid(), OTHER, GROUP), 1);
            GIVES(send_as(pair[0], getpid(), 0, GROUP), 1);
            FAILS(send_as(pair[0], getpid(), 7, GROUP), EPERM);
            FAILS(send_as(pair[0], getpid(), USER, 0), EPERM);
            FAILS(send_as(pair[0], getppid(), USER, GROUP), EPERM);
        }
    });
}

// What a program that this one executes finds: its exit status counts the differences.
static int program(char **arguments) {
    unsigned wanted[6];
    for (int n = 0; n < 6; n++) wanted[n] = strtoul(arguments[n], NULL, 0);
    int bad = 0;
    bad += !is_user(wanted[0], wanted[1], wanted[1]);
    bad += !is_group(wanted[2], wanted[3], wanted[3]);
    bad += getauxval(AT_UID) != wanted[0] || getauxval(AT_EUID) != wanted[1];
    bad += getauxval(AT_GID) != wanted[2] || getauxval(AT_EGID) != wanted[3];
    bad += getauxval(AT_SECURE) != wanted[4];
    bad += !(sets_of(0).effective & bit(CAP_CHOWN)) != !wanted[5];
    bad += prctl(PR_GET_DUMPABLE) != !wanted[4];
    int signal;
    bad += prctl(PR_GET_PDEATHSIG, &signal) != 0 || signal != (wanted[4] ? 0 : SIGUSR1);
    return bad;
}

// Executes a copy of this program, which expects these identifiers: real and effective user and
// group, whether it has more rights than its caller, and whether CAP_CHOWN is effective.
static void expect(const char *path, const char *users, const char *groups, const char *secure,
                   const char *rights) {
    char text[128], *word[4];
    snprintf(text, sizeof text, "%s %s", users, groups);
    word[0] = strtok(text, " ");
    for (int n = 1; n < 4; n++) word[n] = strtok(NULL, " ");
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    execl(path, "program", "credentials", "--program", word[0], word[1], word[2], word[3],
          secure, rights, NULL);
    _exit(99);
}

static int copy_self(const char *path) {
    static char buffer[1 << 16];
    int in = open("/proc/self/exe", O_RDONLY);
    int out = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0755);
    ssize_t count;
    while ((count = read(in, buffer, sizeof buffer)) > 0)
        if (write(out, buffer, count) != count) return 0;
    close(in);
    return close(out) == 0 && count == 0;
}

static void programs(void) {
    HOLDS({
        // A process whose rights changed is not dumpable.
        GIVES(prctl(PR_GET_DUMPABLE), 1);
        GIVES(setuid(USER), 0);
        GIVES(prctl(PR_GET_DUMPABLE), 0);
    });
    // The reference executes only programs of this machine.
    if (emulated) return;
    CHECK(copy_self("plain") && copy_self("user") && copy_self("group") && copy_self("lock"));
    GIVES(chown("group", OTHER, GROUP), 0);
    GIVES(chown("lock", OTHER, GROUP), 0);
    GIVES(chmod("user", 04755), 0);
    GIVES(chmod("group", 02755), 0);
    GIVES(chmod("lock", 02745), 0);
    CHILD_EXITS(0, expect("./plain", "0 0", "0 0", "0", "1"));
    CHILD_EXITS(0, {
        become(USER);
        expect("./plain", "1000 1000", "1000 1000", "0", "0");
    });
    CHILD_EXITS(0, {
        become(USER);
        expect("./user", "1000 0", "1000 1000", "1", "1");
    });
    CHILD_EXITS(0, {
        become(USER);
        expect("./group", "1000 1000", "1000 2000", "1", "0");
    });
    CHILD_EXITS(0, {
        become(USER);
        expect("./lock", "1000 1000", "1000 1000", "0", "0");
    });
    CHILD_EXITS(0, {
        become(USER);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || !status_has("\nNoNewPrivs:\t1\n")) _exit(98);
        expect("./user", "1000 1000", "1000 1000", "0", "0");
    });
    // Root without CAP_CHOWN in its bounding set; ambient capabilities of a user.
    CHILD_EXITS(0, {
        prctl(PR_CAPBSET_DROP, CAP_CHOWN);
        expect("./plain", "0 0", "0 0", "0", "0");
    });
    CHILD_EXITS(0, {
        prctl(PR_SET_KEEPCAPS, 1);
        become(USER);
        set_sets(bit(CAP_CHOWN), bit(CAP_CHOWN), bit(CAP_CHOWN));
        prctl(AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0);
        expect("./plain", "1000 1000", "1000 1000", "0", "1");
    });
}

int main(int count, char **arguments) {
    if (count == 8 && !strcmp(arguments[1], "--program")) return program(arguments + 2);
    enter(count, arguments);
    CHECK(getpid() > 0);
    if (geteuid() == 0) {
        GIVES(chmod(".", 0755), 0);
        users();
        capabilities();
        refusals();
        stripped();
        signals();
        sockets();
        programs();
    }
    return finish("credentials");
}
