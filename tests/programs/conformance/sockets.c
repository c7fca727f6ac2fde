// Sockets: Unix and loopback TCP and UDP, options, messages, descriptors in messages.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static char buffer[4096];

static void making(void) {
    FAILS(socket(9999, SOCK_STREAM, 0), EAFNOSUPPORT);
    if (!emulated) FAILS(socket(AF_INET, 99, 0), EINVAL);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    GIVES(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    int value;
    socklen_t length = sizeof value;
    GIVES(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length), 0);
    GIVES(value, SOCK_STREAM);
    GIVES(getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length), 0);
    GIVES(value, 0);
    value = 1;
    GIVES(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value), 0);
    GIVES(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value), 0);
    value = 0;
    GIVES(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length), 0);
    CHECK(value != 0);
    FAILS(setsockopt(fd, SOL_SOCKET, 9999, &value, sizeof value), ENOPROTOOPT);
    FAILS(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, 1), EINVAL);
    FAILS(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, (void *)8, 4), EFAULT);
    struct sockaddr_in nobody = {.sin_family = AF_INET};
    length = sizeof nobody;
    FAILS(getpeername(fd, (void *)&nobody, &length), ENOTCONN);
    FAILS(send(fd, "x", 1, MSG_NOSIGNAL), EPIPE);
    FAILS(recv(fd, buffer, 1, 0), ENOTCONN);
    FAILS(shutdown(fd, SHUT_WR), ENOTCONN);
    close(fd);
    fd = open(".", O_RDONLY);
    FAILS(listen(fd, 1), ENOTSOCK);
    FAILS(send(fd, "x", 1, 0), ENOTSOCK);
    close(fd);
    FAILS(bind(9999, (void *)&nobody, sizeof nobody), EBADF);
}

static void tcp(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    GIVES(bind(listener, (void *)&address, sizeof address), 0);
    FAILS(bind(listener, (void *)&address, sizeof address), EINVAL);
    GIVES(getsockname(listener, (void *)&address, &length), 0);
    CHECK(ntohs(address.sin_port) >= 1024 && length == sizeof address);
    int other = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(bind(other, (void *)&address, sizeof address), EADDRINUSE);
    FAILS(connect(other, (void *)&address, sizeof address), ECONNREFUSED);
    GIVES(listen(listener, 5), 0);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    GIVES(connect(client, (void *)&address, sizeof address), 0);
    FAILS(connect(client, (void *)&address, sizeof address), EISCONN);
    struct sockaddr_in peer;
    length = sizeof peer;
    int server = accept4(listener, (void *)&peer, &length, SOCK_CLOEXEC);
    CHECK(server >= 0 && peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
    GIVES(fcntl(server, F_GETFD), FD_CLOEXEC);
    GIVES(send(client, "hello", 5, 0), 5);
    GIVES(recv(server, buffer, 100, MSG_PEEK), 5);
    GIVES(recv(server, buffer, 2, MSG_WAITALL), 2);
    GIVES(recv(server, buffer, 100, 0), 3);
    FAILS(recv(server, buffer, 100, MSG_DONTWAIT), EAGAIN);
    GIVES(setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), 0);
    GIVES(write(server, "back", 4), 4);
    GIVES(shutdown(server, SHUT_WR), 0);
    FAILS(send(server, "x", 1, MSG_NOSIGNAL), EPIPE);
    GIVES(recv(client, buffer, 100, MSG_WAITALL), 4);
    GIVES(recv(client, buffer, 100, 0), 0);
    GIVES(send(client, "still", 5, 0), 5);
    GIVES(recv(server, buffer, 100, 0), 5);
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    GIVES(poll(&ready, 1, 0), 0);
    GIVES(fcntl(listener, F_SETFL, O_NONBLOCK), 0);
    FAILS(accept(listener, NULL, NULL), EAGAIN);
    FAILS(accept(client, NULL, NULL), EINVAL);
    close(client), close(server), close(other), close(listener);
}

static void udp(void) {
    int a = socket(AF_INET, SOCK_DGRAM, 0), b = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof to;
    GIVES(bind(b, (void *)&to, sizeof to), 0);
    GIVES(getsockname(b, (void *)&to, &length), 0);
    FAILS(send(a, "x", 1, 0), EDESTADDRREQ);
    GIVES(sendto(a, "first", 5, 0, (void *)&to, sizeof to), 5);
    GIVES(sendto(a, "second", 6, 0, (void *)&to, sizeof to), 6);
    GIVES(recv(b, buffer, 3, 0), 3);
    GIVES(recv(b, buffer, 100, 0), 6);
    CHECK(!memcmp(buffer, "second", 6));
    GIVES(sendto(a, "third", 5, 0, (void *)&to, sizeof to), 5);
    GIVES(recv(b, buffer, 2, MSG_TRUNC), 5);
    GIVES(connect(a, (void *)&to, sizeof to), 0);
    GIVES(send(a, "", 0, 0), 0);
    struct sockaddr_in from;
    length = sizeof from;
    GIVES(recvfrom(b, buffer, 100, 0, (void *)&from, &length), 0);
    CHECK(length == sizeof from && from.sin_family == AF_INET);
    FAILS(listen(a, 1), EOPNOTSUPP);
    close(a), close(b);
}

static void local(void) {
    int pair[2];
    GIVES(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    GIVES(write(pair[0], "ab", 2), 2);
    GIVES(read(pair[1], buffer, 10), 2);
    close(pair[1]);
    GIVES(read(pair[0], buffer, 10), 0);
    FAILS(send(pair[0], "x", 1, MSG_NOSIGNAL), EPIPE);
    close(pair[0]);
    GIVES(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    GIVES(write(pair[0], "one", 3), 3);
    GIVES(write(pair[0], "two", 3), 3);
    GIVES(read(pair[1], buffer, 100), 3);
    close(pair[0]), close(pair[1]);
    FAILS(socketpair(AF_INET, SOCK_STREAM, 0, pair), EOPNOTSUPP);
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    FAILS(connect(client, (void *)&name, sizeof name), ENOENT);
    GIVES(bind(listener, (void *)&name, sizeof name), 0);
    FAILS(connect(client, (void *)&name, sizeof name), ECONNREFUSED);
    GIVES(listen(listener, 1), 0);
    GIVES(connect(client, (void *)&name, sizeof name), 0);
    int server = accept(listener, NULL, NULL);
    CHECK(server >= 0);
    struct ucred credentials;
    socklen_t length = sizeof credentials;
    GIVES(getsockopt(server, SOL_SOCKET, SO_PEERCRED, &credentials, &length), 0);
    CHECK(credentials.pid == getpid() && credentials.uid == getuid());
    // A descriptor in a message.
    int ends[2];
    CHECK(pipe(ends) == 0);
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {"d", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &ends[0], sizeof(int));
    GIVES(sendmsg(client, &message, 0), 1);
    close(ends[0]);
    part.iov_base = buffer;
    memset(&control, 0, sizeof control);
    GIVES(recvmsg(server, &message, MSG_CMSG_CLOEXEC), 1);
    int received = -1;
    memcpy(&received, CMSG_DATA(&control.header), sizeof(int));
    GIVES(fcntl(received, F_GETFD), FD_CLOEXEC);
    GIVES(write(ends[1], "inside", 6), 6);
    GIVES(read(received, buffer, 100), 6);
    int bad = 9999;
    memcpy(CMSG_DATA(&control.header), &bad, sizeof(int));
    FAILS(sendmsg(client, &message, 0), EBADF);
    close(received), close(ends[1]), close(server), close(client), close(listener);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    signal(SIGPIPE, SIG_IGN);
    making();
    tcp();
    udp();
    local();
    return finish("sockets");
}
