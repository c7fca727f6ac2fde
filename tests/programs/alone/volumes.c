// Files of a folder (argument 2) that may be a volume: results of calls, and the files left
// behind, must be the same as on any Linux file system. Argument 1 selects the test.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define SHOW(call) show(#call, (long)(call))

static void show(const char *text, long result) {
    if (result < 0)
        printf("%s: %s\n", text, strerrorname_np(errno));
    else
        printf("%s: %ld\n", text, result);
}

static void status(const char *name) {
    struct stat s;
    if (lstat(name, &s) < 0)
        printf("%s: %s\n", name, strerrorname_np(errno));
    else
        printf("%s: mode %o links %ld size %ld\n", name, s.st_mode, (long)s.st_nlink,
               S_ISREG(s.st_mode) || S_ISLNK(s.st_mode) ? (long)s.st_size : 0L);
}

static int compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list(const char *name) {
    char *names[256];
    int count = 0;
    DIR *directory = opendir(name);
    if (!directory) {
        printf("list %s: %s\n", name, strerrorname_np(errno));
        return -1;
    }
    for (struct dirent *entry; count < 256 && (entry = readdir(directory));)
        if (asprintf(&names[count++], "%s/%d", entry->d_name, entry->d_type) < 0)
            abort();
    closedir(directory);
    qsort(names, count, sizeof *names, compare);
    printf("list %s:", name);
    for (int i = 0; i < count; i++)
        printf(" %s", names[i]);
    puts("");
    return count;
}

static void contents(int fd) {
    char text[64];
    ssize_t count = pread(fd, text, sizeof text - 1, 0);
    text[count < 0 ? 0 : count] = 0;
    for (char *c = text; c < text + count; c++)
        if (!*c)
            *c = '.';
    printf("contents: %s\n", text);
}

static void reading_and_writing(void) {
    int fd = open("file", O_RDWR | O_CREAT | O_EXCL, 0640);
    SHOW(write(fd, "hello world", 11));
    SHOW(pwrite(fd, "W", 1, 6));
    SHOW(lseek(fd, 0, SEEK_END));
    SHOW(lseek(fd, -5, SEEK_CUR));
    SHOW(write(fd, "earth", 5));
    contents(fd);
    SHOW(ftruncate(fd, 5));
    SHOW(pwrite(fd, "!", 1, 8));
    contents(fd);
    SHOW(fsync(fd));
    SHOW(fdatasync(fd));
    SHOW(fallocate(fd, 0, 0, 20));
    SHOW(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 8192));
    SHOW(fallocate(fd, 0, -1, 20));
    status("file");
    SHOW(open("file", O_RDWR | O_CREAT | O_EXCL, 0640));
    int append = open("file", O_WRONLY | O_APPEND);
    SHOW(write(append, "end", 3));
    SHOW(lseek(append, 0, SEEK_CUR));
    SHOW(pwrite(append, "more", 4, 0));
    SHOW(read(append, &fd, 1));
    close(append);
    contents(fd);
    int again = open("file", O_RDONLY | O_TRUNC);
    status("file");
    SHOW(write(again, "x", 1));
    SHOW(ftruncate(again, 3));
    close(again);
    close(fd);
    SHOW(truncate("file", 100));
    SHOW(truncate("nothing", 100));
    status("file");
    SHOW(close(openat(AT_FDCWD, ".", O_TMPFILE | O_RDWR, 0600)) < 0);
    list(".");
}

static void large(void) {
    enum { SIZE = 3 << 20 };
    unsigned char *from = malloc(SIZE), *to = malloc(SIZE);
    for (int i = 0; i < SIZE; i++)
        from[i] = i * 31 ^ i >> 9;
    int fd = open("large", O_RDWR | O_CREAT, 0600);
    SHOW(write(fd, from, SIZE));
    SHOW(pread(fd, to, SIZE, 0));
    SHOW(memcmp(from, to, SIZE));
    SHOW(pread(fd, to, SIZE, SIZE - 1000));
    SHOW(lseek(fd, 0, SEEK_DATA));
    SHOW(lseek(fd, SIZE, SEEK_DATA));
    int copy = open("copy", O_RDWR | O_CREAT, 0600);
    loff_t start = 0;
    SHOW(copy_file_range(fd, &start, copy, NULL, SIZE, 0));
    memset(to, 0, SIZE);
    SHOW(pread(copy, to, SIZE, 0));
    SHOW(memcmp(from, to, SIZE));
    close(copy);
    close(fd);
    SHOW(unlink("copy"));
    SHOW(unlink("large"));
}

static void names(void) {
    SHOW(mkdir("d", 0755));
    SHOW(mkdir("d", 0755));
    SHOW(mkdir("d/e", 0700));
    SHOW(close(creat("d/f", 0644)));
    SHOW(link("d/f", "d/g"));
    SHOW(link("d/f", "d/g"));
    SHOW(link("d", "hard"));
    SHOW(symlink("g", "d/s"));
    SHOW(symlink("/nowhere/at/all", "d/broken"));
    SHOW(symlink("loop", "loop"));
    SHOW(open("loop", O_RDONLY));
    SHOW(open("d/broken", O_RDONLY));
    SHOW(open("d/s", O_RDONLY | O_NOFOLLOW));
    char target[64] = "";
    SHOW(readlink("d/broken", target, sizeof target));
    puts(target);
    SHOW(readlink("d/f", target, sizeof target));
    status("d/f");
    status("d/s");
    list("d");
    SHOW(rename("d/f", "d/e/moved"));
    SHOW(rename("d", "d/e/inside"));
    SHOW(rename("d/e", "d/g"));
    SHOW(rename("d/g", "d/e"));
    SHOW(renameat2(AT_FDCWD, "d/g", AT_FDCWD, "d/e/moved", RENAME_NOREPLACE));
    SHOW(renameat2(AT_FDCWD, "d/s", AT_FDCWD, "d/broken", RENAME_EXCHANGE));
    status("d/s");
    SHOW(rmdir("d"));
    SHOW(unlink("d/e"));
    SHOW(rmdir("d/g"));
    SHOW(rmdir("d/e"));
    SHOW(unlink("d/e/moved"));
    SHOW(rmdir("d/e"));
    SHOW(access("d/g", W_OK));
    SHOW(access("d/g/", F_OK));
    SHOW(access("d/g/x", F_OK));
    SHOW(mkfifo("d/g", 0600));
    list("d");
    SHOW(unlink("d/g"));
    SHOW(unlink("d/s"));
    SHOW(unlink("d/broken"));
    SHOW(unlink("loop"));
    SHOW(rmdir("d"));
    char name[300];
    memset(name, 'n', sizeof name);
    name[256] = 0;
    SHOW(mkdir(name, 0700));
    name[255] = 0;
    SHOW(mkdir(name, 0700));
    SHOW(rmdir(name));
}

static void attributes(void) {
    int fd = open("attributes", O_RDWR | O_CREAT, 0666);
    status("attributes");
    SHOW(fchmod(fd, 01600));
    status("attributes");
    SHOW(chmod("attributes", 0444));
    struct timespec times[2] = {{.tv_sec = 1000, .tv_nsec = 5}, {.tv_sec = 2000, .tv_nsec = 7}};
    SHOW(futimens(fd, times));
    struct stat s;
    SHOW(fstat(fd, &s));
    printf("%ld.%09ld %ld.%09ld\n", (long)s.st_atim.tv_sec, s.st_atim.tv_nsec,
           (long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_nsec = UTIME_NOW;
    SHOW(utimensat(AT_FDCWD, "attributes", times, 0));
    SHOW(fstat(fd, &s));
    printf("%ld %d\n", (long)s.st_atim.tv_sec, labs(time(NULL) - s.st_mtim.tv_sec) < 60);
    SHOW(fchown(fd, getuid(), -1));
    struct statfs fs;
    SHOW(fstatfs(fd, &fs));
    printf("%d\n", fs.f_bfree <= fs.f_blocks && fs.f_bsize > 0);
    SHOW(unlink("attributes"));
    // The file continues to exist without a name.
    SHOW(write(fd, "gone", 4));
    contents(fd);
    SHOW(fstat(fd, &s));
    printf("links %ld\n", (long)s.st_nlink);
    close(fd);
}

static void directories(void) {
    SHOW(mkdir("many", 0755));
    char name[32];
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "many/file-with-a-long-name-%d", i);
        int fd = creat(name, 0600);
        if (fd < 0)
            show(name, fd);
        close(fd);
    }
    DIR *directory = opendir("many");
    int seen = 0;
    long place = 0;
    struct dirent *entry;
    char middle[256] = "";
    while ((entry = readdir(directory))) {
        if (++seen == 1500)
            place = telldir(directory);
        if (seen == 1501)
            strcpy(middle, entry->d_name);
    }
    printf("entries: %d\n", seen);
    seekdir(directory, place);
    entry = readdir(directory);
    printf("same place: %d\n", entry && !strcmp(entry->d_name, middle));
    rewinddir(directory);
    int removed = 0;
    while ((entry = readdir(directory)))
        if (entry->d_name[0] != '.')
            removed += !unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    printf("removed: %d\n", removed);
    list("many");
    SHOW(chdir("many"));
    SHOW(rmdir("../many"));
    SHOW(close(creat("x", 0600)));
    char path[256];
    printf("%d\n", getcwd(path, sizeof path) == NULL);
    SHOW(chdir(".."));
}

static int lock(int fd, int command, int kind, long start, long length) {
    struct flock lock = {.l_type = kind, .l_start = start, .l_len = length};
    return fcntl(fd, command, &lock);
}

static void who(int fd, int kind, long start, long length, int parent) {
    struct flock lock = {.l_type = kind, .l_start = start, .l_len = length};
    if (fcntl(fd, F_GETLK, &lock) < 0)
        printf("getlk: %s\n", strerrorname_np(errno));
    else if (lock.l_type == F_UNLCK)
        puts("getlk: free");
    else
        printf("getlk: %d %ld %ld parent %d\n", lock.l_type, (long)lock.l_start,
               (long)lock.l_len, lock.l_pid == parent);
}

static void in_child(void (*child)(int, int), int fd) {
    int parent = getpid();
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        child(fd, parent);
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

static void other_process(int fd, int parent) {
    who(fd, F_WRLCK, 0, 0, parent);
    who(fd, F_RDLCK, 15, 1, parent);
    who(fd, F_RDLCK, 35, 1, parent);
    who(fd, F_WRLCK, 200, 0, parent);
    SHOW(lock(fd, F_SETLK, F_WRLCK, 0, 10));
    SHOW(lock(fd, F_SETLK, F_WRLCK, 10, 10));
    SHOW(lock(fd, F_SETLK, F_RDLCK, 35, 5));
    SHOW(lock(fd, F_SETLK, F_WRLCK, 35, 5));
    SHOW(lock(fd, F_OFD_SETLK, F_WRLCK, 10, 1));
    SHOW(lock(fd, F_SETLK, 7, 0, 1));
    SHOW(lock(fd, F_SETLK, F_WRLCK, -1, 1));
    SHOW(lock(fd, F_SETLK, F_UNLCK, 0, 0));
}

static void whole_file(int fd, int parent) {
    (void)parent;
    // The same open file description holds the lock already. Another description conflicts.
    SHOW(flock(fd, LOCK_EX | LOCK_NB));
    int other = open("locks", O_RDWR);
    SHOW(flock(other, LOCK_EX | LOCK_NB));
    SHOW(flock(other, LOCK_SH | LOCK_NB));
    SHOW(flock(fd, LOCK_UN));
    SHOW(flock(other, LOCK_SH | LOCK_NB));
    SHOW(flock(fd, LOCK_EX | LOCK_NB));
    SHOW(flock(other, 5));
    close(other);
    SHOW(flock(fd, LOCK_EX | LOCK_NB));
}

static void locks(void) {
    int fd = open("locks", O_RDWR | O_CREAT, 0600);
    SHOW(ftruncate(fd, 100));
    SHOW(lock(fd, F_SETLK, F_WRLCK, 10, 20));
    SHOW(lock(fd, F_SETLK, F_RDLCK, 25, 20));
    SHOW(lock(fd, F_SETLK, F_WRLCK, 150, 0));
    in_child(other_process, fd);
    // Closing any descriptor of the file releases all of its locks.
    close(open("locks", O_RDONLY));
    in_child(other_process, fd);
    int reader = open("locks", O_RDONLY);
    SHOW(lock(reader, F_SETLK, F_WRLCK, 0, 1));
    SHOW(lock(reader, F_OFD_SETLK, F_RDLCK, 0, 1));
    SHOW(lock(fd, F_SETLK, F_WRLCK, 0, 1));
    SHOW(lock(fd, F_OFD_SETLK, F_RDLCK, 0, 1));
    close(reader);
    SHOW(lock(fd, F_OFD_SETLK, F_UNLCK, 0, 1));
    SHOW(flock(fd, LOCK_EX));
    in_child(whole_file, fd);
    // A waiting process gets the lock when it is free.
    SHOW(lock(fd, F_SETLK, F_WRLCK, 0, 10));
    int pipes[2], printed[2];
    if (pipe(pipes) < 0 || pipe(printed) < 0)
        abort();
    fflush(stdout);
    pid_t pid = fork();
    char ready;
    if (!pid) {
        (void)!write(pipes[1], "r", 1);
        int taken = lock(fd, F_SETLKW, F_WRLCK, 5, 10);
        // The output has an order.
        (void)!read(printed[0], &ready, 1);
        SHOW(taken);
        SHOW(pwrite(fd, "child", 5, 0));
        fflush(stdout);
        _exit(0);
    }
    (void)!read(pipes[0], &ready, 1);
    usleep(50000);
    contents(fd);
    SHOW(lock(fd, F_SETLK, F_UNLCK, 0, 10));
    fflush(stdout);
    (void)!write(printed[1], "p", 1);
    waitpid(pid, NULL, 0);
    contents(fd);
    // Deadlock of two processes.
    SHOW(lock(fd, F_SETLK, F_WRLCK, 0, 1));
    fflush(stdout);
    pid = fork();
    if (!pid) {
        lock(fd, F_SETLK, F_WRLCK, 1, 1);
        (void)!write(pipes[1], "r", 1);
        _exit(lock(fd, F_SETLKW, F_WRLCK, 0, 1) < 0 ? errno : 0);
    }
    (void)!read(pipes[0], &ready, 1);
    usleep(50000);
    SHOW(lock(fd, F_SETLKW, F_WRLCK, 1, 1));
    SHOW(lock(fd, F_SETLK, F_UNLCK, 0, 1));
    int code;
    waitpid(pid, &code, 0);
    printf("child %d\n", WEXITSTATUS(code));
    SHOW(unlink("locks"));
}

static sigjmp_buf place;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    printf("signal %d code %d\n", signal, info->si_code);
    siglongjmp(place, 1);
}

static void touch(volatile char *at, int store) {
    if (sigsetjmp(place, 1))
        return;
    if (store)
        *at = 'x';
    printf("touched: %d\n", *at);
}

static void map_child(int fd, int parent) {
    (void)parent;
    char *child = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    strcpy(child + 200, "from the child");
    munmap(child, 4096);
}

static void maps(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    int fd = open("maps", O_RDWR | O_CREAT, 0600);
    for (int i = 0; i < 3; i++)
        SHOW(pwrite(fd, "page", 4, i * 4096));
    char *shared = mmap(NULL, 5 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    char *reader = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 4096);
    puts(shared);
    puts(private);
    puts(reader);
    // Stores to the file and to shared memory are visible everywhere.
    strcpy(shared, "stored");
    strcpy(shared + 4096, "second");
    puts(private);
    puts(reader);
    contents(fd);
    SHOW(pwrite(fd, "written", 7, 0));
    puts(shared);
    // Stores to private memory are not.
    strcpy(private + 4096, "mine");
    puts(reader);
    SHOW(pwrite(fd, "theirs", 6, 4096));
    puts(private + 4096);
    puts(reader);
    in_child(map_child, fd);
    puts(shared + 200);
    SHOW(msync(shared, 3 * 4096, MS_SYNC));
    SHOW(msync(shared + 1, 4096, MS_SYNC));
    SHOW(msync(shared, 4096, MS_SYNC | MS_ASYNC));
    SHOW(mprotect(shared, 4096, PROT_READ));
    touch(shared, 1);
    SHOW(mprotect(shared, 4096, PROT_READ | PROT_WRITE));
    touch(shared, 1);
    contents(fd);
    // The file ends within the third page: the fourth page is missing.
    touch(shared + 2 * 4096 + 2000, 0);
    touch(shared + 3 * 4096, 0);
    touch(shared + 3 * 4096, 1);
    SHOW(write(fd, shared + 3 * 4096, 1));
    SHOW(ftruncate(fd, 4 * 4096));
    touch(shared + 3 * 4096, 1);
    SHOW(ftruncate(fd, 100));
    touch(shared + 4096, 0);
    touch(shared + 3 * 4096, 0);
    touch(shared + 150, 0);
    SHOW(ftruncate(fd, 8192));
    touch(shared + 150, 0);
    touch(shared + 4096, 0);
    strcpy(shared + 5000, "at the end");
    SHOW(close(fd));
    SHOW(munmap(private, 3 * 4096));
    SHOW(munmap(reader, 4096));
    SHOW(munmap(shared, 5 * 4096));
    fd = open("maps", O_RDONLY);
    char text[20] = "";
    SHOW(pread(fd, text, sizeof text, 5000));
    puts(text);
    SHOW((long)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    SHOW((long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 100));
    SHOW((long)mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0));
    close(fd);
    fd = open("maps", O_WRONLY);
    SHOW((long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
    close(fd);
    // A mapping that is never unmapped reaches the file too.
    fd = open("maps", O_RDWR);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    strcpy(shared, "left");
}

static void events(int fd) {
    char buffer[4096] __attribute__((aligned(8)));
    ssize_t length = read(fd, buffer, sizeof buffer);
    for (char *at = buffer; at < buffer + length;) {
        struct inotify_event *event = (void *)at;
        printf("event %d %#x%s %s\n", event->wd, event->mask, event->cookie ? " moved" : "",
               event->len ? event->name : "");
        at += sizeof *event + event->len;
    }
}

// Changes by programs of this machine are reported; the watched directory is emptied and removed.
static void watching(void) {
    int notify = inotify_init1(IN_NONBLOCK);
    SHOW(mkdir("w", 0755));
    SHOW(inotify_add_watch(notify, "w", IN_ALL_EVENTS));
    SHOW(inotify_add_watch(notify, "absent", IN_ALL_EVENTS));
    int fd = open("w/a", O_CREAT | O_RDWR, 0644);
    SHOW(write(fd, "text", 4));
    SHOW(pread(fd, (char[4]){0}, 4, 0));
    SHOW(ftruncate(fd, 2));
    SHOW(fchmod(fd, 0600));
    events(notify);
    SHOW(inotify_add_watch(notify, "w/a", IN_ALL_EVENTS));
    SHOW(futimens(fd, (struct timespec[2]){{1, 0}, {1, 0}}));
    SHOW(close(fd));
    events(notify);
    SHOW(link("w/a", "w/b"));
    SHOW(rename("w/a", "w/b"));
    SHOW(rename("w/a", "w/c"));
    SHOW(symlink("c", "w/s"));
    SHOW(mkdir("w/d", 0755));
    SHOW(rename("w/d", "w/e"));
    events(notify);
    SHOW(rename("w/s", "w/c"));
    SHOW(rmdir("w/e"));
    events(notify);
    SHOW(unlink("w/b"));
    SHOW(unlink("w/c"));
    SHOW(rmdir("w"));
    events(notify);
    close(notify);
}

static void extended(const char *path, const char *name) {
    char value[20];
    long length = getxattr(path, name, value, sizeof value);
    if (length < 0)
        printf("%s %s: %s\n", path, name, strerrorname_np(errno));
    else
        printf("%s %s: %.*s\n", path, name, (int)length, value);
}

static void extended_attributes(void) {
    close(open("x", O_CREAT | O_WRONLY, 0644));
    SHOW(mkdir("xd", 0755));
    SHOW(symlink("x", "xl"));
    char names[100];
    for (int i = 0; i < 2; i++) {
        const char *path = i ? "xd" : "x";
        extended(path, "user.one");
        SHOW(setxattr(path, "user.one", "1", 1, XATTR_REPLACE));
        SHOW(setxattr(path, "user.one", "value", 5, XATTR_CREATE));
        SHOW(setxattr(path, "user.one", "again", 5, XATTR_CREATE));
        extended(path, "user.one");
        SHOW(setxattr(path, "user.one", "", 0, 0));
        extended(path, "user.one");
        SHOW(listxattr(path, names, sizeof names));
        printf("%s\n", names);
        SHOW(listxattr(path, names, 3));
        SHOW(listxattr(path, NULL, 0));
    }
    extended("xl", "user.one");
    SHOW(lsetxattr("xl", "user.one", "1", 1, 0));
    SHOW(lgetxattr("xl", "user.one", names, sizeof names));
    SHOW(llistxattr("xl", names, sizeof names));
    SHOW(setxattr("x", "none.one", "1", 1, 0));
    SHOW(setxattr("x", "user.", "1", 1, 0));
    SHOW(setxattr("absent", "user.one", "1", 1, 0));
    SHOW(getxattr("x", "user.two", NULL, 0));
    SHOW(setxattr("x", "user.two", "two", 3, 0));
    SHOW(getxattr("x", "user.two", NULL, 0));
    SHOW(getxattr("x", "user.two", names, 2));
    SHOW(removexattr("x", "user.one"));
    SHOW(removexattr("x", "user.one"));
    extended("x", "user.two");
}

static void operation(const char *name, long result) {
    printf("%s: %s\n", name, result < 0 ? strerrorname_np(errno) : "done");
}

static int copy_file(const char *from, const char *to) {
    static char bytes[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0755);
    ssize_t count;
    while ((count = read(in, bytes, sizeof bytes)) > 0)
        if (write(out, bytes, count) != count)
            return -1;
    close(in);
    close(out);
    return count;
}

static int execute(const char *path) {
    int code;
    pid_t pid = fork();
    if (!pid) {
        execl(path, path, "nothing", ".", NULL);
        _exit(98);
    }
    waitpid(pid, &code, 0);
    errno = ECHILD;
    return code ? -1 : 0;
}

// Files that lose their name while they are open: there is room for all of them only if the host
// learns when they are closed.
static int fill_and_forget(void) {
    static char bytes[1 << 20];
    for (int i = 0; i < 40; i++) {
        int fd = open("gone", O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd < 0 || unlink("gone") < 0 || write(fd, bytes, sizeof bytes) != sizeof bytes)
            return -1;
        close(fd);
    }
    return 0;
}

// Each kind of request that a volume serves: one line or more with its name.
static void operations(void) {
    struct stat s;
    struct statfs fs;
    char bytes[16] = "";
    struct timespec times[2] = {{.tv_sec = 1000, .tv_nsec = 5}, {.tv_sec = 2000, .tv_nsec = 7}};
    operation("Root", stat(".", &s));
    int fd = open("file", O_RDWR | O_CREAT | O_EXCL, 0600);
    operation("Create", fd);
    operation("Write", write(fd, "hello", 5));
    int append = open("file", O_WRONLY | O_APPEND);
    operation("Open", append);
    operation("Write", write(append, " world", 6));
    close(append);
    operation("Read", pread(fd, bytes, sizeof bytes, 0));
    puts(bytes);
    operation("Lookup", stat("file", &s));
    operation("Attributes", fstat(fd, &s));
    operation("SetMode", chmod("file", 0640));
    operation("SetOwner", chown("file", s.st_uid, s.st_gid));
    operation("SetTimes", utimensat(AT_FDCWD, "file", times, 0));
    operation("Truncate", ftruncate(fd, 8192));
    operation("Truncate", truncate("file", 4096));
    operation("Truncate", open("file", O_WRONLY | O_DIRECTORY));
    operation("Allocate", fallocate(fd, 0, 8192, 4096));
    enum { PUNCH = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE };
    operation("Allocate", fallocate(fd, PUNCH, 4096, 4096));
    operation("Allocate", fallocate(fd, FALLOC_FL_PUNCH_HOLE, 4096, 4096));
    operation("Allocate", fallocate(fd, 0, 0, 0));
    operation("Allocate beyond the end", fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1 << 20));
    operation("Attributes", fstat(fd, &s));
    printf("size %ld\n", (long)s.st_size);
    operation("Seek", lseek(fd, 0, SEEK_DATA));
    operation("Seek", lseek(fd, 0, SEEK_HOLE));
    operation("Seek", lseek(fd, 1 << 20, SEEK_DATA));
    operation("SetMode", chmod(".", 0755));
    operation("SetMode", fchmod(fd, 0600));
    times[0].tv_nsec = UTIME_OMIT, times[1].tv_nsec = UTIME_NOW;
    operation("SetTimes", futimens(fd, times));
    operation("SetOwner", fchown(fd, -1, -1));
    operation("Sync", fsync(fd));
    operation("Sync", fdatasync(fd));
    operation("FileSystem", fstatfs(fd, &fs));
    operation("SetExtended", setxattr("file", "user.one", "1", 1, 0));
    operation("GetExtended", getxattr("file", "user.one", bytes, sizeof bytes));
    operation("ListExtended", listxattr("file", bytes, sizeof bytes));
    operation("RemoveExtended", removexattr("file", "user.one"));
    operation("MakeDirectory", mkdir("directory", 0755));
    operation("SymbolicLink", symlink("file", "symbolic"));
    operation("ReadLink", readlink("symbolic", bytes, sizeof bytes));
    operation("Link", link("file", "directory/link"));
    int unnamed = open(".", O_TMPFILE | O_RDWR, 0600);
    operation("CreateUnnamed", unnamed);
    operation("Write", write(unnamed, "x", 1));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", unnamed);
    operation("Link", linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    operation("Unlink", unlink("named"));
    close(unnamed);
    operation("Open", open("symbolic", O_RDONLY | O_NOFOLLOW));
    operation("Open", open("symbolic", O_RDONLY | O_TRUNC));
    operation("Create", open("file", O_RDWR | O_CREAT | O_EXCL, 0600));
    operation("Link", link("file", "directory/link"));
    operation("Unlink", unlink("directory"));
    operation("RemoveDirectory", rmdir("directory"));
    operation("RemoveDirectory", rmdir("file"));
    operation("Rename", rename("file", "directory/link"));
    operation("Rename", renameat2(AT_FDCWD, "file", AT_FDCWD, "symbolic", RENAME_NOREPLACE));
    operation("Rename", renameat2(AT_FDCWD, "file", AT_FDCWD, "symbolic", RENAME_EXCHANGE));
    operation("Rename", renameat2(AT_FDCWD, "file", AT_FDCWD, "symbolic", RENAME_EXCHANGE));
    operation("Rename", renameat2(AT_FDCWD, "file", AT_FDCWD, "none", RENAME_EXCHANGE));
    operation("Rename", rename("directory", "directory/inside"));
    operation("Rename", rename("file", "renamed"));
    operation("Rename", rename("renamed", "directory/renamed"));
    operation("Rename", renameat2(AT_FDCWD, "symbolic", AT_FDCWD, "other", RENAME_NOREPLACE));
    operation("Rename", renameat2(AT_FDCWD, "other", AT_FDCWD, "directory", RENAME_EXCHANGE));
    operation("ReadDirectory", list("."));
    operation("Rename", rename("other", "files"));
    operation("ReadDirectory", list("files"));
    operation("Unlink", unlink("files/link"));
    operation("Unlink", unlink("files/renamed"));
    operation("RemoveDirectory", rmdir("files"));
    close(fd);
    operation("Forget", fill_and_forget());
    operation("Copy", copy_file("/proc/self/exe", "program"));
    operation("Copy", execute("./program"));
    operation("Unlink", unlink("program"));
    operation("Unlink", unlink("directory"));
    list(".");
}

// Names of one file until there is no room for another.
static void names_of_one(void) {
    char name[256];
    long names = 0;
    if (close(open("file", O_WRONLY | O_CREAT, 0600)) < 0)
        abort();
    do
        snprintf(name, sizeof name, "%0255ld", ++names);
    while (!link("file", name));
    show("names", -1);
}

// Nested directories until one is refused; then trees that are moved into each other.
static void deep(void) {
    long levels = 0;
    int top = open(".", O_RDONLY | O_DIRECTORY);
    while (!mkdir("d", 0755) && !chdir("d"))
        levels++;
    show("mkdir", -1);
    printf("levels %ld\n", levels);
    if (fchdir(top) < 0)
        abort();
    SHOW(mkdir("top", 0755));
    SHOW(rename("d", "top/d"));
}

static _Atomic int is_done;
// Counts the calls that one thread makes while the other waits for storage.
static _Atomic int is_waiting, calls_beside;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *use_storage(void *unused) {
    char bytes[10000] = "what was written";
    struct iovec parts[] = {{bytes, 1000}, {bytes + 1000, 9000}};
    int file = open("beside", O_RDWR | O_CREAT | O_TRUNC, 0600);
    SHOW(write(file, bytes, sizeof bytes));
    SHOW(fsync(file));
    SHOW(fdatasync(file));
    memset(bytes, 0, sizeof bytes);
    SHOW(preadv(file, parts, 2, 0));
    printf("%s\n", bytes);
    SHOW(read(file, bytes, sizeof bytes));
    // On a busy machine the VM may get no CPU during one wait, but not during all waits.
    for (int i = 0; i < 50 && calls_beside < 10; i++) {
        is_waiting = 1;
        fsync(file);
        is_waiting = 0;
    }
    close(file);
    is_done = 1;
    return unused;
}

// One thread waits for storage, the other one makes calls meanwhile.
static void beside(void) {
    pthread_t thread;
    double start = now();
    pthread_create(&thread, NULL, use_storage, NULL);
    while (!is_done) {
        getppid();
        calls_beside += is_waiting;
        usleep(1000);
    }
    pthread_join(thread, NULL);
    // Of six waits, of 0.3 s each where storage is slow.
    printf("%s: %s\n", now() - start > 1 ? "slow" : "fast",
           calls_beside >= 10 ? "the other one went on" : "the other one stood still");
}

int main(int count, char **arguments) {
    if (count != 3 || chdir(arguments[2]) < 0)
        return 99;
    umask(022);
    signal(SIGXFSZ, SIG_IGN);
    if (!strcmp(arguments[1], "files")) {
        reading_and_writing();
        large();
        names();
        attributes();
        directories();
    } else if (!strcmp(arguments[1], "locks")) {
        locks();
    } else if (!strcmp(arguments[1], "maps")) {
        maps();
    } else if (!strcmp(arguments[1], "watching")) {
        watching();
    } else if (!strcmp(arguments[1], "extended")) {
        extended_attributes();
    } else if (!strcmp(arguments[1], "operations")) {
        operations();
    } else if (!strcmp(arguments[1], "names")) {
        names_of_one();
    } else if (!strcmp(arguments[1], "deep")) {
        deep();
    } else if (!strcmp(arguments[1], "beside")) {
        beside();
    }
    return 0;
}
