// Children that signals end, and the core dumps that they leave: one line for each case.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL RLIM_INFINITY

// Written, so that it is in the core dump.
static char data[1 << 20];

static void limit(int resource, rlim_t value) {
    struct rlimit both = {value, value};
    if (setrlimit(resource, &both)) {
        _exit(98);
    }
}

// A child that this signal ends, or a fault, with this limit. Shows the end, and the file.
static void child(const char *name, rlim_t bytes, void (*before)(void), int signal) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        limit(RLIMIT_CORE, bytes);
        if (before) {
            before();
        }
        memset(data, 7, sizeof data);
        if (signal) {
            kill(getpid(), signal);
            pause();
        }
        *(volatile int *)8 = 1;
    }
    siginfo_t info;
    memset(&info, 0, sizeof info);
    waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
    int status;
    waitpid(pid, &status, 0);
    const char *code = info.si_code == CLD_DUMPED ? "dumped" : "killed";
    const char *core = WCOREDUMP(status) ? " with a core dump" : "";
    printf("%s: signal %d%s, %s", name, WTERMSIG(status), core, code);
    struct stat found;
    if (lstat("core", &found)) {
        printf(", no file\n");
        return;
    }
    const char *size = found.st_size == 0 ? "empty" : "cut";
    if (found.st_size > (long)sizeof data) {
        size = "whole";
    }
    printf(", %s file, mode %o, owner %u\n", size, found.st_mode & 07777, found.st_uid);
    if (S_ISREG(found.st_mode)) {
        char magic[5] = "";
        int file = open("core", O_RDONLY);
        if (file >= 0 && read(file, magic, 4) == 4) {
            printf("  %s\n", memcmp(magic, "\177ELF", 4) ? "not ELF" : "ELF");
        }
        close(file);
    }
}

static void undumpable(void) {
    prctl(PR_SET_DUMPABLE, 0);
}

static void other_user(void) {
    if (setresuid(1000, 1000, 1000)) {
        _exit(97);
    }
}

static void other_user_dumpable(void) {
    other_user();
    prctl(PR_SET_DUMPABLE, 1);
}

static void no_files(void) {
    limit(RLIMIT_FSIZE, 0);
}

static void no_descriptors(void) {
    limit(RLIMIT_NOFILE, 0);
}

static void elsewhere(void) {
    if (chdir("/proc")) {
        _exit(96);
    }
}

static void put(int mode) {
    int file = open("core", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (write(file, "old", 3) != 3) {
        exit(95);
    }
    fchmod(file, mode);
    close(file);
}

int main(void) {
    umask(0);
    if (mkdir("/tmp/dumps", 0777) || chdir("/tmp/dumps")) {
        return 1;
    }
    child("none", 0, NULL, 0);
    child("below a page", 4095, NULL, 0);
    child("all", ALL, NULL, 0);
    child("again", ALL, NULL, SIGABRT);
    unlink("core");
    child("terminated", ALL, NULL, SIGTERM);
    child("killed", ALL, NULL, SIGKILL);
    child("quit", ALL, NULL, SIGQUIT);
    unlink("core");
    child("limit", 256 << 10, NULL, 0);
    unlink("core");
    child("undumpable", ALL, undumpable, 0);
    child("other user", ALL, other_user, 0);
    child("other user, dumpable", ALL, other_user_dumpable, 0);
    child("file of another user", ALL, NULL, 0);
    unlink("core");
    child("no files", ALL, no_files, 0);
    child("no descriptors", ALL, no_descriptors, 0);
    unlink("core");
    child("folder that takes no files", ALL, elsewhere, 0);
    put(0600);
    child("own file", ALL, NULL, 0);
    put(0644);
    child("readable file", ALL, NULL, 0);
    put(0600);
    link("core", "second");
    child("file with two names", ALL, NULL, 0);
    unlink("core");
    symlink("second", "core");
    child("symbolic link", ALL, NULL, 0);
    unlink("core");
    mkdir("core", 0700);
    child("folder", ALL, NULL, 0);
    rmdir("core");
    mkfifo("core", 0600);
    child("pipe", ALL, NULL, 0);
    unlink("core");
    struct stat second;
    stat("second", &second);
    printf("second: %d bytes\n", (int)second.st_size);
    mkdir("full", 0777);
    if (mount("none", "full", "tmpfs", 0, "size=256k") || chdir("full")) {
        printf("no mount: %s\n", strerror(errno));
        return 2;
    }
    child("full", ALL, NULL, 0);
    return 0;
}
