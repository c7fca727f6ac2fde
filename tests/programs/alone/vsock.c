/* AF_VSOCK sockets: servers and clients for programs of the host, and within the VM.
 *
 * vsock serve PORT      echoes each connection, from one thread, until one says "quit"
 * vsock connect PORT N  sends N bytes to a port of the host and compares what comes back
 * vsock slow PORT N     the same, with pauses
 * vsock many PORT N     N connections to a port of the host at once
 * vsock refused PORT    how connecting to a port of the host without a program there ends
 * vsock killed PORT     what is seen when the program of the host is killed
 * vsock last PORT       sends a line and ends at once
 * vsock local           options, addresses and connections within the VM
 */
#define _GNU_SOURCE
#include <sys/socket.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../include/check.h"

static char buffer[1 << 16];

static struct sockaddr_vm name(unsigned cid, unsigned port) {
    struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_cid = cid, .svm_port = port};
    return address;
}

static int listening(unsigned port, int backlog) {
    struct sockaddr_vm address = name(VMADDR_CID_ANY, port);
    int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(fd, backlog) == 0);
    return fd;
}

static int connecting(unsigned cid, unsigned port, int flags) {
    struct sockaddr_vm address = name(cid, port);
    int fd = socket(AF_VSOCK, SOCK_STREAM | flags, 0);
    CHECK(fd >= 0);
    int result = connect(fd, (struct sockaddr *)&address, sizeof address);
    if (flags & SOCK_NONBLOCK)
        CHECK(result == -1 && errno == EINPROGRESS);
    else
        CHECK(result == 0);
    return fd;
}

static int pending_error(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
    return error;
}

static int events_of(int fd, int wanted, int timeout) {
    struct pollfd entry = {.fd = fd, .events = wanted};
    CHECK(poll(&entry, 1, timeout) >= 0);
    return entry.revents;
}

static unsigned char pattern(long at) { return at * 31 + (at >> 12); }

/* A client and what it is to be sent back. */
struct client {
    int fd, length, done, ended;
    char *bytes;
};

static struct client clients[2000];

static void watch(int epoll, int change, struct client *client, int events) {
    struct epoll_event event = {.events = events, .data.ptr = client};
    CHECK(epoll_ctl(epoll, change, client->fd, &event) == 0);
}

/* Echoes without ever waiting for one client. Result: bytes read. */
static long serve_client(int epoll, struct client *client) {
    long count = 0;
    if (client->done == client->length) {
        count = read(client->fd, client->bytes, sizeof buffer);
        if (count < 0) {
            CHECK(errno == EAGAIN);
            return 0;
        }
        client->done = 0;
        client->length = count;
        client->ended |= count == 0;
    }
    while (client->done < client->length) {
        int left = client->length - client->done;
        ssize_t sent = send(client->fd, client->bytes + client->done, left, MSG_NOSIGNAL);
        if (sent < 0 && errno == EPIPE)
            client->ended = 1, client->done = client->length;
        else if (sent < 0) {
            CHECK(errno == EAGAIN);
            break;
        } else
            client->done += sent;
    }
    if (client->done < client->length)
        watch(epoll, EPOLL_CTL_MOD, client, EPOLLOUT);
    else if (client->ended) {
        CHECK(close(client->fd) == 0);
        free(client->bytes);
        client->bytes = NULL;
    } else
        watch(epoll, EPOLL_CTL_MOD, client, EPOLLIN);
    return count;
}

static int serve(unsigned port) {
    struct client listener = {.fd = listening(port, 100)};
    int epoll = epoll_create1(0);
    watch(epoll, EPOLL_CTL_ADD, &listener, EPOLLIN);
    unsigned cid = 0;
    int device = open("/dev/vsock", O_RDONLY);
    CHECK(device >= 0 && ioctl(device, IOCTL_VM_SOCKETS_GET_LOCAL_CID, &cid) == 0);
    printf("ready %u\n", cid);
    fflush(stdout);
    long connections = 0, bytes = 0;
    for (;;) {
        struct epoll_event event;
        CHECK(epoll_wait(epoll, &event, 1, -1) == 1);
        struct client *client = event.data.ptr;
        if (client != &listener) {
            long count = serve_client(epoll, client);
            bytes += count;
            if (count == 4 && memcmp(client->bytes, "quit", 4) == 0)
                break;
            continue;
        }
        struct sockaddr_vm peer, own;
        socklen_t length = sizeof peer;
        int fd = accept4(listener.fd, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK);
        CHECK(fd >= 0 && length == sizeof peer);
        CHECK(peer.svm_family == AF_VSOCK && peer.svm_cid == VMADDR_CID_HOST);
        CHECK(getsockname(fd, (struct sockaddr *)&own, &length) == 0);
        CHECK(own.svm_cid == cid && own.svm_port == port);
        for (client = clients; client->bytes; client++)
            CHECK(client < clients + sizeof clients / sizeof *clients - 1);
        *client = (struct client){.fd = fd, .bytes = malloc(sizeof buffer)};
        watch(epoll, EPOLL_CTL_ADD, client, EPOLLIN);
        connections++;
    }
    printf("%ld connections %ld bytes\n", connections, bytes);
    return 0;
}

/* Sends and receives, as there is room; with pauses both ends wait for each other. */
static void echo(int fd, long total, int pauses) {
    long sent = 0, received = 0, turns = 0;
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    while (received < total) {
        int ready = events_of(fd, POLLIN | (sent < total ? POLLOUT : 0), 20000);
        CHECK(ready & (POLLIN | POLLOUT));
        if (ready & POLLOUT && sent < total) {
            long piece = total - sent < (long)sizeof buffer ? total - sent : (long)sizeof buffer;
            for (long n = 0; n < piece; n++)
                buffer[n] = pattern(sent + n);
            ssize_t count = write(fd, buffer, piece);
            CHECK(count > 0 || (count < 0 && errno == EAGAIN));
            sent += count > 0 ? count : 0;
        }
        if (ready & POLLIN) {
            ssize_t count = read(fd, buffer, sizeof buffer);
            CHECK(count > 0);
            for (ssize_t n = 0; n < count; n++)
                CHECK((unsigned char)buffer[n] == pattern(received + n));
            received += count;
        }
        if (pauses && ++turns % 20 == 0)
            usleep(2000);
    }
    CHECK(shutdown(fd, SHUT_WR) == 0);
    CHECK(events_of(fd, POLLIN, 20000) & POLLIN);
    CHECK(read(fd, buffer, 1) == 0);
    CHECK(send(fd, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
}

static int connect_to(unsigned port, long total, int pauses) {
    int fd = connecting(VMADDR_CID_HOST, port, SOCK_NONBLOCK);
    CHECK(events_of(fd, POLLOUT, 10000) == POLLOUT && pending_error(fd) == 0);
    struct sockaddr_vm peer;
    socklen_t length = sizeof peer;
    CHECK(getpeername(fd, (struct sockaddr *)&peer, &length) == 0);
    CHECK(peer.svm_cid == VMADDR_CID_HOST && peer.svm_port == port);
    echo(fd, total, pauses);
    printf("%ld bytes came back\n", total);
    return 0;
}

static int many(unsigned port, long count) {
    static int fds[1000];
    CHECK(count <= 1000);
    for (long n = 0; n < count; n++)
        fds[n] = connecting(VMADDR_CID_HOST, port, 0);
    for (long n = count - 1; n >= 0; n--)
        echo(fds[n], 300 + n, 0);
    for (long n = 0; n < count; n++)
        CHECK(close(fds[n]) == 0);
    printf("%ld connections\n", count);
    return 0;
}

static int refused(unsigned port) {
    struct sockaddr_vm address = name(VMADDR_CID_HOST, port);
    int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == -1 && errno == ECONNRESET);
    int soon = connecting(VMADDR_CID_HOST, port, SOCK_NONBLOCK);
    CHECK(events_of(soon, POLLOUT, 10000) & POLLERR);
    CHECK(pending_error(soon) == ECONNRESET && pending_error(soon) == 0);
    /* There is nobody else. */
    address.svm_cid = 77;
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == -1 && errno == ECONNRESET);
    puts("refused");
    return 0;
}

static int killed(unsigned port) {
    int fd = connecting(VMADDR_CID_HOST, port, 0);
    CHECK(write(fd, "go", 2) == 2);
    /* What it wrote before is still there. */
    int got = 0, count;
    while ((count = read(fd, buffer + got, sizeof buffer - got)) > 0)
        got += count;
    CHECK(count == 0 && got == 4 && memcmp(buffer, "last", 4) == 0);
    CHECK(events_of(fd, POLLIN | POLLRDHUP, 0) & POLLRDHUP);
    signal(SIGPIPE, SIG_IGN);
    while (write(fd, buffer, sizeof buffer) > 0) {}
    CHECK(errno == EPIPE);
    puts("killed");
    return 0;
}

static int last(unsigned port) {
    int fd = connecting(VMADDR_CID_HOST, port, 0);
    CHECK(write(fd, "the last line\n", 14) == 14);
    return 0;
}

static int local(void) {
    CHECK(socket(AF_VSOCK, SOCK_STREAM, 1) == -1 && errno == EPROTONOSUPPORT);
    CHECK(socket(AF_VSOCK, SOCK_DGRAM, 0) == -1 && errno == ENODEV);
    CHECK(socket(AF_VSOCK, SOCK_RAW, 0) == -1 && errno == ESOCKTNOSUPPORT);
    int fd = socket(AF_VSOCK, SOCK_STREAM, AF_VSOCK), value;
    uint64_t size = 0;
    struct sockaddr_vm address;
    socklen_t length = sizeof address;
    CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0 && length == 16);
    CHECK(address.svm_cid == VMADDR_CID_ANY && address.svm_port == VMADDR_PORT_ANY);
    CHECK(getpeername(fd, (struct sockaddr *)&address, &length) == -1 && errno == ENOTCONN);
    CHECK(events_of(fd, POLLIN | POLLOUT, 0) == POLLOUT);
    CHECK(read(fd, buffer, 1) == -1 && errno == ENOTCONN);
    CHECK(send(fd, "x", 1, 0) == -1 && errno == ENOTCONN);
    CHECK(shutdown(fd, SHUT_RDWR) == -1 && errno == ENOTCONN);
    CHECK(listen(fd, 1) == -1 && errno == EINVAL);
    length = sizeof value;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &length) == 0 && value == AF_VSOCK);
    length = sizeof size;
    CHECK(getsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &size, &length) == 0);
    CHECK(size == 262144 && length == 8);
    size = 1 << 20;
    CHECK(setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &size, 8) == 0);
    CHECK(getsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &size, &length) == 0);
    CHECK(size == 262144);
    size = 1 << 20;
    CHECK(setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &size, 8) == 0);
    CHECK(setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &size, 8) == 0);
    CHECK(getsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &size, &length) == 0);
    CHECK(size == 1 << 20);
    CHECK(setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &size, 4) == -1 && errno == EINVAL);
    CHECK(setsockopt(fd, AF_VSOCK, 99, &size, 8) == -1 && errno == ENOPROTOOPT);
    struct timeval time = {.tv_sec = 3}, back;
    length = sizeof back;
    CHECK(setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &time, sizeof time) == 0);
    CHECK(getsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &back, &length) == 0);
    CHECK(back.tv_sec == 3 && back.tv_usec == 0);
    address = name(VMADDR_CID_LOCAL, 3000);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == -1 && errno == ECONNRESET);
    CHECK(connect(fd, (struct sockaddr *)&address, 15) == -1 && errno == EINVAL);
    address.svm_cid = VMADDR_CID_HYPERVISOR;
    CHECK(bind(fd, (struct sockaddr *)&address, sizeof address) == -1);

    int server = listening(3000, 1), second = socket(AF_VSOCK, SOCK_STREAM, 0);
    address = name(VMADDR_CID_LOCAL, 3000);
    CHECK(bind(second, (struct sockaddr *)&address, sizeof address) == -1 && errno == EADDRINUSE);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == -1 && errno == EISCONN);
    CHECK(events_of(server, POLLIN, 5000) == POLLIN);
    struct sockaddr_vm peer;
    length = sizeof peer;
    int accepted = accept(server, (struct sockaddr *)&peer, &length);
    CHECK(accepted >= 0 && peer.svm_cid == VMADDR_CID_LOCAL && peer.svm_port >= 1024);
    CHECK(getpeername(fd, (struct sockaddr *)&address, &length) == 0);
    CHECK(address.svm_cid == VMADDR_CID_LOCAL && address.svm_port == 3000);
    CHECK(sendto(fd, "x", 1, 0, (struct sockaddr *)&address, length) == -1 && errno == EISCONN);
    CHECK(write(fd, "hello", 5) == 5 && read(accepted, buffer, 9) == 5);
    CHECK(shutdown(fd, SHUT_WR) == 0 && read(accepted, buffer, 9) == 0);
    CHECK(write(accepted, "back", 4) == 4 && read(fd, buffer, 9) == 4);
    CHECK(shutdown(fd, SHUT_RD) == 0);
    CHECK(send(accepted, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    CHECK(close(accepted) == 0 && read(fd, buffer, 9) == 0);
    pid_t child = fork();
    if (child == 0) {
        int client = connecting(VMADDR_CID_LOCAL, 3000, SOCK_NONBLOCK);
        CHECK(events_of(client, POLLOUT, 5000) == POLLOUT && pending_error(client) == 0);
        echo(client, 1000000, 0);
        _exit(0);
    }
    int status;
    CHECK((accepted = accept(server, NULL, NULL)) >= 0);
    for (ssize_t count; (count = read(accepted, buffer, sizeof buffer)) > 0;)
        CHECK(write(accepted, buffer, count) == count);
    CHECK(close(accepted) == 0 && waitpid(child, &status, 0) == child && status == 0);
    puts("local");
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    unsigned port = argc > 2 ? strtoul(argv[2], NULL, 0) : 0;
    long count = argc > 3 ? atol(argv[3]) : 0;
    int result = 2;
    if (strcmp(what, "serve") == 0)
        result = serve(port);
    else if (strcmp(what, "connect") == 0)
        result = connect_to(port, count, 0);
    else if (strcmp(what, "slow") == 0)
        result = connect_to(port, count, 1);
    else if (strcmp(what, "many") == 0)
        result = many(port, count);
    else if (strcmp(what, "refused") == 0)
        result = refused(port);
    else if (strcmp(what, "killed") == 0)
        result = killed(port);
    else if (strcmp(what, "last") == 0)
        result = last(port);
    else if (strcmp(what, "local") == 0)
        result = local();
    return result;
}
