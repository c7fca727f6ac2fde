/* A server and a client for hosts outside the VM.
 *
 * wire serve PORT          echoes over TCP and UDP until a UDP datagram says "quit"
 * wire connect IP PORT N   sends N bytes over TCP and compares what comes back
 * wire udp IP PORT         the same with datagrams of several lengths
 * wire several IP PORT     sends several datagrams by one call, and compares what comes back so
 * wire refused IP PORT     how connecting to a port without listener ends
 * wire reset IP PORT       closes a connection while the other end sends
 * wire leave IP PORT N     sends N bytes over TCP and a datagram, and ends at once
 * wire silent IP PORT      connections whose peer answers a byte and then is gone
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../include/check.h"

static char buffer[1 << 16];

static struct sockaddr_in6 any(int port) {
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    return address;
}

static int serve(int port) {
    struct sockaddr_in6 address = any(port);
    int one = 1;
    int listener = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int datagrams = socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(bind(datagrams, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listener, 100) == 0);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    for (int fd = listener; fd <= datagrams; fd++) {
        event.data.fd = fd;
        CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    }
    puts("ready");
    fflush(stdout);
    long connections = 0, bytes = 0;
    for (;;) {
        CHECK(epoll_wait(epoll, &event, 1, -1) == 1);
        int fd = event.data.fd;
        if (fd == listener) {
            struct sockaddr_in6 peer;
            socklen_t length = sizeof peer;
            int client = accept4(listener, (struct sockaddr *)&peer, &length, 0);
            CHECK(client >= 0 && length == sizeof peer && ntohs(peer.sin6_port) != 0);
            event.data.fd = client;
            CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event) == 0);
            connections++;
        } else if (fd == datagrams) {
            struct sockaddr_in6 peer;
            socklen_t length = sizeof peer;
            ssize_t count = recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&peer, &length);
            CHECK(count >= 0);
            if (count == 4 && memcmp(buffer, "quit", 4) == 0) {
                printf("%ld connections %ld bytes\n", connections, bytes);
                return 0;
            }
            CHECK(sendto(fd, buffer, count, 0, (struct sockaddr *)&peer, length) == count);
        } else {
            ssize_t count = read(fd, buffer, sizeof buffer);
            if (count <= 0) {
                CHECK(close(fd) == 0);
                continue;
            }
            bytes += count;
            for (ssize_t done = 0; done < count;) {
                /* A connection that was reset is closed at the next read. */
                ssize_t sent = send(fd, buffer + done, count - done, MSG_NOSIGNAL);
                if (sent < 0)
                    break;
                done += sent;
            }
        }
    }
}

static struct sockaddr_storage target(const char *ip, int port, socklen_t *length) {
    struct sockaddr_storage storage = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&storage;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&storage;
    if (inet_pton(AF_INET, ip, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        *length = sizeof *v4;
    } else {
        CHECK(inet_pton(AF_INET6, ip, &v6->sin6_addr) == 1);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        *length = sizeof *v6;
    }
    return storage;
}

static unsigned char pattern(long at) { return at * 31 + (at >> 12); }

/* Connects without waiting in the call. */
static int open_connection(const char *ip, int port) {
    socklen_t length;
    struct sockaddr_storage to = target(ip, port, &length);
    int fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(connect(fd, (struct sockaddr *)&to, length) == -1 && errno == EINPROGRESS);
    struct pollfd poll_out = {.fd = fd, .events = POLLOUT};
    CHECK(poll(&poll_out, 1, 10000) == 1);
    return fd;
}

static int pending_error(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
    return error;
}

static int connect_to(const char *ip, int port, long total) {
    int fd = open_connection(ip, port);
    CHECK(pending_error(fd) == 0);
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    CHECK(getsockname(fd, (struct sockaddr *)&name, &length) == 0);
    long sent = 0, received = 0;
    while (received < total) {
        struct pollfd both = {.fd = fd, .events = POLLIN | (sent < total ? POLLOUT : 0)};
        CHECK(poll(&both, 1, 20000) == 1);
        if (both.revents & POLLOUT) {
            long piece = total - sent < (long)sizeof buffer ? total - sent : (long)sizeof buffer;
            for (long n = 0; n < piece; n++)
                buffer[n] = pattern(sent + n);
            ssize_t count = write(fd, buffer, piece);
            CHECK(count > 0 || (count < 0 && errno == EAGAIN));
            sent += count > 0 ? count : 0;
        }
        if (both.revents & POLLIN) {
            ssize_t count = read(fd, buffer, sizeof buffer);
            CHECK(count > 0);
            for (ssize_t n = 0; n < count; n++)
                CHECK((unsigned char)buffer[n] == pattern(received + n));
            received += count;
        }
    }
    CHECK(shutdown(fd, SHUT_WR) == 0);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    CHECK(poll(&end, 1, 20000) == 1 && read(fd, buffer, 1) == 0);
    printf("%ld bytes came back\n", received);
    return 0;
}

static int datagrams(const char *ip, int port) {
    static const int lengths[] = {0, 1, 100, 1400, 1472, 4000, 20000};
    socklen_t length;
    struct sockaddr_storage to = target(ip, port, &length);
    int is_v6 = to.ss_family == AF_INET6;
    int fd = socket(to.ss_family, SOCK_DGRAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&to, length) == 0);
    struct timeval patience = {.tv_sec = 10};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    /* Over IPv6 nothing is cut into fragments. */
    for (int n = 0; n < (is_v6 ? 4 : 7); n++) {
        static char back[1 << 16];
        for (int at = 0; at < lengths[n]; at++)
            buffer[at] = pattern(at + n);
        CHECK(send(fd, buffer, lengths[n], 0) == lengths[n]);
        CHECK(recv(fd, back, sizeof back, 0) == lengths[n]);
        CHECK(memcmp(buffer, back, lengths[n]) == 0);
    }
    if (is_v6)
        CHECK(send(fd, buffer, 4000, 0) == -1 && errno == EMSGSIZE);
    puts("all datagrams came back");
    return 0;
}

static void set(int fd, int level, int name, int value) {
    CHECK(setsockopt(fd, level, name, &value, sizeof value) == 0);
}

static int several(const char *ip, int port) {
    enum { SIZE = 1200, LENGTH = 40 * SIZE + 7, ROUNDS = 10 };
    static char back[LENGTH];
    socklen_t length;
    struct sockaddr_storage to = target(ip, port, &length);
    int fd = socket(to.ss_family, SOCK_DGRAM, 0), messages = 0;
    CHECK(connect(fd, (struct sockaddr *)&to, length) == 0);
    struct timeval patience = {.tv_sec = 10};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    for (int n = 0; n < ROUNDS; n++) {
        int is_option = n % 2, is_one_message = n / 2 % 2;
        for (int at = 0; at < LENGTH; at++)
            buffer[at] = pattern(at + n);
        set(fd, IPPROTO_UDP, UDP_GRO, is_one_message);
        set(fd, IPPROTO_UDP, UDP_SEGMENT, is_option ? SIZE : 0);
        struct iovec part = {buffer, LENGTH};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        if (!is_option) {
            unsigned short size = SIZE;
            control.header = (struct cmsghdr){CMSG_LEN(sizeof size), IPPROTO_UDP, UDP_SEGMENT};
            memcpy(CMSG_DATA(&control.header), &size, sizeof size);
            message.msg_control = &control;
            message.msg_controllen = CMSG_SPACE(sizeof size);
        }
        CHECK(sendmsg(fd, &message, 0) == LENGTH);
        for (long done = 0; done < LENGTH; messages++) {
            part = (struct iovec){back + done, LENGTH - done};
            message = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                                      .msg_controllen = sizeof control};
            ssize_t count = recvmsg(fd, &message, 0);
            CHECK(count == LENGTH || count == SIZE || (done > 0 && done + count == LENGTH));
            if (count == LENGTH) {
                int size;
                memcpy(&size, CMSG_DATA(&control.header), sizeof size);
                CHECK(is_one_message && control.header.cmsg_type == UDP_GRO && size == SIZE);
            } else {
                CHECK(message.msg_controllen == 0);
            }
            done += count;
        }
        CHECK(memcmp(buffer, back, LENGTH) == 0);
    }
    printf("%d messages came back\n", messages);
    return 0;
}

static int refused(const char *ip, int port) {
    int fd = open_connection(ip, port);
    CHECK(pending_error(fd) == ECONNREFUSED && pending_error(fd) == 0);
    socklen_t length;
    struct sockaddr_storage to = target(ip, port, &length);
    int waits = socket(to.ss_family, SOCK_STREAM, 0);
    CHECK(connect(waits, (struct sockaddr *)&to, length) == -1 && errno == ECONNREFUSED);
    to = target("203.0.113.9", port, &length);
    int far = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(far, (struct sockaddr *)&to, length) == -1 && errno == ENETUNREACH);
    puts("refused");
    return 0;
}

static int reset(const char *ip, int port) {
    int fd = open_connection(ip, port);
    CHECK(write(fd, "x", 1) == 1);
    struct pollfd in = {.fd = fd, .events = POLLIN};
    CHECK(poll(&in, 1, 20000) == 1 && (in.revents & POLLIN));
    CHECK(read(fd, buffer, 1) == 1);
    /* The other end resets the connection now. */
    CHECK(poll(&in, 1, 20000) == 1 && (in.revents & POLLERR));
    CHECK(read(fd, buffer, 1) == -1 && errno == ECONNRESET);
    CHECK(read(fd, buffer, 1) == 0);
    CHECK(send(fd, "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE);
    puts("reset");
    return 0;
}

static int silent(const char *ip, int port) {
    enum { KEEP_ALIVE, USER_TIMEOUT, NEITHER, ALL };
    int fds[ALL];
    for (int n = 0; n < ALL; n++) {
        socklen_t length;
        struct sockaddr_storage to = target(ip, port, &length);
        fds[n] = socket(to.ss_family, SOCK_STREAM, 0);
        if (n == USER_TIMEOUT)
            set(fds[n], IPPROTO_TCP, TCP_USER_TIMEOUT, 2000);
        CHECK(connect(fds[n], (struct sockaddr *)&to, length) == 0);
        if (n == KEEP_ALIVE) {
            set(fds[n], IPPROTO_TCP, TCP_KEEPIDLE, 1);
            set(fds[n], IPPROTO_TCP, TCP_KEEPINTVL, 1);
            set(fds[n], IPPROTO_TCP, TCP_KEEPCNT, 2);
            set(fds[n], SOL_SOCKET, SO_KEEPALIVE, 1);
        }
    }
    puts("ready");
    fflush(stdout);
    for (int n = 0; n < ALL; n++)
        CHECK(read(fds[n], buffer, 1) == 1);
    for (int n = 0; n < ALL; n++)
        CHECK(write(fds[n], "x", 1) == 1);
    for (int n = 0; n < NEITHER; n++) {
        struct pollfd gone = {.fd = fds[n]};
        /* Nothing is sent on the first. On the second, a write reports the end if it comes after
           the poll. */
        int sent = 1;
        for (int seconds = 0; sent == 1 && seconds < 20 && poll(&gone, 1, 1000) == 0; seconds++)
            sent = n == KEEP_ALIVE ? 1 : write(fds[n], "x", 1);
        if (sent == 1) {
            CHECK(gone.revents & POLLERR);
            CHECK(read(fds[n], buffer, 1) == -1);
        }
        CHECK(errno == ETIMEDOUT);
        printf("%s: timed out\n", n == KEEP_ALIVE ? "keep-alive" : "user timeout");
    }
    struct pollfd open = {.fd = fds[NEITHER], .events = POLLIN};
    CHECK(poll(&open, 1, 0) == 0);
    puts("neither: open");
    return 0;
}

static int leave(const char *ip, int port, long length) {
    /* A signal that comes before the end must not change the exit code. */
    signal(SIGINT, SIG_IGN);
    socklen_t size;
    struct sockaddr_storage to = target(ip, port, &size);
    int fd = socket(to.ss_family, SOCK_STREAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&to, size) == 0);
    char *bytes = malloc(length);
    memset(bytes, 'x', length);
    for (long sent = 0; sent < length;) {
        ssize_t count = write(fd, bytes + sent, length - sent);
        CHECK(count > 0);
        sent += count;
    }
    int datagrams = socket(to.ss_family, SOCK_DGRAM, 0);
    CHECK(sendto(datagrams, "last", 4, 0, (struct sockaddr *)&to, size) == 4);
    /* Both sockets are open. */
    _exit(4);
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[1] : "";
    if (strcmp(what, "serve") == 0)
        return serve(atoi(argv[2]));
    CHECK(argc > 3);
    int port = atoi(argv[3]);
    if (strcmp(what, "connect") == 0 && argc > 4)
        return connect_to(argv[2], port, atol(argv[4]));
    if (strcmp(what, "leave") == 0 && argc > 4)
        return leave(argv[2], port, atol(argv[4]));
    if (strcmp(what, "udp") == 0)
        return datagrams(argv[2], port);
    if (strcmp(what, "several") == 0)
        return several(argv[2], port);
    if (strcmp(what, "refused") == 0)
        return refused(argv[2], port);
    if (strcmp(what, "reset") == 0)
        return reset(argv[2], port);
    if (strcmp(what, "silent") == 0)
        return silent(argv[2], port);
    return 2;
}
