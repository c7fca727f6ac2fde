// POSIX message queues: names, attributes, priorities, waiting, notification.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

static char name[64], text[16];

static struct timespec after(long milliseconds) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += milliseconds % 1000 * 1000000;
    time.tv_sec += milliseconds / 1000 + time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void names(void) {
    struct mq_attr wanted = {.mq_maxmsg = 3, .mq_msgsize = sizeof text}, got;
    FAILS(mq_open(name, O_RDWR), ENOENT);
    FAILS(mq_unlink(name), ENOENT);
    FAILS(syscall(SYS_mq_open, "a/b", O_RDWR | O_CREAT, 0600, NULL), EACCES);
    FAILS(syscall(SYS_mq_open, "", O_RDWR | O_CREAT, 0600, NULL), ENOENT);
    FAILS(syscall(SYS_mq_open, 8, O_RDWR, 0600, NULL), EFAULT);
    struct mq_attr bad = {.mq_maxmsg = 0, .mq_msgsize = 8};
    FAILS(mq_open(name, O_RDWR | O_CREAT, 0600, &bad), EINVAL);
    bad.mq_maxmsg = 4, bad.mq_msgsize = -1;
    FAILS(mq_open(name, O_RDWR | O_CREAT, 0600, &bad), EINVAL);
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_NONBLOCK, 0600, &wanted);
    CHECK(queue >= 0);
    CHECK(fcntl(queue, F_GETFD) == FD_CLOEXEC);
    FAILS(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &wanted), EEXIST);
    GIVES(mq_getattr(queue, &got), 0);
    GIVES(got.mq_flags, O_NONBLOCK);
    GIVES(got.mq_maxmsg, 3);
    GIVES(got.mq_msgsize, sizeof text);
    GIVES(got.mq_curmsgs, 0);
    got.mq_flags = O_APPEND;
    FAILS(mq_setattr(queue, &got, NULL), EINVAL);
    got.mq_flags = 0, got.mq_maxmsg = 99;
    GIVES(mq_setattr(queue, &got, &wanted), 0);
    GIVES(wanted.mq_flags, O_NONBLOCK);
    GIVES(mq_getattr(queue, &got), 0);
    GIVES(got.mq_flags, 0);
    GIVES(got.mq_maxmsg, 3);
    FAILS(mq_getattr(0, &got), EBADF);
    CHILD_EXITS(0, {
        if (setgid(1) || setuid(1)) _exit(1);
        if (mq_open(name, O_RDONLY) >= 0 || errno != EACCES) _exit(2);
        struct mq_attr large = {.mq_maxmsg = 10, .mq_msgsize = 8193};
        if (mq_open("/other", O_RDWR | O_CREAT, 0600, &large) >= 0 || errno != EINVAL) _exit(3);
        struct rlimit none = {0};
        setrlimit(RLIMIT_MSGQUEUE, &none);
        _exit(mq_open("/other", O_RDWR | O_CREAT, 0600, NULL) >= 0 || errno != EMFILE);
    });
    mq_close(queue);
}

static void messages(void) {
    unsigned priority = 0;
    mqd_t queue = mq_open(name, O_RDWR | O_NONBLOCK), reader = mq_open(name, O_RDONLY);
    struct pollfd ready = {.fd = queue, .events = POLLIN | POLLOUT};
    GIVES(poll(&ready, 1, 0), 1);
    GIVES(ready.revents, POLLOUT);
    FAILS(mq_receive(queue, text, sizeof text, NULL), EAGAIN);
    FAILS(mq_send(reader, "x", 1, 0), EBADF);
    FAILS(mq_send(queue, text, sizeof text + 1, 0), EMSGSIZE);
    FAILS(mq_send(queue, "x", 1, 32768), EINVAL);
    FAILS(syscall(SYS_mq_timedsend, queue, 8, 1, 0, NULL), EFAULT);
    GIVES(mq_send(queue, "low", 3, 1), 0);
    GIVES(mq_send(queue, "", 0, 32767), 0);
    GIVES(mq_send(queue, "later", 5, 1), 0);
    FAILS(mq_send(queue, "full", 4, 1), EAGAIN);
    GIVES(poll(&ready, 1, 0), 1);
    GIVES(ready.revents, POLLIN);
    FAILS(mq_receive(queue, text, sizeof text - 1, NULL), EMSGSIZE);
    GIVES(mq_receive(queue, text, sizeof text, &priority), 0);
    GIVES(priority, 32767);
    GIVES(mq_receive(reader, text, sizeof text, &priority), 3);
    GIVES(memcmp(text, "low", 3), 0);
    GIVES(mq_receive(queue, text, sizeof text, NULL), 5);
    struct timespec soon = after(20), bad = {0, 1000000000};
    FAILS(mq_timedreceive(reader, text, sizeof text, NULL, &soon), ETIMEDOUT);
    FAILS(mq_timedreceive(reader, text, sizeof text, NULL, &bad), EINVAL);
    mq_close(queue), mq_close(reader);
}

static void *sends(void *queue) {
    usleep(20000);
    return (void *)(long)mq_send((mqd_t)(long)queue, "late", 4, 7);
}

static void waits(void) {
    mqd_t queue = mq_open(name, O_RDWR);
    pthread_t thread;
    unsigned priority = 0;
    void *result = NULL;
    GIVES(pthread_create(&thread, NULL, sends, (void *)(long)queue), 0);
    GIVES(mq_receive(queue, text, sizeof text, &priority), 4);
    GIVES(priority, 7);
    pthread_join(thread, &result);
    GIVES((long)result, 0);
    // A full queue, until a message is taken.
    for (int i = 0; i < 3; i++) GIVES(mq_send(queue, "x", 1, 9), 0);
    GIVES(pthread_create(&thread, NULL, sends, (void *)(long)queue), 0);
    usleep(40000);
    for (int i = 0; i < 3; i++) GIVES(mq_receive(queue, text, sizeof text, &priority), 1);
    GIVES(mq_receive(queue, text, sizeof text, &priority), 4);
    pthread_join(thread, &result);
    GIVES((long)result, 0);
    // Another process has the same queue, also after its name has gone.
    pid_t child = CHILD(_exit(mq_receive(queue, text, sizeof text, NULL) != 5));
    wait_until_asleep(child);
    GIVES(mq_unlink(name), 0);
    FAILS(mq_open(name, O_RDWR), ENOENT);
    GIVES(mq_send(queue, "child", 5, 0), 0);
    GIVES(status_of(child), 0);
    mq_close(queue);
}

static volatile sig_atomic_t signalled, value, code;

static void handler(int number, siginfo_t *info, void *context) {
    (void)context;
    signalled = number, value = info->si_value.sival_int, code = info->si_code;
}

static volatile int told;

static void in_thread(union sigval given) { told = given.sival_int; }

static void notified(void) {
    struct mq_attr wanted = {.mq_maxmsg = 3, .mq_msgsize = sizeof text};
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, &wanted);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    struct sigevent event = {
        .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 42};
    GIVES(mq_notify(queue, &event), 0);
    FAILS(mq_notify(queue, &event), EBUSY);
    CHILD_EXITS(0, _exit(mq_notify(queue, &event) == 0 || errno != EBUSY));
    GIVES(mq_send(queue, "x", 1, 0), 0);
    GIVES(signalled, SIGUSR1);
    GIVES(value, 42);
    GIVES(code, SI_MESGQ);
    // The registration is used up, and only an empty queue notifies.
    GIVES(mq_notify(queue, &event), 0);
    signalled = 0;
    GIVES(mq_send(queue, "x", 1, 0), 0);
    GIVES(signalled, 0);
    GIVES(mq_notify(queue, NULL), 0);
    GIVES(mq_receive(queue, text, sizeof text, NULL), 1);
    GIVES(mq_receive(queue, text, sizeof text, NULL), 1);
    event.sigev_notify = 99;
    FAILS(mq_notify(queue, &event), EINVAL);
    event = (struct sigevent){.sigev_notify = SIGEV_THREAD,
                              .sigev_notify_function = in_thread,
                              .sigev_value.sival_int = 43};
    GIVES(mq_notify(queue, &event), 0);
    GIVES(mq_send(queue, "x", 1, 0), 0);
    for (int i = 0; i < 5000 && !told; i++) usleep(1000);
    GIVES(told, 43);
    GIVES(mq_unlink(name), 0);
    mq_close(queue);
}

// Becomes a user with a limit for queues.
static int become(uid_t user, rlim_t limit) {
    struct rlimit limits = {limit, limit};
    return setrlimit(RLIMIT_MSGQUEUE, &limits) || setgid(user) || setuid(user);
}

// Opens queues of ten messages until one is refused, and fills them. Returns how many there are.
static int fill(int user, long size, int most, int *error) {
    static char message[1 << 16];
    struct mq_attr wanted = {.mq_maxmsg = 10, .mq_msgsize = size};
    int count = 0;
    while (count < most) {
        char path[80];
        snprintf(path, sizeof path, "%s.%d.%d", name, user, count);
        errno = 0;
        mqd_t queue = mq_open(path, O_RDWR | O_CREAT | O_EXCL | O_NONBLOCK, 0600, &wanted);
        if (queue < 0) break;
        count++;
        for (int i = 0; i < 10; i++)
            if (mq_send(queue, message, size, i)) goto refused;
        if (mq_send(queue, message, size, 0) != -1 || errno != EAGAIN) return -1;
    }
refused:
    *error = errno;
    return count;
}

static void empty(int user, int queues) {
    for (int i = 0; i < queues; i++) {
        char path[80];
        snprintf(path, sizeof path, "%s.%d.%d", name, user, i);
        mq_unlink(path);
    }
}

// Each user has a limit of its own, also while others have reached theirs.
static void users(void) {
    if (geteuid()) return;
    int turns[2], done[2];
    GIVES(pipe(turns), 0);
    GIVES(pipe(done), 0);
    for (int user = 1000; user < 1003; user++)
        CHILD({
            char byte;
            int error = 0;
            close(turns[1]);
            // Room for two queues, which count for 82880 bytes each.
            if (become(user, 200000)) _exit(1);
            if (fill(user, 8192, 9, &error) != 2 || error != EMFILE) _exit(2);
            if (write(done[1], "x", 1) != 1) _exit(3);
            // The others have theirs until all have ended.
            _exit(read(turns[0], &byte, 1) != 0);
        });
    close(done[1]);
    char byte;
    for (int i = 0; i < 3; i++) GIVES(read(done[0], &byte, 1), 1);
    // A name is enough, whoever ends.
    close(turns[1]);
    int status;
    for (int i = 0; i < 3; i++) {
        CHECK(wait(&status) > 0);
        GIVES(status, 0);
    }
    close(turns[0]), close(done[0]);
    CHILD_EXITS(0, {
        int error = 0;
        if (become(1000, 200000)) _exit(1);
        if (mq_open("/another", O_RDWR | O_CREAT, 0600, NULL) >= 0 || errno != EMFILE) _exit(2);
        empty(1000, 1);
        _exit(fill(1000, 8192, 1, &error) != 1);
    });
    for (int user = 1000; user < 1003; user++) empty(user, 2);
}

// Queues of many users, which need more memory than a small machine has. Whatever is refused, is
// refused with an error, and the machine works.
static void full(void) {
    enum { USERS = 48, EACH = 16 };
    int refused = 0, turns[2], done[2];
    GIVES(pipe(turns), 0);
    GIVES(pipe(done), 0);
    for (int user = 0; user < USERS; user++)
        CHILD({
            // A real user to charge, and the rights of root.
            struct rlimit limits = {RLIM_INFINITY, RLIM_INFINITY};
            char byte;
            int error = 0;
            close(turns[1]);
            if (setrlimit(RLIMIT_MSGQUEUE, &limits) || setresuid(2000 + user, 0, 0)) _exit(1);
            int count = fill(user, 60000, EACH, &error);
            if (count < 0) _exit(2);
            int is_good = count == EACH || error == ENOMEM || error == ENOSPC || error == EMFILE;
            byte = !is_good ? 'e' : count == EACH ? 'x' : 'r';
            if (write(done[1], &byte, 1) != 1) _exit(3);
            _exit(read(turns[0], &byte, 1) != 0);
        });
    close(done[1]);
    for (int user = 0; user < USERS; user++) {
        char byte = 0;
        GIVES(read(done[0], &byte, 1), 1);
        CHECK(byte == 'x' || byte == 'r');
        refused += byte == 'r';
    }
    printf("%d of %d users were refused\n", refused, USERS);
    // There is memory for programs and files.
    char *memory = malloc(16 << 20);
    CHECK(memory != NULL);
    memset(memory, 1, 16 << 20);
    int fd = open("file", O_CREAT | O_RDWR, 0600);
    GIVES(write(fd, memory, 4 << 20), 4 << 20);
    close(fd);
    CHILD_EXITS(7, _exit(7));
    close(turns[1]);
    int status;
    for (int user = 0; user < USERS; user++) {
        CHECK(wait(&status) > 0);
        GIVES(status, 0);
    }
    for (int user = 0; user < USERS; user++) empty(user, EACH);
    // All of it is free again.
    CHILD_EXITS(0, {
        int error = 0;
        struct rlimit limits = {RLIM_INFINITY, RLIM_INFINITY};
        if (setrlimit(RLIMIT_MSGQUEUE, &limits)) _exit(1);
        int queues = fill(0, 60000, 8, &error);
        empty(0, 8);
        _exit(queues != 8);
    });
}

int main(int count, char **arguments) {
    enter(count, arguments);
    snprintf(name, sizeof name, "/check.%d", getpid());
    if (!strcmp(arguments[count - 1], "full")) {
        full();
        return finish("mqueue");
    }
    names();
    messages();
    waits();
    notified();
    users();
    return finish("mqueue");
}
