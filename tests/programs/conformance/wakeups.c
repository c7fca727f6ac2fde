// Which of several waiting tasks an event wakes: one where one is enough, all where it concerns all,
// and never none.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { THREADS = 4 };

/* Threads that have got what they waited for. */
static int done;

static int done_now(void) { return __atomic_load_n(&done, __ATOMIC_SEQ_CST); }

/* Waits until at least `count` threads are done, for five seconds at most, and then for others. */
static int done_after(int count) {
    for (int i = 0; i < 5000 && done_now() < count; i++) usleep(1000);
    usleep(20000);
    return done_now();
}

struct task {
    int fd;
    int epoll;
    long result;
    pthread_t thread;
};

static struct task tasks[THREADS];

static void start(void *(*run)(void *), int fd) {
    done = 0;
    for (int i = 0; i < THREADS; i++) {
        tasks[i] = (struct task){.fd = fd, .epoll = -1};
        CHECK(!pthread_create(&tasks[i].thread, NULL, run, &tasks[i]));
        // They begin to wait in this order.
        usleep(20000);
    }
}

static void join(void) {
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_join(tasks[i].thread, NULL));
}

static void finished(struct task *task, long result) {
    task->result = result;
    __atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST);
}

static void add(int fd) {
    uint64_t one = 1;
    CHECK(write(fd, &one, 8) == 8);
}

static void *wait_exclusively(void *argument) {
    struct task *task = argument;
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE}, got;
    task->epoll = epoll_create1(0);
    GIVES(epoll_ctl(task->epoll, EPOLL_CTL_ADD, task->fd, &event), 0);
    finished(task, epoll_wait(task->epoll, &got, 1, 10000));
    return NULL;
}

/* Each event wakes one list of those that wait exclusively. */
static void exclusive_lists(void) {
    int fd = eventfd(0, 0);
    start(wait_exclusively, fd);
    for (int i = 1; i <= THREADS; i++) {
        add(fd);
        GIVES(done_after(i), i);
    }
    join();
    for (int i = 0; i < THREADS; i++) {
        GIVES(tasks[i].result, 1);
        close(tasks[i].epoll);
    }
    close(fd);
}

static void *wait_for_list(void *argument) {
    struct task *task = argument;
    struct epoll_event got;
    finished(task, epoll_wait(task->fd, &got, 1, 10000));
    return NULL;
}

/* One task of those that wait for one list gets an edge; a level goes from one to the next. */
static void one_list(void) {
    int epoll = epoll_create1(0), fd = eventfd(0, 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    GIVES(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
    start(wait_for_list, epoll);
    for (int i = 1; i <= THREADS; i++) {
        add(fd);
        GIVES(done_after(i), i);
    }
    join();
    uint64_t count;
    CHECK(read(fd, &count, 8) == 8);
    event.events = EPOLLIN;
    GIVES(epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event), 0);
    start(wait_for_list, epoll);
    add(fd);
    GIVES(done_after(THREADS), THREADS);
    join();
    close(fd), close(epoll);
}

static void *read_byte(void *argument) {
    struct task *task = argument;
    char byte;
    finished(task, read(task->fd, &byte, 1));
    return NULL;
}

/* Each of several bytes reaches a reader, and the end reaches all. */
static void readers(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    start(read_byte, ends[0]);
    CHECK(write(ends[1], "ab", 2) == 2);
    GIVES(done_after(2), 2);
    CHECK(write(ends[1], "c", 1) == 1);
    GIVES(done_after(3), 3);
    close(ends[1]);
    join();
    GIVES(done, THREADS);
    close(ends[0]);
}

static void *receive(void *argument) {
    struct task *task = argument;
    char bytes[8];
    finished(task, recv(task->fd, bytes, sizeof bytes, 0));
    return NULL;
}

static void datagrams(void) {
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    start(receive, ends[0]);
    for (int i = 1; i <= THREADS; i++) GIVES(send(ends[1], "x", 1, 0), 1);
    join();
    GIVES(done, THREADS);
    close(ends[0]), close(ends[1]);
}

static struct sockaddr_un address = {AF_UNIX, "\0wakeups"};

static int bound(int type) {
    int fd = socket(AF_UNIX, type, 0);
    snprintf(address.sun_path + 1, 32, "wakeups-%d", getpid());
    GIVES(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static int connected(int type) {
    int fd = socket(AF_UNIX, type, 0);
    GIVES(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void *take_connection(void *argument) {
    struct task *task = argument;
    int fd = accept(task->fd, NULL, NULL);
    finished(task, fd >= 0);
    close(fd);
    return NULL;
}

/* Several tasks accept; the end of the socket wakes those that are left. */
static void acceptors(void) {
    int server = bound(SOCK_STREAM), clients[3];
    GIVES(listen(server, 8), 0);
    start(take_connection, server);
    for (int i = 0; i < 3; i++) clients[i] = connected(SOCK_STREAM);
    GIVES(done_after(3), 3);
    GIVES(shutdown(server, SHUT_RD), 0);
    join();
    long accepted = 0;
    for (int i = 0; i < THREADS; i++) accepted += tasks[i].result;
    GIVES(accepted, 3);
    for (int i = 0; i < 3; i++) close(clients[i]);
    close(server);
}

/* The first process that waits is stopped, and the next gets what comes. */
static void stopped_processes(void) {
    int ends[2], server = bound(SOCK_STREAM);
    char byte;
    CHECK(pipe(ends) == 0);
    GIVES(listen(server, 8), 0);
    for (int accepts = 0; accepts < 2; accepts++) {
        pid_t children[2];
        for (int i = 0; i < 2; i++) {
            children[i] = CHILD({
                int got = accepts ? accept(server, NULL, NULL) : (int)read(ends[0], &byte, 1);
                _exit(got < 0);
            });
            wait_until_asleep(children[i]);
        }
        int status;
        kill(children[0], SIGSTOP);
        GIVES(waitpid(children[0], &status, WUNTRACED), children[0]);
        int client = accepts ? connected(SOCK_STREAM) : -1;
        if (!accepts) CHECK(write(ends[1], "x", 1) == 1);
        GIVES(status_of(children[1]), 0);
        kill(children[0], SIGCONT);
        int other = accepts ? connected(SOCK_STREAM) : -1;
        if (!accepts) CHECK(write(ends[1], "y", 1) == 1);
        GIVES(status_of(children[0]), 0);
        close(client), close(other);
    }
    close(ends[0]), close(ends[1]), close(server);
}

static void *send_to(void *argument) {
    struct task *task = argument;
    finished(task, sendto(task->fd, "x", 1, 0, (struct sockaddr *)&address, sizeof address));
    return NULL;
}

static void *poll_output(void *argument) {
    struct task *task = argument;
    struct pollfd poll_fd = {task->fd, POLLOUT, 0};
    finished(task, poll(&poll_fd, 1, 10000));
    return NULL;
}

static int fill(int fd) {
    int sent = 0;
    while (send(fd, "x", 1, MSG_DONTWAIT) == 1) sent++;
    return sent;
}

/* Room for datagrams is at another socket than the one that sends. */
static void senders(void) {
    int server = bound(SOCK_DGRAM), client = connected(SOCK_DGRAM), other = socket(AF_UNIX, SOCK_DGRAM, 0);
    char byte;
    CHECK(fill(client) > 0);
    start(poll_output, client);
    GIVES(done_after(0), 0);
    while (recv(server, &byte, 1, MSG_DONTWAIT) == 1) {}
    join();
    for (int i = 0; i < THREADS; i++) GIVES(tasks[i].result, 1);
    CHECK(fill(client) > 0);
    start(send_to, other);
    GIVES(done_after(0), 0);
    while (recv(server, &byte, 1, MSG_DONTWAIT) == 1) {}
    GIVES(done_after(THREADS), THREADS);
    join();
    // A receiver that is closed has no room any more, but an answer.
    CHECK(fill(client) > 0);
    start(send_to, other);
    close(server);
    join();
    for (int i = 0; i < THREADS; i++) GIVES(tasks[i].result, -1);
    close(client), close(other);
}

/* A writer that waits for room goes on when there is a larger pipe. */
static void *write_byte(void *argument) {
    struct task *task = argument;
    finished(task, write(task->fd, "x", 1));
    return NULL;
}

static void larger_pipe(void) {
    int ends[2];
    char page[4096] = {0};
    CHECK(pipe(ends) == 0);
    for (int i = 0; i < 16; i++) CHECK(write(ends[1], page, sizeof page) == sizeof page);
    start(write_byte, ends[1]);
    GIVES(done_after(0), 0);
    CHECK(fcntl(ends[1], F_SETPIPE_SZ, 1 << 17) > 0);
    join();
    GIVES(done, THREADS);
    close(ends[0]), close(ends[1]);
}

/* Lists in a chain that is longer than the limit, which older kernels allow in this order. */
static void chain(void) {
    int lists[12], fd = eventfd(0, 0);
    for (int i = 0; i < 12; i++) lists[i] = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN}, got;
    for (int i = 0; i < 11; i++) epoll_ctl(lists[i], EPOLL_CTL_ADD, lists[i + 1], &event);
    GIVES(epoll_ctl(lists[11], EPOLL_CTL_ADD, fd, &event), 0);
    add(fd);
    GIVES(epoll_wait(lists[11], &got, 1, 0), 1);
    FAILS(epoll_ctl(lists[11], EPOLL_CTL_ADD, lists[10], &event), ELOOP);
    for (int i = 0; i < 12; i++) close(lists[i]);
    close(fd);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    exclusive_lists();
    one_list();
    readers();
    datagrams();
    acceptors();
    stopped_processes();
    senders();
    larger_pipe();
    chain();
    return finish("wakeups");
}
