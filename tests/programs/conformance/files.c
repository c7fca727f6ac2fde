// Files: opening, reading, writing, positions, lengths, attributes, links.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

static struct stat of(const char *path) {
    struct stat s;
    memset(&s, 0, sizeof s);
    lstat(path, &s);
    return s;
}

static void opening(void) {
    FAILS(open("none", O_RDONLY), ENOENT);
    FAILS(open("", O_RDONLY), ENOENT);
    int fd = open("a", O_RDWR | O_CREAT | O_EXCL, 0640);
    CHECK(fd >= 0);
    FAILS(open("a", O_RDWR | O_CREAT | O_EXCL, 0640), EEXIST);
    FAILS(open("a", O_RDONLY | O_DIRECTORY), ENOTDIR);
    FAILS(open("a/b", O_RDONLY), ENOTDIR);
    FAILS(open("a/", O_RDONLY), ENOTDIR);
    FAILS(open(".", O_WRONLY), EISDIR);
    FAILS(open("b/", O_WRONLY | O_CREAT, 0600), EISDIR);
    GIVES(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
    GIVES(fcntl(fd, F_GETFD), 0);
    int other = open("a", O_RDONLY | O_CLOEXEC);
    GIVES(fcntl(other, F_GETFD), FD_CLOEXEC);
    FAILS(write(other, "x", 1), EBADF);
    int writer = open("a", O_WRONLY | O_APPEND);
    char byte;
    FAILS(read(writer, &byte, 1), EBADF);
    GIVES(write(writer, "abc", 3), 3);
    GIVES(pread(fd, &byte, 1, 2), 1);
    CHECK(byte == 'c');
    int path = open("a", O_PATH);
    FAILS(read(path, &byte, 1), EBADF);
    FAILS(fchmod(path, 0600), EBADF);
    struct stat s;
    GIVES(fstat(path, &s), 0);
    GIVES(s.st_size, 3);
    int truncated = open("a", O_RDWR | O_TRUNC);
    GIVES(lseek(truncated, 0, SEEK_END), 0);
    int unnamed = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(unnamed >= 0);
    GIVES(write(unnamed, "unnamed", 7), 7);
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", unnamed);
    GIVES(linkat(AT_FDCWD, name, AT_FDCWD, "named", AT_SYMLINK_FOLLOW), 0);
    GIVES(of("named").st_size, 7);
    FAILS(openat(fd, "x", O_RDONLY), ENOTDIR);
    FAILS(openat(9999, "x", O_RDONLY), EBADF);
    FAILS(close(9999), EBADF);
    int descriptors[] = {fd, other, writer, path, truncated, unnamed};
    for (int i = 0; i < 6; i++) GIVES(close(descriptors[i]), 0);
}

static void bytes(void) {
    char buffer[64];
    int fd = open("bytes", O_RDWR | O_CREAT | O_TRUNC, 0600);
    GIVES(write(fd, "0123456789", 10), 10);
    GIVES(lseek(fd, -4, SEEK_END), 6);
    GIVES(read(fd, buffer, 64), 4);
    CHECK(!memcmp(buffer, "6789", 4));
    GIVES(read(fd, buffer, 64), 0);
    GIVES(lseek(fd, 3, SEEK_SET), 3);
    GIVES(lseek(fd, 2, SEEK_CUR), 5);
    FAILS(lseek(fd, -6, SEEK_CUR), EINVAL);
    FAILS(lseek(fd, 0, 77), EINVAL);
    GIVES(pwrite(fd, "ab", 2, 1), 2);
    GIVES(lseek(fd, 0, SEEK_CUR), 5);
    FAILS(pread(fd, buffer, 1, -1), EINVAL);
    FAILS(pwrite(fd, buffer, 1, -1), EINVAL);
    struct iovec parts[3] = {{buffer, 2}, {buffer + 2, 0}, {buffer + 2, 3}};
    GIVES(preadv(fd, parts, 3, 0), 5);
    CHECK(!memcmp(buffer, "0ab34", 5));
    GIVES(readv(fd, parts, 0), 0);
    FAILS(readv(fd, parts, -1), EINVAL);
    parts[0].iov_len = -1;
    FAILS(writev(fd, parts, 3), EINVAL);
    FAILS(read(fd, (void *)8, 1), EFAULT);
    FAILS(write(fd, (void *)8, 1), EFAULT);
    GIVES(write(fd, NULL, 0), 0);
    GIVES(lseek(fd, 100000, SEEK_SET), 100000);
    GIVES(write(fd, "end", 3), 3);
    GIVES(of("bytes").st_size, 100003);
    GIVES(pread(fd, buffer, 8, 50000), 8);
    CHECK(!memcmp(buffer, "\0\0\0\0\0\0\0\0", 8));
    GIVES(lseek(fd, 0, SEEK_DATA), 0);
    FAILS(lseek(fd, 100003, SEEK_DATA), ENXIO);
    FAILS(lseek(fd, 200000, SEEK_HOLE), ENXIO);
    GIVES(ftruncate(fd, 4), 0);
    GIVES(ftruncate(fd, 8), 0);
    GIVES(pread(fd, buffer, 64, 0), 8);
    CHECK(!memcmp(buffer, "0ab3\0\0\0\0", 8));
    FAILS(ftruncate(fd, -1), EINVAL);
    FAILS(truncate("none", 0), ENOENT);
    FAILS(truncate(".", 0), EISDIR);
    GIVES(truncate("bytes", 2), 0);
    GIVES(posix_fallocate(fd, 0, 5000), 0);
    GIVES(of("bytes").st_size, 5000);
    GIVES(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 9000), 0);
    GIVES(of("bytes").st_size, 5000);
    GIVES(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    GIVES(pread(fd, buffer, 1, 0), 1);
    CHECK(buffer[0] == 0);
    FAILS(fallocate(fd, 0, 0, 0), EINVAL);
    FAILS(fallocate(fd, 0, -1, 1), EINVAL);
    GIVES(fsync(fd), 0);
    GIVES(fdatasync(fd), 0);
    close(fd);
}

static void copying(void) {
    char buffer[64];
    int from = open("from", O_RDWR | O_CREAT, 0600), to = open("to", O_RDWR | O_CREAT, 0600);
    GIVES(write(from, "abcdefghij", 10), 10);
    off_t at = 2;
    GIVES(sendfile(to, from, &at, 3), 3);
    GIVES(at, 5);
    lseek(from, 7, SEEK_SET);
    GIVES(sendfile(to, from, NULL, 100), 3);
    GIVES(lseek(from, 0, SEEK_CUR), 10);
    GIVES(pread(to, buffer, 64, 0), 6);
    CHECK(!memcmp(buffer, "cdehij", 6));
    loff_t in = 0, out = 6;
    GIVES(copy_file_range(from, &in, to, &out, 4, 0), 4);
    CHECK(in == 4 && out == 10);
    FAILS(copy_file_range(from, &in, to, &out, 4, 1), EINVAL);
    in = 0, out = 2;
    FAILS(copy_file_range(from, &in, from, &out, 4, 0), EINVAL);
    int directory = open(".", O_RDONLY);
    FAILS(copy_file_range(directory, NULL, to, NULL, 4, 0), EISDIR);
    FAILS(sendfile(from, 9999, NULL, 1), EBADF);
    close(directory), close(from), close(to);
}

static void attributes(void) {
    umask(022);
    close(open("attributes", O_RDWR | O_CREAT, 0666));
    GIVES(of("attributes").st_mode, S_IFREG | 0644);
    GIVES(chmod("attributes", 0751), 0);
    GIVES(of("attributes").st_mode, S_IFREG | 0751);
    GIVES(of("attributes").st_uid, geteuid());
    GIVES(of("attributes").st_nlink, 1);
    FAILS(chmod("none", 0), ENOENT);
    GIVES(chown("attributes", -1, -1), 0);
    struct timespec times[2] = {{1000, 5}, {2000, 7}};
    GIVES(utimensat(AT_FDCWD, "attributes", times, 0), 0);
    struct stat s = of("attributes");
    CHECK(s.st_atim.tv_sec == 1000 && s.st_atim.tv_nsec == 5);
    CHECK(s.st_mtim.tv_sec == 2000 && s.st_mtim.tv_nsec == 7);
    times[0].tv_nsec = UTIME_OMIT, times[1].tv_nsec = 1000000000;
    FAILS(utimensat(AT_FDCWD, "attributes", times, 0), EINVAL);
    times[1].tv_nsec = UTIME_OMIT;
    GIVES(utimensat(AT_FDCWD, "attributes", times, 0), 0);
    GIVES(of("attributes").st_mtim.tv_sec, 2000);
    GIVES(access("attributes", F_OK), 0);
    GIVES(access("attributes", R_OK | W_OK | X_OK), 0);
    FAILS(access("none", F_OK), ENOENT);
    FAILS(access("attributes", 64), EINVAL);
    struct statx x;
    GIVES(statx(AT_FDCWD, "attributes", 0, STATX_ALL, &x), 0);
    CHECK(x.stx_mode == (S_IFREG | 0751) && x.stx_size == 0);
    FAILS(statx(AT_FDCWD, "attributes", 1 << 30, STATX_ALL, &x), EINVAL);
    FAILS(fstatat(AT_FDCWD, "attributes", &s, 1 << 30), EINVAL);
    FAILS(stat("attributes", (struct stat *)8), EFAULT);
    FAILS(stat((char *)8, &s), EFAULT);
    struct statfs f;
    GIVES(statfs(".", &f), 0);
    CHECK(f.f_bsize > 0 && f.f_namelen == 255);
    FAILS(statfs("none", &f), ENOENT);
    mode_t old = umask(077);
    GIVES(old, 022);
    close(open("private", O_CREAT | O_WRONLY, 0666));
    GIVES(of("private").st_mode, S_IFREG | 0600);
    umask(022);
}

enum { GROUP = 4242, OTHER_GROUP = 4243, USER = 1000 };

// Becomes a user with these supplementary groups.
static int become_user(size_t count, const gid_t *groups) {
    return setgroups(count, groups) == 0 && setresgid(USER, USER, USER) == 0 &&
           setresuid(USER, USER, USER) == 0;
}

static int refuses(int result, int error) { return result == -1 && errno == error; }

// Supplementary groups give access by the group permissions. Only root can set them.
static void groups(void) {
    if (geteuid() != 0) return;
    const gid_t own[] = {4000, GROUP};
    GIVES(chmod(".", 0755), 0);
    close(open("grouped", O_CREAT | O_WRONLY, 0640));
    GIVES(chown("grouped", 0, GROUP), 0);
    GIVES(mkdir("shared", 0700), 0);
    GIVES(chown("shared", 0, GROUP), 0);
    GIVES(chmod("shared", 02770), 0);
    close(open("mine", O_CREAT | O_WRONLY, 0644));
    GIVES(chown("mine", USER, USER), 0);
    // Without the group.
    CHILD_EXITS(0, _exit(!(become_user(1, own) && refuses(open("grouped", O_RDONLY), EACCES))));
    CHILD_EXITS(0, _exit(!(become_user(1, own) && refuses(access("shared", X_OK), EACCES))));
    CHILD_EXITS(0, _exit(!(become_user(0, NULL) && refuses(chown("mine", -1, GROUP), EPERM))));
    // With it.
    CHILD_EXITS(0, _exit(!(become_user(2, own) && open("grouped", O_RDONLY) >= 0)));
    CHILD_EXITS(0, _exit(!(become_user(2, own) && refuses(open("grouped", O_WRONLY), EACCES))));
    CHILD_EXITS(0, _exit(!(become_user(2, own) && access("grouped", R_OK) == 0)));
    CHILD_EXITS(0, _exit(!(become_user(2, own) && mkdir("shared/a", 0750) == 0)));
    CHECK(of("shared/a").st_gid == GROUP && (of("shared/a").st_mode & S_ISGID));
    CHILD_EXITS(0, _exit(!(become_user(2, own) && chown("mine", -1, GROUP) == 0)));
    GIVES(of("mine").st_gid, GROUP);
    CHILD_EXITS(0, _exit(!(become_user(2, own) && chmod("mine", 02755) == 0)));
    CHECK(of("mine").st_mode & S_ISGID);
    CHILD_EXITS(0, _exit(!(become_user(1, own) && chmod("mine", 02755) == 0)));
    CHECK(!(of("mine").st_mode & S_ISGID));
    CHILD_EXITS(0, _exit(!(become_user(2, own) && refuses(chown("mine", -1, OTHER_GROUP), EPERM))));
    // A child inherits its parent's groups.
    CHILD_EXITS(0, int status = -1; if (!become_user(2, own)) _exit(1);
                if (fork() == 0) _exit(open("grouped", O_RDONLY) < 0);
                wait(&status); _exit(status != 0));
}

static void links(void) {
    char buffer[300], name[300];
    close(open("one", O_CREAT | O_WRONLY, 0644));
    GIVES(link("one", "two"), 0);
    GIVES(of("one").st_nlink, 2);
    CHECK(of("one").st_ino == of("two").st_ino);
    FAILS(link("one", "two"), EEXIST);
    FAILS(link("none", "three"), ENOENT);
    FAILS(link(".", "three"), EPERM);
    GIVES(unlink("one"), 0);
    FAILS(unlink("one"), ENOENT);
    GIVES(of("two").st_nlink, 1);
    GIVES(symlink("two", "soft"), 0);
    FAILS(symlink("two", "soft"), EEXIST);
    FAILS(symlink("", "empty"), ENOENT);
    GIVES(readlink("soft", buffer, sizeof buffer), 3);
    GIVES(readlink("soft", buffer, 2), 2);
    FAILS(readlink("two", buffer, 2), EINVAL);
    CHECK(S_ISLNK(of("soft").st_mode));
    struct stat s;
    GIVES(stat("soft", &s), 0);
    CHECK(S_ISREG(s.st_mode));
    FAILS(open("soft", O_RDONLY | O_NOFOLLOW), ELOOP);
    GIVES(symlink("loop", "loop"), 0);
    FAILS(open("loop", O_RDONLY), ELOOP);
    FAILS(stat("loop/x", &s), ELOOP);
    GIVES(lstat("loop", &s), 0);
    // 40 links are followed, 41 are not.
    close(open("l0", O_CREAT | O_WRONLY, 0600));
    for (int i = 1; i <= 41; i++) {
        snprintf(buffer, sizeof buffer, "l%d", i - 1);
        snprintf(name, sizeof name, "l%d", i);
        if (symlink(buffer, name) < 0) break;
    }
    GIVES(stat("l40", &s), 0);
    FAILS(stat("l41", &s), ELOOP);
    memset(name, 'n', 256), name[256] = 0;
    FAILS(open(name, O_CREAT | O_WRONLY, 0600), ENAMETOOLONG);
    name[255] = 0;
    int fd = open(name, O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0);
    close(fd);
    char *path = malloc(5000);
    memset(path, '/', 5000), path[4999] = 0;
    FAILS(stat(path, &s), ENAMETOOLONG);
    free(path);
}

static void renaming(void) {
    int fd = open("r1", O_CREAT | O_WRONLY, 0644);
    GIVES(write(fd, "1", 1), 1);
    close(fd);
    close(open("r2", O_CREAT | O_WRONLY, 0644));
    FAILS(renameat2(AT_FDCWD, "r1", AT_FDCWD, "r2", RENAME_NOREPLACE), EEXIST);
    GIVES(renameat2(AT_FDCWD, "r1", AT_FDCWD, "r2", RENAME_EXCHANGE), 0);
    GIVES(of("r2").st_size, 1);
    GIVES(rename("r2", "r1"), 0);
    GIVES(of("r1").st_size, 1);
    FAILS(rename("r2", "r3"), ENOENT);
    GIVES(mkdir("d", 0755), 0);
    FAILS(rename("r1", "d"), EISDIR);
    FAILS(rename("d", "r1"), ENOTDIR);
    FAILS(rename("d", "d/e"), EINVAL);
    GIVES(rename("r1", "d/r1"), 0);
    GIVES(of("d/r1").st_size, 1);
    GIVES(mkdir("e", 0755), 0);
    FAILS_EITHER(rename("e", "d"), ENOTEMPTY, EEXIST);
    GIVES(rename("d", "e"), 0);
    GIVES(of("e/r1").st_size, 1);
    FAILS(rename(".", "x"), EBUSY);
    FAILS(renameat2(AT_FDCWD, "e", AT_FDCWD, "x", 99), EINVAL);
}

static void descriptors(void) {
    int fd = open("descriptor", O_CREAT | O_RDWR, 0644);
    int copy = dup(fd);
    CHECK(copy > fd);
    GIVES(dup2(fd, 60), 60);
    GIVES(dup2(fd, fd), fd);
    GIVES(dup3(fd, 61, O_CLOEXEC), 61);
    GIVES(fcntl(61, F_GETFD), FD_CLOEXEC);
    FAILS(dup3(fd, fd, 0), EINVAL);
    FAILS(dup2(9999, 62), EBADF);
    GIVES(fcntl(fd, F_DUPFD, 70), 70);
    GIVES(fcntl(fd, F_DUPFD_CLOEXEC, 70), 71);
    GIVES(fcntl(fd, F_SETFL, O_APPEND | O_NONBLOCK), 0);
    CHECK((fcntl(copy, F_GETFL) & (O_APPEND | O_NONBLOCK)) == (O_APPEND | O_NONBLOCK));
    GIVES(fcntl(copy, F_SETFD, FD_CLOEXEC), 0);
    GIVES(fcntl(fd, F_GETFD), 0);
    FAILS(fcntl(fd, 12345, 0), EINVAL);
    FAILS(fcntl(9999, F_GETFD), EBADF);
    GIVES(close_range(60, 80, 0), 0);
    FAILS(fcntl(60, F_GETFD), EBADF);
    FAILS(close_range(2, 1, 0), EINVAL);
    close(fd), close(copy);
}

static void running(void) {
    // A copy of this program, which waits if it is told to.
    char *arguments_of[] = {"program", "files", NULL}, *environment[] = {"PAUSE=1", NULL};
    char block[65536];
    int from = open("/proc/self/exe", O_RDONLY), fd = open("program", O_CREAT | O_RDWR, 0755);
    long length;
    while ((length = read(from, block, sizeof block)) > 0) CHECK(write(fd, block, length) == length);
    close(from);
    FAILS(execve("program", arguments_of, environment), ETXTBSY);
    // A descriptor for reading is not in the way, nor one that only names the file.
    close(fd);
    fd = open("program", O_RDONLY);
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t child = CHILD(execve("program", arguments_of, environment));
    close(ends[1]);
    // The pipe ends when the program is replaced.
    GIVES(read(ends[0], block, 1), 0);
    FAILS(open("program", O_WRONLY), ETXTBSY);
    FAILS(open("program", O_RDWR), ETXTBSY);
    FAILS(open("program", O_RDONLY | O_TRUNC), ETXTBSY);
    FAILS(truncate("program", 0), ETXTBSY);
    GIVES(access("program", R_OK | X_OK), 0);
    GIVES(chmod("program", 0700), 0);
    GIVES(rename("program", "other"), 0);
    FAILS(open("other", O_WRONLY), ETXTBSY);
    GIVES(kill(child, SIGKILL), 0);
    GIVES(status_of(child), SIGKILL);
    close(fd), close(ends[0]);
    fd = open("other", O_WRONLY | O_TRUNC);
    CHECK(fd >= 0);
    close(fd);
    GIVES(unlink("other"), 0);
}

// Files without a disk, and names in other file systems.
static void elsewhere(void) {
    static const char *const paths[] = {"/dev/null", "/dev/zero", "/dev/urandom"};
    for (int i = 0; i < 3; i++) {
        int fd = open(paths[i], O_RDWR);
        FAILS(fdatasync(fd), EINVAL);
        FAILS(fsync(fd), EINVAL);
        FAILS(sync_file_range(fd, 0, 0, 0), ESPIPE);
        close(fd);
    }
    FAILS(link("/proc/version", "linked"), EXDEV);
    FAILS(link("/dev/null", "linked"), EXDEV);
    int fd = open("here", O_CREAT | O_RDWR, 0600);
    close(fd);
    FAILS(link("here", "/dev/linked"), EXDEV);
    FAILS(rename("here", "/dev/renamed"), EXDEV);
    GIVES(link("here", "linked"), 0);
    GIVES(unlink("here"), 0);
    GIVES(unlink("linked"), 0);
}

// A hole over the last page of a file frees it.
static void holes(void) {
    struct stat found;
    struct statfs system;
    int fd = open("hole", O_CREAT | O_RDWR | O_TRUNC, 0600);
    GIVES(write(fd, "hello", 5), 5);
    GIVES(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    CHECK(fstat(fd, &found) == 0 && found.st_size == 5);
    // Other file systems than tmpfs may decide on blocks later.
    if (fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC) CHECK(found.st_blocks == 0);
    char byte = 'x';
    CHECK(pread(fd, &byte, 1, 4) == 1 && byte == 0);
    close(fd);
    GIVES(unlink("hole"), 0);
}

int main(int count, char **arguments) {
    if (getenv("PAUSE")) pause();
    enter(count, arguments);
    opening();
    bytes();
    copying();
    attributes();
    groups();
    links();
    renaming();
    descriptors();
    holes();
    elsewhere();
    // qemu itself opens the program.
    if (!emulated) running();
    return finish("files");
}
