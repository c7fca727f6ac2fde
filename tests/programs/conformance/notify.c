// inotify: events of files and directories, in order.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

static char buffer[65536];
static size_t at, filled;

// The next event; reads more events if none is left.
static const struct inotify_event *next(int fd) {
    if (at >= filled) {
        long got = read(fd, buffer, sizeof buffer);
        if (got <= 0) return NULL;
        at = 0, filled = got;
    }
    const struct inotify_event *event = (void *)(buffer + at);
    at += sizeof *event + event->len;
    return event;
}

// Fails unless the next event is this one.
#define EVENT(fd, watch, bits, called)                                                       \
    do {                                                                                     \
        const struct inotify_event *event_ = next(fd);                                       \
        const char *name_ = event_ && event_->len ? event_->name : "";                       \
        if (!check(event_ && event_->wd == (watch) && event_->mask == (uint32_t)(bits) &&    \
                       !strcmp(name_, called),                                               \
                   "event " #bits " " called, __FILE__, __LINE__))                           \
            printf("    it is watch %d, %#x, %s\n", event_ ? event_->wd : 0,                 \
                   event_ ? event_->mask : 0, name_);                                        \
    } while (0)

static void directories(int fd) {
    GIVES(mkdir("d", 0755), 0);
    int watch = inotify_add_watch(fd, "d", IN_ALL_EVENTS);
    CHECK(watch > 0);
    FAILS(read(fd, buffer, sizeof buffer), EAGAIN);
    int file = open("d/file", O_CREAT | O_RDWR, 0600);
    EVENT(fd, watch, IN_CREATE, "file");
    EVENT(fd, watch, IN_OPEN, "file");
    CHECK(write(file, "abc", 3) == 3);
    EVENT(fd, watch, IN_MODIFY, "file");
    CHECK(pread(file, buffer + 60000, 3, 0) == 3);
    EVENT(fd, watch, IN_ACCESS, "file");
    CHECK(ftruncate(file, 1) == 0);
    EVENT(fd, watch, IN_MODIFY, "file");
    CHECK(fchmod(file, 0644) == 0);
    EVENT(fd, watch, IN_ATTRIB, "file");
    close(file);
    EVENT(fd, watch, IN_CLOSE_WRITE, "file");
    close(open("d/file", O_RDONLY));
    EVENT(fd, watch, IN_OPEN, "file");
    EVENT(fd, watch, IN_CLOSE_NOWRITE, "file");
    CHECK(mkdir("d/sub", 0755) == 0);
    EVENT(fd, watch, IN_CREATE | IN_ISDIR, "sub");
    CHECK(rename("d/file", "d/other") == 0);
    const struct inotify_event *from = next(fd);
    CHECK(from && from->mask == IN_MOVED_FROM && !strcmp(from->name, "file"));
    uint32_t cookie = from ? from->cookie : 0;
    const struct inotify_event *to = next(fd);
    CHECK(to && to->mask == IN_MOVED_TO && !strcmp(to->name, "other"));
    CHECK(to && cookie != 0 && to->cookie == cookie);
    CHECK(symlink("x", "d/soft") == 0);
    EVENT(fd, watch, IN_CREATE, "soft");
    CHECK(link("d/other", "d/hard") == 0);
    EVENT(fd, watch, IN_CREATE, "hard");
    CHECK(unlink("d/hard") == 0 && unlink("d/soft") == 0);
    EVENT(fd, watch, IN_DELETE, "hard");
    EVENT(fd, watch, IN_DELETE, "soft");
    CHECK(rename("d/other", "outside") == 0);
    EVENT(fd, watch, IN_MOVED_FROM, "other");
    CHECK(rmdir("d/sub") == 0);
    EVENT(fd, watch, IN_DELETE | IN_ISDIR, "sub");
    CHECK(rename("d", "e") == 0);
    EVENT(fd, watch, IN_MOVE_SELF, "");
    CHECK(rmdir("e") == 0);
    EVENT(fd, watch, IN_DELETE_SELF, "");
    EVENT(fd, watch, IN_IGNORED, "");
    FAILS(inotify_rm_watch(fd, watch), EINVAL);
}

static void files(int fd) {
    int watch = inotify_add_watch(fd, "outside", IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF);
    CHECK(watch > 0);
    GIVES(inotify_add_watch(fd, "outside", IN_CLOSE | IN_MASK_ADD), watch);
    FAILS(inotify_add_watch(fd, "outside", IN_CLOSE | IN_MASK_CREATE), EEXIST);
    int file = open("outside", O_WRONLY);
    CHECK(write(file, "1", 1) == 1 && write(file, "2", 1) == 1);
    close(file);
    // Consecutive equal events are merged.
    EVENT(fd, watch, IN_MODIFY, "");
    EVENT(fd, watch, IN_CLOSE_WRITE, "");
    GIVES(inotify_add_watch(fd, "outside", IN_ATTRIB), watch);
    CHECK(truncate("outside", 0) == 0 && chmod("outside", 0600) == 0);
    EVENT(fd, watch, IN_ATTRIB, "");
    GIVES(inotify_rm_watch(fd, watch), 0);
    EVENT(fd, watch, IN_IGNORED, "");
    watch = inotify_add_watch(fd, "outside", IN_DELETE_SELF | IN_ATTRIB);
    file = open("outside", O_RDONLY);
    CHECK(unlink("outside") == 0);
    EVENT(fd, watch, IN_ATTRIB, "");
    close(file);
    EVENT(fd, watch, IN_DELETE_SELF, "");
    EVENT(fd, watch, IN_IGNORED, "");
    close(open("once", O_CREAT | O_WRONLY, 0600));
    watch = inotify_add_watch(fd, "once", IN_ATTRIB | IN_ONESHOT);
    CHECK(chmod("once", 0644) == 0 && chmod("once", 0600) == 0);
    EVENT(fd, watch, IN_ATTRIB, "");
    EVENT(fd, watch, IN_IGNORED, "");
    FAILS(read(fd, buffer, sizeof buffer), EAGAIN);
}

static void waiting(int fd) {
    int watch = inotify_add_watch(fd, ".", IN_CREATE | IN_ONLYDIR), bytes = 0;
    CHECK(watch > 0);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    GIVES(poll(&ready, 1, 0), 0);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    GIVES(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
    pid_t child = CHILD(usleep(20000); close(open("new", O_CREAT | O_WRONLY, 0600)));
    GIVES(poll(&ready, 1, 5000), 1);
    GIVES(ready.revents, POLLIN);
    GIVES(epoll_wait(epoll, &event, 1, 0), 1);
    GIVES(epoll_wait(epoll, &event, 1, 0), 0);
    GIVES(status_of(child), 0);
    GIVES(ioctl(fd, FIONREAD, &bytes), 0);
    GIVES(bytes, 32);
    FAILS(read(fd, buffer, 16), EINVAL);
    EVENT(fd, watch, IN_CREATE, "new");
    close(epoll);
    // A reader waits for an event.
    int blocking = inotify_init();
    int other = inotify_add_watch(blocking, ".", IN_DELETE);
    child = CHILD(usleep(20000); unlink("new"));
    EVENT(blocking, other, IN_DELETE, "new");
    GIVES(status_of(child), 0);
    close(blocking);
}

static void errors(int fd) {
    if (!emulated) FAILS(inotify_init1(1 << 20), EINVAL);
    FAILS(inotify_add_watch(fd, "none", IN_CREATE), ENOENT);
    FAILS(inotify_add_watch(fd, "once", IN_CREATE | IN_ONLYDIR), ENOTDIR);
    FAILS(inotify_add_watch(fd, "once", 0), EINVAL);
    FAILS(inotify_add_watch(fd, (char *)8, IN_CREATE), EFAULT);
    FAILS(inotify_add_watch(9999, "once", IN_CREATE), EBADF);
    FAILS(inotify_add_watch(0, "once", IN_CREATE), EINVAL);
    FAILS(inotify_rm_watch(fd, 9999), EINVAL);
    FAILS(inotify_rm_watch(0, 1), EINVAL);
    FAILS(write(fd, "x", 1), EBADF);
}

// execve opens and reads the program.
static void executing(void) {
    int fd = inotify_init1(IN_NONBLOCK);
    int script = open("script", O_CREAT | O_WRONLY, 0700);
    GIVES(write(script, "#!/no/such/program\n", 19), 19);
    close(script);
    int watch = inotify_add_watch(fd, "script", IN_OPEN | IN_ACCESS);
    CHECK(watch > 0);
    char *arguments[] = {"script", NULL};
    FAILS(execv("./script", arguments), ENOENT);
    at = filled = 0;
    EVENT(fd, watch, IN_OPEN, "");
    EVENT(fd, watch, IN_ACCESS, "");
    close(fd);
}

// More events than the queue holds: the last event reports the overflow.
static void overflow(void) {
    int fd = inotify_init1(IN_NONBLOCK), count = 0;
    CHECK(inotify_add_watch(fd, ".", IN_ATTRIB) > 0);
    close(open("a", O_CREAT | O_WRONLY, 0600)), close(open("b", O_CREAT | O_WRONLY, 0600));
    for (int i = 0; i < 10000; i++) chmod("a", 0600), chmod("b", 0600);
    const struct inotify_event *event;
    uint32_t last = 0;
    at = filled = 0;
    while ((event = next(fd))) count++, last = event->mask;
    GIVES(last, IN_Q_OVERFLOW);
    CHECK(count > 1000 && count < 20000);
    close(fd);
}

// The watches of an instance in /proc/self/fdinfo.
static void shown(void) {
    char path[64], text[1024] = "", wanted[128];
    struct stat directory;
    int fd = inotify_init1(IN_CLOEXEC);
    GIVES(stat(".", &directory), 0);
    GIVES(inotify_add_watch(fd, ".", IN_CREATE | IN_DELETE), 1);
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    int info = open(path, O_RDONLY);
    CHECK(read(info, text, sizeof text - 1) > 0);
    snprintf(wanted, sizeof wanted, "\ninotify wd:1 ino:%lx sdev:", (long)directory.st_ino);
    CHECK(strstr(text, wanted) != NULL);
    CHECK(strstr(text, " mask:300 ignored_mask:0 ") != NULL);
    close(info), close(fd);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    GIVES(fcntl(fd, F_GETFD), FD_CLOEXEC);
    directories(fd);
    files(fd);
    waiting(fd);
    errors(fd);
    executing();
    overflow();
    if (!emulated) shown();
    GIVES(close(fd), 0);
    return finish("notify");
}
