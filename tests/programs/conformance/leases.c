// Leases: who may have one, and what happens when another opens the file; notifications about
// directories; vhangup.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>

static volatile int signals, code, told;

static void lease_breaks(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    signals++;
    code = info->si_code;
    told = info->si_fd;
}

static void handle(int signal, int flags) {
    struct sigaction action = {.sa_sigaction = lease_breaks, .sa_flags = SA_SIGINFO | flags};
    sigaction(signal, &action, NULL);
}

static void holders(void) {
    int reader = open("file", O_RDONLY | O_CREAT, 0600), writer = open("file", O_RDWR);
    int directory = open(".", O_RDONLY), path = open("file", O_PATH);
    GIVES(fcntl(reader, F_GETLEASE), F_UNLCK);
    FAILS(fcntl(reader, F_SETLEASE, 7), EINVAL);
    FAILS(fcntl(directory, F_SETLEASE, F_RDLCK), EINVAL);
    FAILS(fcntl(path, F_SETLEASE, F_RDLCK), EBADF);
    FAILS(fcntl(reader, F_SETLEASE, F_UNLCK), EAGAIN);
    // One that writes forbids both kinds, one that reads only the other.
    FAILS(fcntl(reader, F_SETLEASE, F_RDLCK), EAGAIN);
    FAILS(fcntl(reader, F_SETLEASE, F_WRLCK), EAGAIN);
    FAILS(fcntl(writer, F_SETLEASE, F_WRLCK), EAGAIN);
    close(writer);
    int other = open("file", O_RDONLY);
    FAILS(fcntl(reader, F_SETLEASE, F_WRLCK), EAGAIN);
    GIVES(fcntl(reader, F_SETLEASE, F_RDLCK), 0);
    GIVES(fcntl(reader, F_GETLEASE), F_RDLCK);
    GIVES(fcntl(other, F_GETLEASE), F_UNLCK);
    GIVES(fcntl(other, F_SETLEASE, F_RDLCK), 0);
    close(other);
    GIVES(fcntl(reader, F_SETLEASE, F_WRLCK), 0);
    GIVES(fcntl(reader, F_GETLEASE), F_WRLCK);
    int copy = dup(reader);
    GIVES(fcntl(copy, F_GETLEASE), F_WRLCK);
    GIVES(fcntl(copy, F_SETLEASE, F_UNLCK), 0);
    GIVES(fcntl(reader, F_GETLEASE), F_UNLCK);
    close(copy), close(directory), close(path), close(reader);
    CHILD_EXITS(0, {
        int fd = open("file", O_RDONLY);
        if (setgid(1) || setuid(1)) _exit(1);
        _exit(fcntl(fd, F_SETLEASE, F_RDLCK) != -1 || errno != EACCES);
    });
}

static void breaks(void) {
    sigset_t all, none;
    sigfillset(&all), sigemptyset(&none);
    handle(SIGIO, 0), handle(SIGRTMIN, 0);
    int fd = open("file", O_RDWR);
    GIVES(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
    GIVES(fcntl(fd, F_GETOWN), getpid());
    // It does not wait: the holder is told once.
    FAILS(open("file", O_RDONLY | O_NONBLOCK), EWOULDBLOCK);
    GIVES(signals, 1);
    GIVES(code, SI_KERNEL);
    GIVES(fcntl(fd, F_GETLEASE), F_RDLCK);
    FAILS(open("file", O_RDONLY | O_NONBLOCK), EWOULDBLOCK);
    GIVES(signals, 1);
    GIVES(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
    GIVES(close(open("file", O_RDONLY | O_NONBLOCK)), 0);

    GIVES(fcntl(fd, F_SETSIG, SIGRTMIN), 0);
    GIVES(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
    FAILS(open("file", O_WRONLY | O_TRUNC | O_NONBLOCK), EWOULDBLOCK);
    GIVES(signals, 2);
    GIVES(code, POLL_MSG);
    GIVES(told, fd);
    GIVES(fcntl(fd, F_GETLEASE), F_UNLCK);
    GIVES(close(fd), 0);

    // A read lease holds against those that write.
    fd = open("file", O_RDONLY);
    GIVES(fcntl(fd, F_SETSIG, SIGRTMIN), 0);
    GIVES(fcntl(fd, F_SETLEASE, F_RDLCK), 0);
    GIVES(close(open("file", O_RDONLY)), 0);
    GIVES(signals, 2);
    FAILS(open("file", O_RDWR | O_NONBLOCK), EWOULDBLOCK);
    GIVES(signals, 3);
    GIVES(fcntl(fd, F_GETLEASE), F_UNLCK);
    GIVES(fcntl(fd, F_SETLEASE, F_UNLCK), 0);

    // The opening waits until the holder gives its lease back, or closes the file.
    for (int closes = 0; closes < 2; closes++) {
        sigprocmask(SIG_BLOCK, &all, NULL);
        GIVES(fcntl(fd, F_SETLEASE, F_RDLCK), 0);
        pid_t child = CHILD({
            close(fd);
            _exit(open("file", O_WRONLY) < 0);
        });
        sigsuspend(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        GIVES(signals, 4 + closes);
        wait_until_asleep(child);
        GIVES(waitpid(child, NULL, WNOHANG), 0);
        GIVES(closes ? close(fd) : fcntl(fd, F_SETLEASE, F_UNLCK), 0);
        int status = status_of(child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    // A truncation waits too; a signal ends the wait.
    fd = open("file", O_RDONLY);
    GIVES(fcntl(fd, F_SETSIG, SIGRTMIN), 0);
    GIVES(fcntl(fd, F_SETLEASE, F_RDLCK), 0);
    handle(SIGALRM, 0);
    for (int truncates = 0; truncates < 2; truncates++)
        CHILD_EXITS(0, {
            // Again and again: the first may come before the call waits.
            struct itimerval soon = {.it_value.tv_usec = 20000, .it_interval.tv_usec = 20000};
            setitimer(ITIMER_REAL, &soon, NULL);
            int result = truncates ? truncate("file", 0) : open("file", O_WRONLY);
            _exit(result != -1 || errno != EINTR);
        });
    GIVES(signals, 6);
    close(fd);
}

// Copies this program to a file that can be executed.
static void copy_program(const char *path) {
    static char part[1 << 16];
    int from = open("/proc/self/exe", O_RDONLY), to = open(path, O_CREAT | O_WRONLY, 0755);
    long count;
    while ((count = read(from, part, sizeof part)) > 0) GIVES(write(to, part, count), count);
    close(from), close(to);
}

// An execution opens the file as open does for reading.
static void executes(void) {
    sigset_t all, none;
    sigfillset(&all), sigemptyset(&none);
    copy_program("program");
    handle(SIGRTMIN, 0);
    signals = 0;
    // The file of a script's interpreter counts too.
    int script = open("script", O_CREAT | O_WRONLY, 0755);
    char line[4200], cwd[4096];
    CHECK(getcwd(cwd, sizeof cwd));
    int length = snprintf(line, sizeof line, "#!%s/program leases\n", cwd);
    GIVES(write(script, line, length), length);
    close(script);
    for (int i = 0; i < 4; i++) {
        int fd = open("program", O_RDONLY), kind = i == 3 ? F_RDLCK : F_WRLCK;
        GIVES(fcntl(fd, F_SETSIG, SIGRTMIN), 0);
        GIVES(fcntl(fd, F_SETLEASE, kind), 0);
        sigprocmask(SIG_BLOCK, &all, NULL);
        const char *path = i == 2 ? "script" : "program";
        pid_t child = CHILD({
            close(fd);
            sigprocmask(SIG_SETMASK, &none, NULL);
            execl(path, "program", "leases", "ends", NULL);
            _exit(1);
        });
        if (kind == F_WRLCK) {
            sigsuspend(&none);
            GIVES(signals, i + 1);
            GIVES(told, fd);
            GIVES(fcntl(fd, F_GETLEASE), F_RDLCK);
            wait_until_asleep(child);
            GIVES(waitpid(child, NULL, WNOHANG), 0);
            // Less than the end of the lease is enough.
            GIVES(fcntl(fd, F_SETLEASE, i == 1 ? F_UNLCK : F_RDLCK), 0);
        }
        sigprocmask(SIG_SETMASK, &none, NULL);
        GIVES(status_of(child), 0);
        GIVES(signals, i < 3 ? i + 1 : 3);
        close(fd);
    }
    // A signal ends the wait, and the old program goes on.
    int fd = open("program", O_RDONLY);
    GIVES(fcntl(fd, F_SETSIG, SIGRTMIN), 0);
    GIVES(fcntl(fd, F_SETLEASE, F_WRLCK), 0);
    handle(SIGALRM, 0);
    CHILD_EXITS(0, {
        // Again and again: the first may come before the call waits.
        struct itimerval soon = {.it_value.tv_usec = 20000, .it_interval.tv_usec = 20000};
        setitimer(ITIMER_REAL, &soon, NULL);
        int result = execl("program", "program", "leases", "ends", NULL);
        _exit(result != -1 || errno != EINTR);
    });
    close(fd);
}

static void directories(void) {
    mkdir("dir", 0755);
    handle(SIGIO, 0), handle(SIGRTMIN, 0);
    signals = 0;
    int fd = open("dir", O_RDONLY), file = open("file", O_RDONLY);
    FAILS(fcntl(file, F_NOTIFY, DN_CREATE), ENOTDIR);
    close(file);
    GIVES(fcntl(fd, F_NOTIFY, DN_CREATE), 0);
    GIVES(fcntl(fd, F_GETOWN), getpid());
    close(open("dir/a", O_CREAT | O_WRONLY, 0600));
    GIVES(signals, 1);
    GIVES(code, SI_KERNEL);
    // It comes once, unless all are wanted.
    close(open("dir/b", O_CREAT | O_WRONLY, 0600));
    GIVES(signals, 1);
    GIVES(fcntl(fd, F_SETSIG, SIGRTMIN), 0);
    GIVES(fcntl(fd, F_NOTIFY, DN_MULTISHOT | DN_MODIFY | DN_ATTRIB), 0);
    GIVES(fcntl(fd, F_NOTIFY, DN_MULTISHOT | DN_DELETE), 0);
    file = open("dir/a", O_RDWR);
    GIVES(signals, 1);
    GIVES(write(file, "x", 1), 1);
    GIVES(signals, 2);
    GIVES(code, POLL_MSG);
    GIVES(told, fd);
    close(file);
    GIVES(chmod("dir/a", 0644), 0);
    GIVES(signals, 3);
    GIVES(rename("dir/a", "dir/c"), 0);
    GIVES(signals, 4);
    GIVES(unlink("dir/c"), 0);
    GIVES(signals, 5);
    GIVES(mkdir("dir/d", 0700), 0);
    GIVES(signals, 5);
    GIVES(rmdir("dir/d"), 0);
    GIVES(signals, 6);
    GIVES(fcntl(fd, F_NOTIFY, 0), 0);
    GIVES(unlink("dir/b"), 0);
    GIVES(signals, 6);
    GIVES(fcntl(fd, F_NOTIFY, DN_MULTISHOT | DN_CREATE), 0);
    close(fd);
    GIVES(mkdir("dir/d", 0700), 0);
    GIVES(signals, 6);
}

static void hangs_up(void) {
    CHILD_EXITS(0, {
        if (setgid(1) || setuid(1)) _exit(1);
        _exit(vhangup() != -1 || errno != EPERM);
    });
    // Without a terminal there is nothing to hang up.
    CHILD_EXITS(0, setsid(); _exit(vhangup() != 0));
}

int main(int count, char **arguments) {
    // The program of `executes`.
    if (!strcmp(arguments[count - 1], "ends")) return 0;
    enter(count, arguments);
    holders();
    breaks();
    // qemu does not execute programs of another machine.
    if (!emulated) executes();
    directories();
    hangs_up();
    return finish("leases");
}
