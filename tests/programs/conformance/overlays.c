// Overlays: merged directories, copies to the upper layer, whiteouts, opaque directories, renames.
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>

static const char *const OPTIONS = "lowerdir=low1:low2,upperdir=up,workdir=work";

// Writes a file with this text.
static int make(const char *path, const char *text) {
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    if (fd < 0) return -1;
    long count = write(fd, text, strlen(text));
    close(fd);
    return count == (long)strlen(text) ? 0 : -1;
}

// Whether a file has this text.
static int has(const char *path, const char *text) {
    char found[256] = "";
    int fd = open(path, O_RDONLY);
    if (fd < 0) return 0;
    long count = read(fd, found, sizeof found - 1);
    close(fd);
    return count == (long)strlen(text) && !strcmp(found, text);
}

static int compare(const void *one, const void *other) {
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}

// The names in a directory, sorted, each followed by a space.
static const char *names(const char *path) {
    static char text[4096];
    char *list[256];
    int count = 0;
    text[0] = 0;
    DIR *directory = opendir(path);
    if (!directory) return "none";
    for (struct dirent *entry; (entry = readdir(directory)) && count < 256;)
        if (entry->d_name[0] != '.') list[count++] = strdup(entry->d_name);
    closedir(directory);
    qsort(list, count, sizeof *list, compare);
    for (int i = 0; i < count; i++) {
        strcat(strcat(text, list[i]), " ");
        free(list[i]);
    }
    return text;
}

static struct stat of(const char *path) {
    struct stat status = {0};
    if (lstat(path, &status) < 0) status.st_mode = 0;
    return status;
}

static int is_whiteout(const char *path) {
    struct stat status = of(path);
    return S_ISCHR(status.st_mode) && status.st_rdev == 0;
}

static int is_opaque(const char *path) {
    char value[8] = "";
    return getxattr(path, "trusted.overlay.opaque", value, sizeof value) == 1 && value[0] == 'y';
}

// Whether /proc/mounts has a line with both texts.
static int is_mounted(const char *one, const char *other) {
    char line[4096];
    int found = 0;
    FILE *mounts = fopen("/proc/mounts", "r");
    while (mounts && fgets(line, sizeof line, mounts)) found |= strstr(line, one) && strstr(line, other);
    if (mounts) fclose(mounts);
    return found;
}

static void errors(void) {
    FAILS(mount("o", "m", "overlay", 0, NULL), EINVAL);
    FAILS(mount("o", "m", "overlay", 0, "nonsense"), EINVAL);
    FAILS(mount("o", "m", "overlay", 0, "upperdir=up,workdir=work"), EINVAL);
    FAILS(mount("o", "m", "overlay", 0, "lowerdir=low1,upperdir=up"), EINVAL);
    FAILS(mount("o", "m", "overlay", 0, "lowerdir=low1"), EINVAL);
    FAILS(mount("o", "m", "overlay", 0, "lowerdir=low1:missing"), ENOENT);
    FAILS(mount("o", "m", "overlay", 0, "lowerdir=low1,upperdir=missing,workdir=work"), ENOENT);
    FAILS_EITHER(mount("o", "m", "overlay", 0, "lowerdir=low1/text"), EINVAL, ENOTDIR);
    FAILS(mount("o", "m", "overlay", 0, "lowerdir=low1,upperdir=up,workdir=up"), EINVAL);
    FAILS(mount("o", "m", "overlay", 0, "lowerdir=low1,upperdir=up,workdir=up/deep"), EINVAL);
    FAILS(mount("o", "m", "overlay", 0, "lowerdir=low1:low1"), ELOOP);
    FAILS(mount("o", "m", "overlay", 0, "lowerdir=low2:low1:low1/both"), ELOOP);
    FAILS(mount("o", "m", "overlay", 0, "lowerdir=up,upperdir=up,workdir=work"), ELOOP);
    GIVES(mount("o", "m", "overlay", 0, "lowerdir=.,upperdir=up,workdir=work"), 0);
    GIVES(umount("m"), 0);
    FAILS(mount("o", "m", "overlay", 0, "lowerdir=up/both,upperdir=up,workdir=work"), ELOOP);
    FAILS(mount("o", "m", "overlay", 0, "lowerdir=low1,upperdir=up,workdir=work,index=perhaps"), EINVAL);
    FAILS(mount("o", "low1/text", "overlay", 0, OPTIONS), ENOTDIR);
    CHILD_EXITS(0, {
        if (setgid(1) || setuid(1)) _exit(1);
        _exit(mount("o", "m", "overlay", 0, OPTIONS) != -1 || errno != EPERM);
    });
}

// The layers before the first mount.
static void prepare(void) {
    mkdir("m", 0755), mkdir("work", 0755);
    mkdir("low1", 0755), mkdir("low2", 0755), mkdir("up", 0755);
    make("low1/text", "one"), make("low2/text", "two"), make("low2/other", "other");
    mkdir("low1/both", 0750), mkdir("low2/both", 0755), mkdir("up/both", 0700);
    make("low1/both/a", "1a"), make("low2/both/a", "2a"), make("low2/both/b", "2b");
    make("up/both/c", "uc");
    // Names that are hidden in the upper layer and in a lower one.
    make("low1/gone", "x"), mknod("up/gone", S_IFCHR, 0);
    make("low2/hidden", "x"), mknod("low1/hidden", S_IFCHR, 0);
    // A directory that hides those below it, and a file that does.
    mkdir("low1/opaque", 0755), mkdir("low2/opaque", 0755);
    make("low1/opaque/in1", ""), make("low2/opaque/in2", "");
    GIVES(setxattr("low1/opaque", "trusted.overlay.opaque", "y", 1, 0), 0);
    mkdir("low2/kind", 0755), make("low1/kind", "file");
    mkdir("low1/tree", 0755), mkdir("low1/tree/sub", 0711), make("low1/tree/sub/file", "deep");
    mkdir("low1/empty", 0755);
    make("low1/first", "linked"), link("low1/first", "low1/second");
    symlink("text", "low1/link"), mkfifo("low1/fifo", 0600);
    mkdir("up/deep", 0755);
    mkfifo("low2/pipe", 0600), make("low2/old", "old"), make("low1/large", "large"), make("low2/watched", "w");
    struct timespec old[2] = {{3, 0}, {4, 0}};
    utimensat(AT_FDCWD, "low2/old", old, 0);
    setxattr("low1/text", "user.color", "red", 3, 0);
    chown("low1/other", 0, 0), chown("low2/other", 3, 4), chmod("low2/other", 0604);
}

static void merges(void) {
    struct statfs info;
    struct stat status;
    GIVES(mount("name", "m", "overlay", MS_NOSUID, OPTIONS), 0);
    CHECK(is_mounted("name ", " overlay rw,nosuid,relatime,lowerdir=low1:low2,upperdir=up,workdir=work"));
    GIVES(statfs("m", &info), 0);
    GIVES(info.f_type, 0x794c7630);
    GIVES(strcmp(names("m"), "both deep empty fifo first kind large link old opaque other pipe second text tree watched "), 0);
    GIVES(strcmp(names("m/both"), "a b c "), 0);
    GIVES(strcmp(names("m/opaque"), "in1 "), 0);
    CHECK(has("m/text", "one") && has("m/other", "other") && has("m/link", "one"));
    CHECK(has("m/both/a", "1a") && has("m/both/b", "2b") && has("m/both/c", "uc"));
    CHECK(has("m/kind", "file") && has("m/tree/sub/file", "deep"));
    FAILS(access("m/gone", F_OK), ENOENT);
    FAILS(access("m/hidden", F_OK), ENOENT);
    FAILS(access("m/opaque/in2", F_OK), ENOENT);
    // The attributes are those of the topmost layer.
    GIVES(of("m/both").st_mode, S_IFDIR | 0700);
    status = of("m/other");
    GIVES(status.st_mode, S_IFREG | 0604);
    GIVES(status.st_uid, 3);
    GIVES(status.st_gid, 4);
    CHECK(of("m/text").st_dev == of("m").st_dev && of("m").st_dev != of(".").st_dev);
    CHECK(of("m/text").st_dev == of("m/both/c").st_dev && of("m/deep").st_dev == of("m").st_dev);
    char value[16] = "", list[256] = "";
    GIVES(getxattr("m/text", "user.color", value, sizeof value), 3);
    long length = listxattr("m/opaque", list, sizeof list);
    CHECK(length >= 0 && !memmem(list, length, "trusted.overlay.", 16));
    CHECK(of("work/work").st_mode != 0);
    int kinds = 0;
    FILE *file = fopen("/proc/filesystems", "r");
    while (file && fgets(list, sizeof list, file)) kinds += !strcmp(list, "nodev\toverlay\n");
    GIVES(kinds, 1);
    if (file) fclose(file);
    GIVES(strcmp(names("up"), "both deep gone "), 0);
}

// Reading leaves the upper layer alone; changes copy.
static void copies(void) {
    struct stat before = of("m/text"), status;
    GIVES(make("m/text", "changed"), 0);
    CHECK(has("m/text", "changed") && has("up/text", "changed") && has("low1/text", "one"));
    CHECK(of("m/text").st_ino == before.st_ino && of("m/text").st_dev == before.st_dev);
    char value[16] = "";
    GIVES(getxattr("up/text", "user.color", value, sizeof value), 3);
    // An attribute, in directories that come along.
    GIVES(chmod("m/tree/sub/file", 0640), 0);
    GIVES(of("up/tree/sub/file").st_mode, S_IFREG | 0640);
    GIVES(of("low1/tree/sub/file").st_mode, S_IFREG | 0644);
    GIVES(of("up/tree/sub").st_mode, S_IFDIR | 0711);
    CHECK(has("up/tree/sub/file", "deep"));
    GIVES(of("m/tree/sub").st_mtime, of("low1/tree/sub").st_mtime);
    GIVES(chown("m/other", 5, 6), 0);
    status = of("up/other");
    GIVES(status.st_uid, 5);
    GIVES(status.st_gid, 6);
    GIVES(status.st_mode, S_IFREG | 0604);
    GIVES(of("low2/other").st_uid, 3);
    // One name of a file with several loses the others.
    GIVES(of("m/first").st_nlink, 2);
    GIVES(make("m/first", "alone"), 0);
    GIVES(of("m/first").st_nlink, 1);
    CHECK(has("m/second", "linked") && has("low1/first", "linked"));
    // A directory, its attributes, a link and a FIFO.
    GIVES(chmod("m/empty", 0701), 0);
    GIVES(of("m/empty").st_mode, S_IFDIR | 0701);
    GIVES(of("up/empty").st_mode, S_IFDIR | 0701);
    GIVES(lchown("m/link", 7, 7), 0);
    GIVES(of("up/link").st_mode & S_IFMT, S_IFLNK);
    CHECK(has("m/link", "changed"));
    GIVES(chmod("m/fifo", 0644), 0);
    GIVES(of("up/fifo").st_mode, S_IFIFO | 0644);
    GIVES(of("low1/fifo").st_mode, S_IFIFO | 0600);
    // Reading does not copy; a descriptor from before a copy reads the copy, a mapping does not.
    int fd = open("m/both/a", O_RDONLY);
    char *mapped = mmap(NULL, 2, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(mapped != MAP_FAILED && mapped[0] == '1');
    FAILS(access("up/both/a", F_OK), ENOENT);
    GIVES(make("m/both/a", "new"), 0);
    char byte = 0;
    GIVES(pread(fd, &byte, 1, 0), 1);
    GIVES(byte, 'n');
    CHECK(mapped[0] == '1');
    munmap(mapped, 2), close(fd);
    // As do extended attributes, times and lengths; not a refused change.
    make("low1/x1", "x"), make("low1/x2", "x"), make("low1/x3", "xyz"), make("low1/x4", "x");
    GIVES(umount("m"), 0);
    GIVES(mount("name", "m", "overlay", 0, OPTIONS), 0);
    GIVES(setxattr("m/x1", "user.a", "b", 1, 0), 0);
    GIVES(getxattr("up/x1", "user.a", value, sizeof value), 1);
    FAILS(getxattr("low1/x1", "user.a", value, sizeof value), ENODATA);
    struct timespec times[2] = {{5, 0}, {6, 0}};
    GIVES(utimensat(AT_FDCWD, "m/x2", times, 0), 0);
    GIVES(of("up/x2").st_mtime, 6);
    GIVES(truncate("m/x3", 1), 0);
    CHECK(has("m/x3", "x") && has("up/x3", "x") && has("low1/x3", "xyz"));
    FAILS(removexattr("m/x4", "user.none"), ENODATA);
    CHILD_EXITS(0, {
        if (setgid(1) || setuid(1)) _exit(1);
        if (chmod("m/x4", 0777) != -1 || errno != EPERM) _exit(2);
        if (open("m/x4", O_WRONLY) != -1 || errno != EACCES) _exit(3);
        _exit(!has("m/x4", "x"));
    });
    FAILS(access("up/x4", F_OK), ENOENT);
    // A removed file that is open can still be read.
    fd = open("m/x4", O_RDONLY);
    GIVES(unlink("m/x4"), 0);
    GIVES(pread(fd, &byte, 1, 0), 1);
    GIVES(byte, 'x');
    close(fd);
    CHECK(has("low1/x4", "x") && is_whiteout("up/x4"));
}

// FIFOs, access times, locks, link counts, unnamed files, device nodes, sockets.
static void details(void) {
    char byte, path[64];
    struct stat status;
    // The pipe of a FIFO is that of the overlay.
    int ends[2] = {open("low2/pipe", O_RDWR | O_NONBLOCK), open("m/pipe", O_RDWR | O_NONBLOCK)};
    GIVES(write(ends[0], "x", 1), 1);
    FAILS(read(ends[1], &byte, 1), EAGAIN);
    GIVES(write(ends[1], "y", 1), 1);
    GIVES(fchmod(ends[1], 0642), 0);
    GIVES(of("up/pipe").st_mode, S_IFIFO | 0642);
    GIVES(of("m/pipe").st_mode, S_IFIFO | 0642);
    GIVES(read(ends[1], &byte, 1), 1);
    GIVES(byte, 'y');
    GIVES(read(ends[0], &byte, 1), 1);
    GIVES(byte, 'x');
    close(ends[0]), close(ends[1]);
    // Reading does not change access times of a lower layer.
    time_t before = of("low2/old").st_atime;
    CHECK(has("m/old", "old") && of("low2/old").st_atime == before);
    // A lock and a descriptor from before a copy.
    int fd = open("m/old", O_RDONLY), other;
    GIVES(flock(fd, LOCK_EX), 0);
    GIVES(fstat(fd, &status), 0);
    GIVES(fchmod(fd, 04711), 0);
    CHECK(of("m/old").st_ino == status.st_ino && of("up/old").st_mode == (S_IFREG | 04711));
    other = open("m/old", O_RDWR);
    FAILS(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    GIVES(write(other, "O", 1), 1);
    GIVES(pread(fd, &byte, 1, 0), 1);
    GIVES(byte, 'O');
    close(fd);
    GIVES(flock(other, LOCK_EX | LOCK_NB), 0);
    // A shared mapping.
    char *mapped = mmap(NULL, 3, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
    CHECK(mapped != MAP_FAILED);
    mapped[1] = 'L';
    CHECK(has("m/old", "OLd") && has("up/old", "OLd") && has("low2/old", "old"));
    munmap(mapped, 3), close(other);
    // Removing one of two names, and the last one.
    fd = open("m/old", O_RDONLY);
    GIVES(link("m/old", "m/older"), 0);
    GIVES(unlink("m/old"), 0);
    GIVES(fstat(fd, &status), 0);
    GIVES(status.st_nlink, 1);
    GIVES(unlink("m/older"), 0);
    GIVES(fstat(fd, &status), 0);
    GIVES(status.st_nlink, 0);
    FAILS(access("up/older", F_OK), ENOENT);
    CHECK(is_whiteout("up/old"));
    close(fd);
    // An unnamed file gets a name.
    fd = open("m", O_TMPFILE | O_RDWR, 0640);
    GIVES(write(fd, "late", 4), 4);
    GIVES(fstat(fd, &status), 0);
    GIVES(status.st_nlink, 0);
    CHECK(status.st_dev == of("m").st_dev);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    GIVES(linkat(AT_FDCWD, path, AT_FDCWD, "m/old", AT_SYMLINK_FOLLOW), 0);
    GIVES(close(fd), 0);
    CHECK(has("m/old", "late") && has("up/old", "late") && of("m/old").st_nlink == 1);
    GIVES(of("m/old").st_ino, status.st_ino);
    GIVES(unlink("m/old"), 0);
    CHECK(is_whiteout("up/old"));
    // The overlay refuses to make a whiteout; other device nodes are ordinary.
    FAILS(mknod("m/node", S_IFCHR, 0), EPERM);
    GIVES(mknod("m/null", S_IFCHR | 0666, makedev(1, 3)), 0);
    GIVES(of("m/null").st_rdev, makedev(1, 3));
    GIVES(make("m/null", "gone"), 0);
    GIVES(unlink("m/null"), 0);
    // A socket.
    struct sockaddr_un address = {AF_UNIX, "m/socket"};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    GIVES(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    GIVES(listen(listener, 1), 0);
    GIVES(of("up/socket").st_mode & S_IFMT, S_IFSOCK);
    GIVES(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    close(listener), close(client);
    GIVES(unlink("m/socket"), 0);
    // Numbers and types of entries.
    DIR *directory = opendir("m");
    int wrong = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "m/%.32s", entry->d_name);
        status = of(path);
        wrong += entry->d_ino != status.st_ino || entry->d_type != IFTODT(status.st_mode);
    }
    GIVES(wrong, 0);
    if (directory) closedir(directory);
}

// Whether the next event of an inotify instance is this one.
static int is_next(int instance, unsigned mask, const char *name) {
    union {
        struct inotify_event event;
        char bytes[sizeof(struct inotify_event) + NAME_MAX + 1];
    } next;
    // One at a time: the name is short, and padded to 16 bytes.
    long length = read(instance, &next, sizeof next.event + (*name ? 16 : 0));
    return length > 0 && next.event.mask == mask && !strcmp(next.event.len ? next.event.name : "", name);
}

static void events(void) {
    int instance = inotify_init1(IN_NONBLOCK);
    CHECK(inotify_add_watch(instance, "m", IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVE) > 0);
    int fd = open("m/event", O_CREAT | O_WRONLY, 0600);
    CHECK(is_next(instance, IN_CREATE, "event"));
    GIVES(write(fd, "x", 1), 1);
    CHECK(is_next(instance, IN_MODIFY, "event"));
    close(fd);
    GIVES(chmod("m/event", 0644), 0);
    CHECK(is_next(instance, IN_ATTRIB, "event"));
    GIVES(rename("m/event", "m/event2"), 0);
    CHECK(is_next(instance, IN_MOVED_FROM, "event") && is_next(instance, IN_MOVED_TO, "event2"));
    GIVES(unlink("m/event2"), 0);
    CHECK(is_next(instance, IN_DELETE, "event2"));
    // A file of a lower layer, before and after its copy.
    GIVES(chmod("m/watched", 0600), 0);
    CHECK(is_next(instance, IN_ATTRIB, "watched"));
    GIVES(truncate("m/watched", 0), 0);
    CHECK(is_next(instance, IN_MODIFY, "watched"));
    GIVES(unlink("m/watched"), 0);
    CHECK(is_next(instance, IN_DELETE, "watched"));
    close(instance);
}

// The upper layer was changed other than through the overlay: nothing else is damaged.
static void changed_behind(void) {
    mkdir("b", 0755), mkdir("b/low", 0755), mkdir("b/up", 0755), mkdir("b/work", 0755);
    mkdir("b/low/lower", 0755), make("b/low/lower/file", "l");
    mkdir("b/up/one", 0755), mkdir("b/up/two", 0755), mkdir("b/up/dir", 0755), make("b/up/file", "f");
    GIVES(mount("o", "m", "overlay", 0, "lowerdir=b/low,upperdir=b/up,workdir=b/work"), 0);
    CHECK(has("m/file", "f") && has("m/lower/file", "l") && of("m/one").st_mode && of("m/two").st_mode);
    GIVES(strcmp(names("m/dir"), ""), 0);
    GIVES(rename("b/up/file", "b/up/moved"), 0);
    FAILS_EITHER(unlink("m/file"), ESTALE, ENOENT);
    CHECK(has("b/up/moved", "f"));
    // No cycle.
    GIVES(rename("b/up/two", "b/up/one/two"), 0);
    FAILS_EITHER(rename("m/one", "m/two/one"), ESTALE, EINVAL);
    // A directory that is not empty any more.
    make("b/up/dir/new", "n");
    FAILS(rmdir("m/dir"), ENOTEMPTY);
    CHECK(has("b/up/dir/new", "n"));
    // A directory that is gone.
    GIVES(rmdir("b/up/one/two"), 0);
    FAILS_EITHER(mkdir("m/two/new", 0755), ENOENT, ESTALE);
    GIVES(umount("m"), 0);
    GIVES(strcmp(names("b/up"), "dir moved one "), 0);
}

static void names_change(void) {
    // A new file is in the upper layer only.
    GIVES(make("m/both/new", "n"), 0);
    CHECK(has("up/both/new", "n"));
    GIVES(unlink("m/both/new"), 0);
    FAILS(access("up/both/new", F_OK), ENOENT);
    // A removed one of a lower layer is hidden.
    GIVES(unlink("m/both/b"), 0);
    FAILS(access("m/both/b", F_OK), ENOENT);
    CHECK(is_whiteout("up/both/b") && has("low2/both/b", "2b"));
    GIVES(unlink("m/both/a"), 0);
    CHECK(is_whiteout("up/both/a"));
    GIVES(strcmp(names("m/both"), "c "), 0);
    GIVES(make("m/both/b", "again"), 0);
    CHECK(has("m/both/b", "again") && has("up/both/b", "again"));
    // A new directory does not show what was there before.
    FAILS(rmdir("m/both"), ENOTEMPTY);
    GIVES(unlink("m/both/b"), 0);
    GIVES(unlink("m/both/c"), 0);
    GIVES(rmdir("m/both"), 0);
    CHECK(is_whiteout("up/both"));
    GIVES(mkdir("m/both", 0755), 0);
    CHECK(is_opaque("up/both"));
    GIVES(strcmp(names("m/both"), ""), 0);
    GIVES(rmdir("m/both"), 0);
    FAILS(mkdir("m/text", 0755), EEXIST);
    // Links and special files.
    GIVES(symlink("text", "m/both"), 0);
    CHECK(has("m/both", "changed"));
    GIVES(unlink("m/both"), 0);
    GIVES(link("m/second", "m/third"), 0);
    CHECK(has("up/second", "linked") && has("up/third", "linked"));
    GIVES(of("up/third").st_nlink, 2);
    GIVES(of("m/third").st_nlink, 2);
    CHECK(of("m/third").st_ino == of("m/second").st_ino);
    GIVES(make("m/third", "shared"), 0);
    CHECK(has("m/second", "shared"));
    GIVES(unlink("m/second"), 0);
    GIVES(of("m/third").st_nlink, 1);
    CHECK(is_whiteout("up/second") && has("m/third", "shared"));
    FAILS(link("m/text", "text"), EXDEV);
    FAILS(rename("m/text", "up/text"), EXDEV);
    // Files are renamed; directories of lower layers are not.
    GIVES(rename("m/kind", "m/kind2"), 0);
    CHECK(has("m/kind2", "file") && has("up/kind2", "file") && is_whiteout("up/kind"));
    FAILS(access("m/kind", F_OK), ENOENT);
    GIVES(rename("m/kind2", "m/kind"), 0);
    CHECK(has("up/kind", "file"));
    FAILS(access("up/kind2", F_OK), ENOENT);
    FAILS(rename("m/tree", "m/tree2"), EXDEV);
    FAILS(rename("m/empty", "m/empty2"), EXDEV);
    GIVES(mkdir("m/fresh", 0755), 0);
    GIVES(make("m/fresh/file", "f"), 0);
    GIVES(rename("m/fresh", "m/fresher"), 0);
    CHECK(has("up/fresher/file", "f") && !of("up/fresh").st_mode);
    // Over an empty directory that a lower layer has.
    GIVES(rename("m/fresher", "m/empty"), 0);
    CHECK(has("m/empty/file", "f") && is_opaque("up/empty"));
    GIVES(rename("m/third", "m/tree/sub/file"), 0);
    CHECK(has("m/tree/sub/file", "shared") && has("low1/tree/sub/file", "deep"));
    GIVES(renameat2(AT_FDCWD, "m/text", AT_FDCWD, "m/other", RENAME_EXCHANGE), 0);
    CHECK(has("m/text", "other") && has("m/other", "changed") && has("up/other", "changed"));
    FAILS(renameat2(AT_FDCWD, "m/text", AT_FDCWD, "m/tree", RENAME_EXCHANGE), EXDEV);
    FAILS(renameat2(AT_FDCWD, "m/text", AT_FDCWD, "m/other", RENAME_NOREPLACE), EEXIST);
    FAILS(rename("m/text", "m/tree"), EISDIR);
    // Paths within the overlay.
    char cwd[4096] = "";
    GIVES(chdir("m/tree/sub"), 0);
    CHECK(getcwd(cwd, sizeof cwd) && strstr(cwd, "/m/tree/sub"));
    CHECK(has("../../text", "other"));
    FAILS(umount("../../../m"), EBUSY);
    GIVES(chdir("../../.."), 0);
    // The next mount shows the same.
    char list[4096];
    strcpy(list, names("m"));
    GIVES(umount("m"), 0);
    GIVES(strcmp(names("m"), ""), 0);
    GIVES(mount("name", "m", "overlay", 0, OPTIONS), 0);
    GIVES(strcmp(names("m"), list), 0);
    GIVES(strcmp(names("m/empty"), "file "), 0);
    CHECK(has("m/text", "other") && has("m/tree/sub/file", "shared"));
    FAILS(access("m/second", F_OK), ENOENT);
    GIVES(umount("m"), 0);
}

// Without an upper layer nothing changes.
static void read_only(void) {
    GIVES(mount("o", "m", "overlay", 0, "lowerdir=up:low1:low2"), 0);
    CHECK(is_mounted(" overlay ro,relatime", "lowerdir=up:low1:low2"));
    CHECK(has("m/text", "other") && has("m/tree/sub/file", "shared"));
    FAILS(access("m/second", F_OK), ENOENT);
    FAILS(open("m/text", O_WRONLY), EROFS);
    FAILS(open("m/new", O_CREAT | O_WRONLY, 0600), EROFS);
    FAILS(mkdir("m/new", 0755), EROFS);
    FAILS(unlink("m/text"), EROFS);
    FAILS(rename("m/text", "m/new"), EROFS);
    FAILS(chmod("m/text", 0600), EROFS);
    FAILS(mount(NULL, "m", NULL, MS_REMOUNT, NULL), EROFS);
    GIVES(umount("m"), 0);
}

// The layers exist as long as the overlay, also without their own mounts; a full upper layer.
static void lives(void) {
    static char zeros[1 << 16];
    mkdir("t", 0755);
    GIVES(mount("t", "t", "tmpfs", 0, "size=128k"), 0);
    mkdir("t/up", 0755), mkdir("t/work", 0755);
    GIVES(mount("o", "m", "overlay", 0, "lowerdir=low1,upperdir=t/up,workdir=t/work"), 0);
    struct statfs info;
    GIVES(statfs("m", &info), 0);
    GIVES(info.f_blocks * info.f_bsize, 128 << 10);
    GIVES(umount("t"), 0);
    GIVES(make("m/text", "kept"), 0);
    CHECK(has("m/text", "kept"));
    int fd = open("m/big", O_CREAT | O_RDWR, 0600);
    for (int i = 0; i < 4; i++)
        if (write(fd, zeros, sizeof zeros) < (long)sizeof zeros) break;
    FAILS(write(fd, zeros, sizeof zeros), ENOSPC);
    // There is no room for a copy, and the file stays as it is.
    FAILS(open("m/tree/sub/file", O_WRONLY), ENOSPC);
    CHECK(has("m/tree/sub/file", "deep"));
    GIVES(close(open("m/large", O_WRONLY | O_TRUNC)), 0);
    GIVES(of("m/large").st_size, 0);
    GIVES(of("low1/large").st_size, 5);
    GIVES(ftruncate(fd, 0), 0);
    GIVES(close(open("m/tree/sub/file", O_WRONLY)), 0);
    close(fd);
    GIVES(umount("m"), 0);
    // Busy while a file is open, and detached.
    GIVES(mount("o", "m", "overlay", 0, OPTIONS), 0);
    fd = open("m/text", O_RDWR);
    FAILS(umount("m"), EBUSY);
    GIVES(umount2("m", MNT_DETACH), 0);
    GIVES(pwrite(fd, "O", 1, 0), 1);
    close(fd);
    CHECK(has("up/text", "Other"));
    // It is a mount as others: bound, and a program runs from it.
    GIVES(mount("o", "m", "overlay", 0, "lowerdir=up:low1"), 0);
    GIVES(mount("m/tree", "t", NULL, MS_BIND, NULL), 0);
    CHECK(has("t/sub/file", "shared"));
    GIVES(umount("t"), 0);
    GIVES(umount("m"), 0);
}

static void copy_program(const char *path) {
    static char part[1 << 16];
    int from = open("/proc/self/exe", O_RDONLY), to = open(path, O_CREAT | O_WRONLY, 0755);
    long count;
    while ((count = read(from, part, sizeof part)) > 0) GIVES(write(to, part, count), count);
    close(from), close(to);
}

// Programs run from a lower and from the upper layer, and cannot be written meanwhile.
static void programs(void) {
    int ends[2];
    copy_program("low1/program");
    GIVES(mount("o", "m", "overlay", 0, OPTIONS), 0);
    for (int upper = 0; upper < 2; upper++) {
        GIVES(pipe2(ends, 0), 0);
        pid_t child = CHILD({
            dup2(ends[0], 0);
            close(ends[1]);
            execl("m/program", "program", "overlays", "waits", NULL);
            _exit(1);
        });
        close(ends[0]);
        wait_until_asleep(child);
        FAILS(open("m/program", O_WRONLY), ETXTBSY);
        GIVES(close(ends[1]), 0);
        GIVES(status_of(child), 7 << 8);
        GIVES(close(open("m/program", O_WRONLY)), 0);
        CHECK(of("up/program").st_size == of("low1/program").st_size);
    }
    GIVES(umount("m"), 0);
}

int main(int count, char **arguments) {
    // The program of `programs`.
    if (!strcmp(arguments[count - 1], "waits")) {
        char byte;
        return read(0, &byte, 1) == 0 ? 7 : 8;
    }
    enter(count, arguments);
    // On Linux, other programs do not see these mounts, and the layers must support them.
    if (geteuid()) return finish("overlays");
    if (!unshare(CLONE_NEWNS)) GIVES(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    mkdir("all", 0755);
    GIVES(mount("all", "all", "tmpfs", 0, NULL), 0);
    GIVES(chdir("all"), 0);
    umask(022);
    prepare();
    errors();
    merges();
    copies();
    details();
    events();
    names_change();
    read_only();
    changed_behind();
    lives();
    programs();
    return finish("overlays");
}
