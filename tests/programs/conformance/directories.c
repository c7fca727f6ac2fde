// Directories: making, removing, reading, walking, the working directory, attributes of
// their names; extended attributes.
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

static int entries(const char *path, const char *wanted) {
    DIR *directory = opendir(path);
    int number = 0, found = 0;
    if (!directory) return -1;
    for (struct dirent *entry; (entry = readdir(directory));) {
        number++;
        found += strcmp(entry->d_name, wanted) == 0;
    }
    closedir(directory);
    return found ? number : -number;
}

static void making(void) {
    struct stat s;
    GIVES(mkdir("a", 0755), 0);
    FAILS(mkdir("a", 0755), EEXIST);
    FAILS(mkdir("none/b", 0755), ENOENT);
    FAILS(mkdir("", 0755), ENOENT);
    GIVES(mkdir("a/b/", 0700), 0);
    GIVES(stat("a", &s), 0);
    CHECK(S_ISDIR(s.st_mode) && (s.st_mode & 0777) == 0755);
    GIVES(s.st_nlink, 3);
    FAILS_EITHER(rmdir("a"), ENOTEMPTY, EEXIST);
    FAILS(rmdir("a/b/."), EINVAL);
    FAILS_EITHER(rmdir("a/b/.."), ENOTEMPTY, EEXIST);
    FAILS(unlink("a/b"), EISDIR);
    GIVES(rmdir("a/b"), 0);
    FAILS(rmdir("a/b"), ENOENT);
    close(open("file", O_CREAT | O_WRONLY, 0600));
    FAILS(rmdir("file"), ENOTDIR);
    FAILS(mkdir("file/x", 0755), ENOTDIR);
    FAILS(unlinkat(AT_FDCWD, "file", 1 << 20), EINVAL);
    GIVES(unlinkat(AT_FDCWD, "a", AT_REMOVEDIR), 0);
    GIVES(mkfifo("fifo", 0600), 0);
    GIVES(stat("fifo", &s), 0);
    CHECK(S_ISFIFO(s.st_mode));
    GIVES(mknod("node", S_IFREG | 0600, 0), 0);
    FAILS(mknod("node", S_IFREG | 0600, 0), EEXIST);
    FAILS(mknod("strange", 0150000, 0), EINVAL);
}

static void reading(void) {
    char name[64], buffer[4096];
    GIVES(mkdir("many", 0755), 0);
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "many/%03d", i);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    GIVES(entries("many", "299"), 302);
    GIVES(entries("many", "."), 302);
    GIVES(entries("many", ".."), 302);
    GIVES(entries("many", "300"), -302);
    for (int i = 0; i < 300; i += 2) {
        snprintf(name, sizeof name, "many/%03d", i);
        unlink(name);
    }
    GIVES(entries("many", "001"), 152);
    int fd = open("many", O_RDONLY | O_DIRECTORY);
    FAILS(syscall(SYS_getdents64, fd, buffer, 8), EINVAL);
    FAILS(syscall(SYS_getdents64, fd, 8, 4096), EFAULT);
    if (!emulated) CHECK(syscall(SYS_getdents64, fd, buffer, 4096) > 24);
    GIVES(lseek(fd, 0, SEEK_SET), 0);
    CHECK(syscall(SYS_getdents64, fd, buffer, 64) > 0);
    FAILS(read(fd, buffer, 1), EISDIR);
    close(fd);
    fd = open("file", O_RDONLY);
    FAILS(syscall(SYS_getdents64, fd, buffer, 4096), ENOTDIR);
    close(fd);
    FAILS(syscall(SYS_getdents64, 9999, buffer, 4096), EBADF);
}

static void working(void) {
    char start[4096], now[4096];
    CHECK(getcwd(start, sizeof start) != NULL);
    GIVES(mkdir("w", 0755), 0);
    GIVES(chdir("w"), 0);
    CHECK(getcwd(now, sizeof now) != NULL);
    CHECK(!strncmp(now, start, strlen(start)) && !strcmp(now + strlen(start), "/w"));
    FAILS(syscall(SYS_getcwd, now, 2), ERANGE);
    FAILS(chdir("../file"), ENOTDIR);
    FAILS(chdir("../none"), ENOENT);
    GIVES(rmdir("../w"), 0);
    FAILS(syscall(SYS_getcwd, now, sizeof now), ENOENT);
    FAILS(open("x", O_CREAT | O_WRONLY, 0600), ENOENT);
    FAILS(mkdir("y", 0700), ENOENT);
    GIVES(chdir(start), 0);
    int fd = open(".", O_RDONLY);
    GIVES(chdir("many"), 0);
    GIVES(fchdir(fd), 0);
    CHECK(getcwd(now, sizeof now) != NULL && !strcmp(now, start));
    FAILS(fchdir(9999), EBADF);
    int file = openat(fd, "file", O_RDONLY);
    CHECK(file >= 0);
    FAILS(fchdir(file), ENOTDIR);
    GIVES(faccessat(fd, "many", X_OK, 0), 0);
    GIVES(mkdirat(fd, "at", 0755), 0);
    GIVES(symlinkat("many", fd, "at/link"), 0);
    GIVES(readlinkat(fd, "at/link", now, 10), 4);
    GIVES(unlinkat(fd, "at/link", 0), 0);
    GIVES(unlinkat(fd, "at", AT_REMOVEDIR), 0);
    CHILD_EXITS(0, if (chdir("many") < 0) _exit(1));
    CHECK(getcwd(now, sizeof now) != NULL && !strcmp(now, start));
    close(fd), close(file);
}

// All users may set `user.` attributes of files and directories.
static void extended(void) {
    char buffer[64];
    int fd = open("extended", O_CREAT | O_RDWR, 0600);
    FAILS_EITHER(getxattr("extended", "user.a", buffer, 64), ENODATA, EOPNOTSUPP);
    FAILS(getxattr("none", "user.a", buffer, 64), ENOENT);
    FAILS(setxattr("extended", "strange", "v", 1, 0), EOPNOTSUPP);
    FAILS(fgetxattr(9999, "user.a", buffer, 64), EBADF);
    // Not every file system has them.
    int has = setxattr("extended", "user.a", "value", 5, 0) == 0 || errno != EOPNOTSUPP;
    CHECK(has || !getenv("HAS_XATTR"));
    if (!has) return;
    GIVES(setxattr("extended", "user.a", "value", 5, 0), 0);
    GIVES(getxattr("extended", "user.a", NULL, 0), 5);
    GIVES(fgetxattr(fd, "user.a", buffer, 64), 5);
    CHECK(!memcmp(buffer, "value", 5));
    FAILS(getxattr("extended", "user.a", buffer, 4), ERANGE);
    FAILS(setxattr("extended", "user.a", "x", 1, XATTR_CREATE), EEXIST);
    FAILS(setxattr("extended", "user.b", "x", 1, XATTR_REPLACE), ENODATA);
    FAILS(setxattr("extended", "user.b", "x", 1, 4), EINVAL);
    GIVES(fsetxattr(fd, "user.b", "", 0, XATTR_CREATE), 0);
    GIVES(getxattr("extended", "user.b", buffer, 64), 0);
    GIVES(listxattr("extended", NULL, 0), 14);
    GIVES(flistxattr(fd, buffer, 64), 14);
    CHECK(memmem(buffer, 14, "user.a", 7) && memmem(buffer, 14, "user.b", 7));
    FAILS(listxattr("extended", buffer, 13), ERANGE);
    GIVES(removexattr("extended", "user.a"), 0);
    FAILS(removexattr("extended", "user.a"), ENODATA);
    GIVES(listxattr("extended", buffer, 64), 7);
    GIVES(link("extended", "other"), 0);
    GIVES(getxattr("other", "user.b", buffer, 64), 0);
    GIVES(symlink("extended", "soft"), 0);
    GIVES(getxattr("soft", "user.b", buffer, 64), 0);
    FAILS(lgetxattr("soft", "user.b", buffer, 64), ENODATA);
    FAILS(lsetxattr("soft", "user.b", "x", 1, 0), EPERM);
    GIVES(setxattr("many", "user.d", "directory", 9, 0), 0);
    GIVES(getxattr("many", "user.d", buffer, 64), 9);
    char name[300] = "user.";
    memset(name + 5, 'n', 260);
    FAILS(setxattr("extended", name, "x", 1, 0), ERANGE);
    FAILS(setxattr("extended", "user.c", (void *)8, 1, 0), EFAULT);
    close(fd);
}

int main(int count, char **arguments) {
    umask(022);
    enter(count, arguments);
    making();
    reading();
    working();
    extended();
    return finish("directories");
}
