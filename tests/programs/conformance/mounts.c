// Mounts: tmpfs, proc, bind mounts, flags, busy mounts, moves, the root.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <utime.h>

static char here[2048];

static int make(const char *path) {
    int fd = open(path, O_CREAT | O_WRONLY, 0644);
    if (fd >= 0) close(fd);
    return fd < 0 ? -1 : 0;
}

static ino_t number(const char *path) {
    struct stat status;
    return stat(path, &status) < 0 ? 0 : status.st_ino;
}

static dev_t device(const char *path) {
    struct stat status;
    return stat(path, &status) < 0 ? 0 : status.st_dev;
}

// Number of lines of a file of /proc that contain the path of a mount point and a text.
static int lines(const char *file, const char *point, const char *text) {
    char line[4096], path[4096];
    int count = 0;
    FILE *mounts = fopen(file, "r");
    snprintf(path, sizeof path, " %s/%s ", here, point);
    while (mounts && fgets(line, sizeof line, mounts))
        count += strstr(line, path) && strstr(line, text);
    if (mounts) fclose(mounts);
    return count;
}

static void errors(void) {
    mkdir("d", 0755), mkdir("e", 0755), make("f");
    FAILS(mount("x", "d", "no-such-type", 0, NULL), ENODEV);
    FAILS(mount("x", "d", NULL, 0, NULL), EINVAL);
    FAILS(mount("x", "missing", "tmpfs", 0, NULL), ENOENT);
    FAILS(mount("x", "f", "tmpfs", 0, NULL), ENOTDIR);
    FAILS(mount("x", (char *)8, "tmpfs", 0, NULL), EFAULT);
    FAILS(mount((char *)8, "d", "tmpfs", 0, NULL), EFAULT);
    FAILS(mount("x", "d", "tmpfs", 0, "mode=9"), EINVAL);
    FAILS(mount("x", "d", "tmpfs", 0, "nonsense"), EINVAL);
    FAILS(mount(NULL, "d", NULL, MS_BIND, NULL), EINVAL);
    FAILS(mount("missing", "d", NULL, MS_BIND, NULL), ENOENT);
    FAILS(mount("f", "d", NULL, MS_BIND, NULL), ENOTDIR);
    FAILS(mount("d", "f", NULL, MS_BIND, NULL), ENOTDIR);
    FAILS(mount("x", "d", NULL, MS_REMOUNT, NULL), EINVAL);
    FAILS(mount(NULL, "d", NULL, MS_PRIVATE, NULL), EINVAL);
    FAILS(mount(NULL, "d", NULL, MS_PRIVATE | MS_SHARED, NULL), EINVAL);
    FAILS(mount("d", "d", NULL, MS_MOVE, NULL), EINVAL);
    FAILS(umount("d"), EINVAL);
    FAILS(umount("missing"), ENOENT);
    FAILS(umount2("d", 1 << 20), EINVAL);
    // The directory is in the mount of the root, or is not the root of its mount.
    FAILS_EITHER(syscall(SYS_pivot_root, "d", "d"), EBUSY, EINVAL);
    CHILD_EXITS(0, {
        if (setgid(1) || setuid(1)) _exit(1);
        if (mount("x", "/", "tmpfs", 0, NULL) != -1 || errno != EPERM) _exit(2);
        if (umount("/") != -1 || errno != EPERM) _exit(3);
        _exit(syscall(SYS_pivot_root, "/", "/") != -1 || errno != EPERM);
    });
}

static void memory(void) {
    struct stat status;
    struct statfs info;
    char path[4096];
    static char zeros[20000];
    make("d/below");
    GIVES(mount("a name", "d", "tmpfs", MS_NOSUID, "size=16k,mode=750,uid=3,gid=4"), 0);
    FAILS(access("d/below", F_OK), ENOENT);
    GIVES(stat("d", &status), 0);
    GIVES(status.st_mode, S_IFDIR | 0750);
    GIVES(status.st_uid, 3);
    GIVES(status.st_gid, 4);
    CHECK(device("d") != device("."));
    GIVES(number("d/.."), number("."));
    GIVES(statfs("d", &info), 0);
    GIVES(info.f_type, 0x01021994);
    GIVES(info.f_blocks * info.f_bsize, 16384);
    GIVES(info.f_bfree, info.f_blocks);
    GIVES(info.f_flags & (MS_NOSUID | MS_RDONLY), MS_NOSUID);
    GIVES(lines("/proc/mounts", "d", "a\\040name "), 1);
    GIVES(lines("/proc/self/mounts", "d", " tmpfs rw,nosuid"), 1);
    GIVES(lines("/proc/self/mountinfo", "d", " / "), 1);
    snprintf(path, sizeof path, " %u:%u ", major(device("d")), minor(device("d")));
    GIVES(lines("/proc/self/mountinfo", "d", path), 1);
    // Its size limits the data.
    int fd = open("d/data", O_CREAT | O_RDWR, 0600);
    GIVES(write(fd, zeros, 16384), 16384);
    FAILS(write(fd, zeros, 1), ENOSPC);
    GIVES(statfs("d/data", &info), 0);
    GIVES(info.f_bfree, 0);
    GIVES(ftruncate(fd, 0), 0);
    GIVES(write(fd, "x", 1), 1);
    // It is another file system, and in use.
    FAILS(rename("d/data", "data"), EXDEV);
    FAILS(rename("f", "d/f"), EXDEV);
    FAILS(link("d/data", "data"), EXDEV);
    FAILS(rmdir("d"), EBUSY);
    FAILS(rename("d", "e"), EBUSY);
    FAILS(umount("d"), EBUSY);
    close(fd);
    GIVES(chdir("d"), 0);
    snprintf(path, sizeof path, "%s/d", here);
    char cwd[4096] = "";
    CHECK(getcwd(cwd, sizeof cwd));
    GIVES(strcmp(cwd, path), 0);
    FAILS(umount("."), EBUSY);
    GIVES(chdir(".."), 0);
    CHECK(getcwd(cwd, sizeof cwd));
    GIVES(strcmp(cwd, here), 0);
    // A second mount hides the first.
    GIVES(mount("b", "d", "tmpfs", 0, NULL), 0);
    FAILS(access("d/data", F_OK), ENOENT);
    GIVES(stat("d", &status), 0);
    GIVES(status.st_mode, S_IFDIR | 01777);
    GIVES(lines("/proc/mounts", "d", " tmpfs "), 2);
    GIVES(umount("d"), 0);
    GIVES(access("d/data", F_OK), 0);
    GIVES(mount(NULL, "d", NULL, MS_REMOUNT, "size=32k"), 0);
    GIVES(statfs("d", &info), 0);
    GIVES(info.f_blocks * info.f_bsize, 32768);
    GIVES(umount("d"), 0);
    GIVES(access("d/below", F_OK), 0);
    GIVES(lines("/proc/mounts", "d", ""), 0);
}

// A mount ends at the second request, if it was not used in between.
static void expires(void) {
    struct stat status;
    GIVES(mount("x", "d", "tmpfs", 0, NULL), 0);
    make("d/file");
    FAILS(umount2("d", MNT_EXPIRE | MNT_DETACH), EINVAL);
    FAILS(umount2("d", MNT_EXPIRE | MNT_FORCE), EINVAL);
    FAILS(umount2("/", MNT_EXPIRE), EINVAL);
    FAILS(umount2("e", MNT_EXPIRE), EINVAL);
    FAILS(umount2("missing", MNT_EXPIRE), ENOENT);
    int fd = open("d/file", O_RDONLY);
    FAILS(umount2("d", MNT_EXPIRE), EBUSY);
    close(fd);
    FAILS(umount2("d", MNT_EXPIRE), EAGAIN);
    // Each of these uses takes the mark away; other mounts do not.
    GIVES(stat("d/file", &status), 0);
    FAILS(umount2("d", MNT_EXPIRE), EAGAIN);
    close(open("d/file", O_RDONLY));
    FAILS(umount2("d", MNT_EXPIRE), EAGAIN);
    GIVES(mkdir("d/sub", 0755), 0);
    FAILS(umount2("d", MNT_EXPIRE), EAGAIN);
    GIVES(mount("x", "d/sub", "tmpfs", 0, NULL), 0);
    FAILS(umount2("d", MNT_EXPIRE), EBUSY);
    FAILS(umount2("d/sub", MNT_EXPIRE), EAGAIN);
    GIVES(umount2("d/sub", MNT_EXPIRE), 0);
    FAILS(umount2("d", MNT_EXPIRE), EAGAIN);
    GIVES(stat(".", &status), 0);
    FAILS(umount2("missing", MNT_EXPIRE), ENOENT);
    GIVES(umount2("d", MNT_EXPIRE), 0);
    FAILS(access("d/file", F_OK), ENOENT);
    // A mark does not outlive its mount.
    GIVES(mount("x", "d", "tmpfs", 0, NULL), 0);
    FAILS(umount2("d", MNT_EXPIRE), EAGAIN);
    GIVES(umount("d"), 0);
    GIVES(mount("x", "d", "tmpfs", 0, NULL), 0);
    FAILS(umount2("d", MNT_EXPIRE), EAGAIN);
    GIVES(umount2("d", MNT_EXPIRE), 0);
}

static void flags(void) {
    GIVES(mount("x", "d", "tmpfs", MS_NODEV | MS_NOEXEC | MS_NOATIME, NULL), 0);
    GIVES(lines("/proc/mounts", "d", "nodev,noexec,noatime"), 1);
    GIVES(mknod("d/null", S_IFCHR | 0666, makedev(1, 3)), 0);
    FAILS(open("d/null", O_RDONLY), EACCES);
    int fd = open("d/script", O_CREAT | O_RDWR, 0755);
    GIVES(write(fd, "#!/bin/true\n", 12), 12);
    FAILS(access("d/script", X_OK), EACCES);
    FAILS(execl("d/script", "script", NULL), EACCES);
    FAILS((long)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0), EPERM);
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    FAILS(mprotect(mapped, 4096, PROT_READ | PROT_EXEC), EACCES);
    GIVES(munmap(mapped, 4096), 0);
    // Nobody may write a file that is to become read-only.
    FAILS(mount(NULL, "d", NULL, MS_REMOUNT | MS_RDONLY, NULL), EBUSY);
    FAILS(mount(NULL, "d", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), EBUSY);
    close(fd);
    GIVES(mount(NULL, "d", NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    GIVES(lines("/proc/mounts", "d", " tmpfs ro,noatime"), 1);
    FAILS(open("d/new", O_CREAT | O_WRONLY, 0600), EROFS);
    FAILS(open("d/script", O_WRONLY), EROFS);
    FAILS(open("d", O_TMPFILE | O_WRONLY, 0600), EROFS);
    FAILS(mkdir("d/new", 0700), EROFS);
    FAILS(mkdir("d/script", 0700), EEXIST);
    FAILS(symlink("x", "d/new"), EROFS);
    FAILS(link("d/script", "d/new"), EROFS);
    FAILS(unlink("d/script"), EROFS);
    FAILS(rename("d/script", "d/new"), EROFS);
    FAILS(chmod("d/script", 0600), EROFS);
    FAILS(chown("d/script", 1, 1), EROFS);
    FAILS(truncate("d/script", 0), EROFS);
    FAILS(utime("d/script", NULL), EROFS);
    FAILS(access("d/script", W_OK), EROFS);
    GIVES(access("d/script", R_OK), 0);
    GIVES(close(open("d/script", O_RDONLY)), 0);
    GIVES(mount(NULL, "d", NULL, MS_REMOUNT, NULL), 0);
    GIVES(make("d/new"), 0);
    // Its device is a device again.
    fd = open("d/null", O_WRONLY);
    GIVES(write(fd, "x", 1), 1);
    close(fd);
    GIVES(umount("d"), 0);
}

static void binds(void) {
    char cwd[4096] = "", path[4096];
    mkdir("tree", 0755), mkdir("tree/sub", 0755), mkdir("tree/point", 0755), mkdir("b", 0755);
    make("tree/file");
    GIVES(mount("x", "tree/point", "tmpfs", 0, NULL), 0);
    make("tree/point/inside");
    GIVES(mount("tree", "b", NULL, MS_BIND, NULL), 0);
    GIVES(number("b/file"), number("tree/file"));
    GIVES(device("b"), device("tree"));
    FAILS(access("b/point/inside", F_OK), ENOENT);
    GIVES(lines("/proc/self/mountinfo", "b", "/tree "), 1);
    // The way up leads to the place of the mount.
    GIVES(number("b/sub/../.."), number("."));
    GIVES(chdir("b/sub"), 0);
    snprintf(path, sizeof path, "%s/b/sub", here);
    CHECK(getcwd(cwd, sizeof cwd));
    GIVES(strcmp(cwd, path), 0);
    GIVES(chdir("../.."), 0);
    GIVES(chdir("tree/sub"), 0);
    snprintf(path, sizeof path, "%s/tree/sub", here);
    CHECK(getcwd(cwd, sizeof cwd));
    GIVES(strcmp(cwd, path), 0);
    GIVES(chdir("../.."), 0);
    FAILS(rename("tree/file", "b/sub/file"), EXDEV);
    FAILS(link("tree/file", "b/sub/file"), EXDEV);
    GIVES(rename("b/file", "b/sub/file"), 0);
    GIVES(access("tree/sub/file", F_OK), 0);
    // A mount can be read-only, and its file system not.
    GIVES(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
    GIVES(lines("/proc/mounts", "b", " ro,"), 1);
    FAILS(open("b/sub/file", O_WRONLY), EROFS);
    FAILS(mkdir("b/new", 0700), EROFS);
    FAILS(rmdir("b/sub"), EROFS);
    GIVES(mkdir("tree/new", 0700), 0);
    GIVES(rmdir("tree/new"), 0);
    GIVES(mount(NULL, "b", NULL, MS_REMOUNT | MS_BIND, NULL), 0);
    GIVES(mkdir("b/new", 0700), 0);
    GIVES(umount("b"), 0);
    GIVES(access("tree/new", F_OK), 0);
    // With the mounts below.
    GIVES(mount("tree", "b", NULL, MS_BIND | MS_REC, NULL), 0);
    GIVES(access("b/point/inside", F_OK), 0);
    FAILS(umount("b"), EBUSY);
    GIVES(lines("/proc/mounts", "b/point", " tmpfs "), 1);
    GIVES(umount("tree/point"), 0);
    GIVES(access("b/point/inside", F_OK), 0);
    FAILS(access("tree/point/inside", F_OK), ENOENT);
    GIVES(umount2("b", MNT_DETACH), 0);
    GIVES(lines("/proc/mounts", "b/point", ""), 0);
    // A directory over itself, and below itself.
    GIVES(mount(".", "b", NULL, MS_BIND | MS_REC, NULL), 0);
    GIVES(access("b/tree/sub", F_OK), 0);
    GIVES(umount("b"), 0);
    // A file over a file.
    make("over");
    int fd = open("f", O_WRONLY);
    GIVES(write(fd, "text", 4), 4);
    close(fd);
    GIVES(mount("f", "over", NULL, MS_BIND, NULL), 0);
    GIVES(number("over"), number("f"));
    FAILS(unlink("over"), EBUSY);
    GIVES(umount("over"), 0);
    CHECK(number("over") != number("f"));
    GIVES(unlink("over"), 0);
}

static void moves(void) {
    char byte = 0;
    GIVES(mount("x", "d", "tmpfs", 0, NULL), 0);
    mkdir("d/sub", 0755);
    int fd = open("d/file", O_CREAT | O_RDWR, 0600);
    GIVES(write(fd, "y", 1), 1);
    // Nothing is mounted outside the tree.
    GIVES(mount("x", "e", "tmpfs", 0, NULL), 0);
    GIVES(mkdir("e/sub", 0755), 0);
    GIVES(chdir("e"), 0);
    GIVES(umount2("../e", MNT_DETACH), 0);
    FAILS_EITHER(mount("x", "sub", "tmpfs", 0, NULL), EINVAL, ENOENT);
    GIVES(access("sub", F_OK), 0);
    GIVES(chdir(here), 0);
    FAILS(mount("d", "d/sub", NULL, MS_MOVE, NULL), ELOOP);
    GIVES(mount("d", "e", NULL, MS_MOVE, NULL), 0);
    FAILS(access("d/file", F_OK), ENOENT);
    GIVES(access("e/file", F_OK), 0);
    GIVES(number("e/.."), number("."));
    GIVES(mount(NULL, "e", NULL, MS_PRIVATE | MS_REC, NULL), 0);
    // An open file outlives the place of its mount.
    GIVES(umount2("e", MNT_DETACH), 0);
    FAILS(access("e/file", F_OK), ENOENT);
    GIVES(pread(fd, &byte, 1, 0), 1);
    GIVES(byte, 'y');
    GIVES(write(fd, "z", 1), 1);
    close(fd);
    FAILS(umount("e"), EINVAL);
    // The processes, at another place.
    GIVES(mount("proc", "d", "proc", 0, NULL), 0);
    GIVES(access("d/self/status", R_OK), 0);
    GIVES(number("d/.."), number("."));
    GIVES(number("d/self/../.."), number("."));
    FAILS(rmdir("d"), EBUSY);
    GIVES(umount("d"), 0);
}

// Exchanges the root for a file system in memory, and back.
static void roots(void) {
    char path[4096], cwd[8] = "";
    mkdir("root", 0755);
    FAILS(syscall(SYS_pivot_root, "missing", "root"), ENOENT);
    FAILS(syscall(SYS_pivot_root, "root", "f"), ENOTDIR);
    GIVES(mount("x", "root", "tmpfs", 0, NULL), 0);
    GIVES(mkdir("root/old", 0755), 0);
    make("root/marker");
    FAILS(syscall(SYS_pivot_root, "root/old", "root/old"), EINVAL);
    GIVES(syscall(SYS_pivot_root, "root", "root/old"), 0);
    GIVES(access("/marker", F_OK), 0);
    GIVES(access("/old/proc/self/status", F_OK), 0);
    FAILS(access("/proc/self", F_OK), ENOENT);
    GIVES(chdir("/"), 0);
    CHECK(getcwd(cwd, sizeof cwd));
    GIVES(strcmp(cwd, "/"), 0);
    snprintf(path, sizeof path, "/old%s/root", here);
    GIVES(syscall(SYS_pivot_root, "/old", path), 0);
    GIVES(access("/proc/self/status", F_OK), 0);
    GIVES(chdir(here), 0);
    GIVES(access("root/marker", F_OK), 0);
    GIVES(umount("root"), 0);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    if (geteuid()) return finish("mounts");
    // On Linux, other programs do not see these mounts.
    if (!unshare(CLONE_NEWNS)) GIVES(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    CHECK(getcwd(here, sizeof here));
    errors();
    memory();
    expires();
    flags();
    binds();
    moves();
    roots();
    return finish("mounts");
}
