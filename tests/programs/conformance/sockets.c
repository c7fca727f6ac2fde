// Sockets: Unix and loopback TCP and UDP, options, messages, descriptors in messages.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
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

static char several[1 << 16];

static int set(int fd, int name, int value) {
    return setsockopt(fd, IPPROTO_UDP, name, &value, sizeof value);
}

// Sends 100 bytes with a control message of UDP.
static long send_with(int fd, int type, const void *value, size_t length) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.header = {CMSG_LEN(length), IPPROTO_UDP, type}};
    memcpy(CMSG_DATA(&control.header), value, length);
    struct iovec part = {several, 100};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(length)};
    return sendmsg(fd, &message, 0);
}

// Receives a message; the result is the length of its datagrams, if the message has it.
static int length_of_parts(int fd, long expected) {
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {several, sizeof several};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    GIVES(recvmsg(fd, &message, MSG_DONTWAIT), expected);
    if (message.msg_controllen == 0) return 0;
    GIVES(control.header.cmsg_len, CMSG_LEN(sizeof(int)));
    CHECK(control.header.cmsg_level == IPPROTO_UDP && control.header.cmsg_type == UDP_GRO);
    int length;
    memcpy(&length, CMSG_DATA(&control.header), sizeof length);
    return length;
}

// Several datagrams by one call (udp(7)), over a loopback address.
static void several_datagrams(const struct sockaddr *own, socklen_t length) {
    struct sockaddr_storage to;
    int a = socket(own->sa_family, SOCK_DGRAM, 0), b = socket(own->sa_family, SOCK_DGRAM, 0);
    GIVES(bind(b, own, length), 0);
    GIVES(getsockname(b, (void *)&to, &length), 0);
    GIVES(connect(a, (void *)&to, length), 0);
    FAILS(set(a, UDP_SEGMENT, -1), EINVAL);
    FAILS(set(a, UDP_SEGMENT, 65536), EINVAL);
    GIVES(set(a, UDP_SEGMENT, 65535), 0);
    FAILS(setsockopt(a, IPPROTO_UDP, UDP_SEGMENT, several, 2), EINVAL);
    int value;
    socklen_t size = sizeof value;
    GIVES(getsockopt(a, IPPROTO_UDP, UDP_SEGMENT, &value, &size), 0);
    GIVES(value, 65535);
    GIVES(set(a, UDP_SEGMENT, 1000), 0);
    for (int n = 0; n < 2500; n++) several[n] = n % 251;
    GIVES(send(a, several, 2500, 0), 2500);
    memset(several, 0, 2500);
    GIVES(recv(b, several, 4000, MSG_DONTWAIT), 1000);
    GIVES(recv(b, several + 1000, 4000, MSG_DONTWAIT), 1000);
    GIVES(recv(b, several + 2000, 4000, MSG_DONTWAIT), 500);
    FAILS(recv(b, several, 1, MSG_DONTWAIT), EAGAIN);
    int same = 1;
    for (int n = 0; n < 2500; n++) same &= several[n] == (char)(n % 251);
    CHECK(same);
    // Received as one message.
    GIVES(set(b, UDP_GRO, 7), 0);
    GIVES(getsockopt(b, IPPROTO_UDP, UDP_GRO, &value, &size), 0);
    GIVES(value, 1);
    GIVES(send(a, several, 2500, 0), 2500);
    GIVES(length_of_parts(b, 2500), 1000);
    GIVES(send(a, several, 1000, 0), 1000);
    GIVES(length_of_parts(b, 1000), 0);
    GIVES(send(a, several, 0, 0), 0);
    GIVES(length_of_parts(b, 0), 0);
    // With a control message for the length.
    unsigned short part = 40;
    GIVES(send_with(a, UDP_SEGMENT, &part, sizeof part), 100);
    GIVES(length_of_parts(b, 100), 40);
    part = 0;
    GIVES(send_with(a, UDP_SEGMENT, &part, sizeof part), 100);
    GIVES(length_of_parts(b, 100), 0);
    FAILS(send_with(a, UDP_SEGMENT, &value, sizeof value), EINVAL);
    FAILS(send_with(a, UDP_SEGMENT, &value, 1), EINVAL);
    FAILS(send_with(a, UDP_GRO, &part, sizeof part), EINVAL);
    // Too many datagrams, and too many bytes.
    GIVES(set(b, UDP_GRO, 0), 0);
    GIVES(set(a, UDP_SEGMENT, 10), 0);
    GIVES(send(a, several, 640, 0), 640);
    for (int n = 0; n < 64; n++) GIVES(recv(b, several, 100, MSG_DONTWAIT), 10);
    FAILS(recv(b, several, 1, MSG_DONTWAIT), EAGAIN);
    FAILS(send(a, several, 1281, 0), EINVAL);
    FAILS(send(a, several, 65536, 0), EMSGSIZE);
    close(a), close(b);
    int stream = socket(own->sa_family, SOCK_STREAM, 0);
    FAILS(set(stream, UDP_SEGMENT, 1), ENOPROTOOPT);
    close(stream);
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
    // Datagrams have no end: others may still send some.
    GIVES(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
    close(pair[1]);
    FAILS(recv(pair[0], buffer, 10, MSG_DONTWAIT), EAGAIN);
    FAILS(send(pair[0], "x", 1, 0), ECONNREFUSED);
    FAILS(send(pair[0], "x", 1, 0), ENOTCONN);
    close(pair[0]);
}

// The length of the next datagram, or -1.
static long next_datagram(int fd) {
    static char bytes[256];
    return recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
}

// One UDP datagram from several calls.
static void corked(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int receiver = socket(AF_INET, SOCK_DGRAM, 0), sender = socket(AF_INET, SOCK_DGRAM, 0);
    GIVES(bind(receiver, (void *)&address, sizeof address), 0);
    GIVES(getsockname(receiver, (void *)&address, &length), 0);
    GIVES(sendto(sender, "ab", 2, MSG_MORE, (void *)&address, sizeof address), 2);
    FAILS(next_datagram(receiver), EAGAIN);
    GIVES(send(sender, "cde", 3, 0), 3);
    GIVES(next_datagram(receiver), 5);
    GIVES(connect(sender, (void *)&address, sizeof address), 0);
    GIVES(send(sender, "ab", 2, MSG_MORE), 2);
    GIVES(send(sender, "", 0, 0), 0);
    GIVES(next_datagram(receiver), 2);
    int on = 1, off = 0;
    GIVES(setsockopt(sender, IPPROTO_UDP, UDP_CORK, &on, sizeof on), 0);
    for (int i = 0; i < 3; i++) GIVES(write(sender, "abc", 3), 3);
    FAILS(next_datagram(receiver), EAGAIN);
    GIVES(setsockopt(sender, IPPROTO_UDP, UDP_CORK, &off, sizeof off), 0);
    GIVES(next_datagram(receiver), 9);
    FAILS(next_datagram(receiver), EAGAIN);
    // Without bytes there is no datagram.
    GIVES(setsockopt(sender, IPPROTO_UDP, UDP_CORK, &on, sizeof on), 0);
    GIVES(setsockopt(sender, IPPROTO_UDP, UDP_CORK, &off, sizeof off), 0);
    FAILS(next_datagram(receiver), EAGAIN);
    GIVES(write(sender, "plain", 5), 5);
    GIVES(next_datagram(receiver), 5);
    // Bytes that were not sent are lost with the socket.
    GIVES(send(sender, "ab", 2, MSG_MORE), 2);
    close(sender);
    FAILS(next_datagram(receiver), EAGAIN);
    close(receiver);
}

// The state of a TCP socket in `TCP_INFO`.
static int state_of_tcp(int fd) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    memset(&info, 0xff, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length)) return -errno;
    return length >= 104 ? info.tcpi_state : -1;
}

static void tcp_information(void) {
    struct sockaddr_in to = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof to;
    struct tcp_info info;
    char byte = -1;
    int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    GIVES(bind(server, (void *)&to, sizeof to), 0);
    GIVES(getsockname(server, (void *)&to, &length), 0);
    GIVES(state_of_tcp(server), TCP_CLOSE);
    GIVES(listen(server, 7), 0);
    GIVES(state_of_tcp(server), TCP_LISTEN);
    GIVES(connect(client, (void *)&to, sizeof to), 0);
    GIVES(state_of_tcp(client), TCP_ESTABLISHED);
    // Of a listening socket: the backlog, and how much of it is used.
    length = sizeof info;
    GIVES(getsockopt(server, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
    CHECK(info.tcpi_unacked == 1 && info.tcpi_sacked == 7);
    int accepted = accept(server, NULL, NULL);
    length = sizeof info;
    GIVES(getsockopt(accepted, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
    CHECK(info.tcpi_state == TCP_ESTABLISHED && info.tcpi_pmtu >= 576);
    CHECK(info.tcpi_advmss < info.tcpi_pmtu && info.tcpi_snd_mss <= info.tcpi_advmss);
    GIVES(shutdown(client, SHUT_WR), 0);
    // The acknowledgement may come later.
    int ending = state_of_tcp(client);
    CHECK(ending == TCP_FIN_WAIT1 || ending == TCP_FIN_WAIT2);
    GIVES(state_of_tcp(accepted), TCP_CLOSE_WAIT);
    length = 1;
    GIVES(getsockopt(accepted, IPPROTO_TCP, TCP_INFO, &byte, &length), 0);
    CHECK(length == 1 && byte == TCP_CLOSE_WAIT);
    FAILS(setsockopt(accepted, IPPROTO_TCP, TCP_INFO, &info, sizeof info), ENOPROTOOPT);
    GIVES(state_of_tcp(datagrams), -EOPNOTSUPP);
    close(server), close(client), close(accepted), close(datagrams);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    signal(SIGPIPE, SIG_IGN);
    making();
    tcp();
    udp();
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    several_datagrams((void *)&v4, sizeof v4);
    several_datagrams((void *)&v6, sizeof v6);
    local();
    corked();
    if (!emulated) tcp_information();
    return finish("sockets");
}
