// The error queue of UDP sockets (IP_RECVERR, MSG_ERRQUEUE): datagrams that nobody received.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>

static int family;
static struct sockaddr_storage nobody;
static socklen_t length;

static int events(int fd) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    return poll(&ready, 1, 0) == 1 ? ready.revents : 0;
}

static int level(void) { return family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6; }

static int option(void) { return family == AF_INET ? IP_RECVERR : IPV6_RECVERR; }

static long wants(int fd, int on) { return setsockopt(fd, level(), option(), &on, sizeof on); }

static int error_of(int fd) {
    int error = -1;
    socklen_t size = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
}

// Finds a port of the loopback interface that no socket has.
static void find_port(void) {
    int fd = socket(family, SOCK_DGRAM, 0);
    memset(&nobody, 0, sizeof nobody);
    nobody.ss_family = family;
    if (family == AF_INET)
        ((struct sockaddr_in *)&nobody)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        ((struct sockaddr_in6 *)&nobody)->sin6_addr = in6addr_loopback;
    length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    GIVES(bind(fd, (void *)&nobody, length), 0);
    GIVES(getsockname(fd, (void *)&nobody, &length), 0);
    close(fd);
}

static long sends(int fd, const char *text) {
    return sendto(fd, text, strlen(text), 0, (void *)&nobody, length);
}

// What a report says: the error, and the type and code of the ICMP message.
struct expected {
    int error, type, code;
};

// Takes a report, and compares all parts of it.
static void reports_this(int fd, const char *text, size_t room, struct expected expected) {
    char buffer[64] = "", control[256];
    struct sockaddr_storage name = {0};
    struct iovec part = {buffer, room};
    struct msghdr message = {.msg_name = &name,
                             .msg_namelen = sizeof name,
                             .msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    size_t count = strlen(text) < room ? strlen(text) : room;
    GIVES(recvmsg(fd, &message, MSG_ERRQUEUE), count);
    GIVES(memcmp(buffer, text, count), 0);
    GIVES(message.msg_flags, MSG_ERRQUEUE | (strlen(text) > room ? MSG_TRUNC : 0));
    GIVES(message.msg_namelen, length);
    GIVES(memcmp(&name, &nobody, length), 0);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!CHECK(header != NULL)) return;
    GIVES(header->cmsg_level, level());
    GIVES(header->cmsg_type, option());
    GIVES(header->cmsg_len, CMSG_LEN(sizeof(struct sock_extended_err) + length));
    struct sock_extended_err error;
    memcpy(&error, CMSG_DATA(header), sizeof error);
    GIVES(error.ee_errno, expected.error);
    GIVES(error.ee_origin, family == AF_INET ? SO_EE_ORIGIN_ICMP : SO_EE_ORIGIN_ICMP6);
    GIVES(error.ee_type, expected.type);
    GIVES(error.ee_code, expected.code);
    GIVES(error.ee_info, 0);
    GIVES(error.ee_data, 0);
    struct sockaddr_storage offender;
    memcpy(&offender, CMSG_DATA(header) + sizeof error, length);
    GIVES(offender.ss_family, family);
    if (family == AF_INET)
        GIVES(((struct sockaddr_in *)&offender)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    else
        GIVES(memcmp(&((struct sockaddr_in6 *)&offender)->sin6_addr, &in6addr_loopback, 16), 0);
}

// Nobody has the port.
static void reported(int fd, const char *text, size_t room) {
    struct expected expected = {ECONNREFUSED, family == AF_INET ? 3 : 1, family == AF_INET ? 3 : 4};
    reports_this(fd, text, room, expected);
}

static uint16_t checksum(const void *bytes, size_t size) {
    const uint16_t *words = bytes;
    uint32_t sum = 0;
    for (size_t i = 0; i < size / 2; i++) sum += words[i];
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}

// Sends the ICMP message of a router about a datagram of `fd` with the text "lost".
static void complains(int fd, int type, int code) {
    struct {
        uint8_t type, code;
        uint16_t checksum;
        uint32_t unused;
        uint8_t quoted[52];
    } message = {type, code, 0, 0, {0}};
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    int head = family == AF_INET ? 20 : 40;
    GIVES(getsockname(fd, (void *)&own, &size), 0);
    if (family == AF_INET) {
        uint8_t ip[20] = {0x45, 0, 0, 32, 0, 0, 0, 0, 1, IPPROTO_UDP, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1};
        memcpy(message.quoted, ip, 20);
    } else {
        uint8_t ip[8] = {0x60, 0, 0, 0, 0, 12, IPPROTO_UDP, 1};
        memcpy(message.quoted, ip, 8);
        memcpy(message.quoted + 8, &in6addr_loopback, 16), memcpy(message.quoted + 24, &in6addr_loopback, 16);
    }
    // Both structures have the port there.
    memcpy(message.quoted + head, &((struct sockaddr_in *)&own)->sin_port, 2);
    memcpy(message.quoted + head + 2, &((struct sockaddr_in *)&nobody)->sin_port, 2);
    message.quoted[head + 5] = 12;
    memcpy(message.quoted + head + 8, "lost", 4);
    size = 8 + head + 12;
    message.checksum = checksum(&message, size);
    int router = socket(family, SOCK_RAW, family == AF_INET ? IPPROTO_ICMP : IPPROTO_ICMPV6);
    struct sockaddr_storage to = nobody;
    ((struct sockaddr_in *)&to)->sin_port = 0;
    GIVES(sendto(router, &message, size, 0, (void *)&to, length), size);
    close(router);
}

// Routers on the way, as traceroute sees them. Other users may not send their messages.
static void routers(void) {
    char byte[8];
    struct expected expired = {EHOSTUNREACH, family == AF_INET ? 11 : 3, 0};
    struct expected filtered = {family == AF_INET ? EHOSTUNREACH : EACCES, family == AF_INET ? 3 : 1,
                                family == AF_INET ? 13 : 1};
    if (geteuid()) return;
    find_port();
    int fd = socket(family, SOCK_DGRAM, 0);
    GIVES(connect(fd, (void *)&nobody, length), 0);
    // The hop limit was too low: not an error of a connected socket, unless it asks.
    complains(fd, expired.type, expired.code);
    GIVES(events(fd), 0);
    GIVES(error_of(fd), 0);
    complains(fd, filtered.type, filtered.code);
    FAILS(recv(fd, byte, 8, MSG_DONTWAIT), filtered.error);
    GIVES(wants(fd, 1), 0);
    complains(fd, expired.type, expired.code);
    complains(fd, filtered.type, filtered.code);
    GIVES(events(fd) & POLLERR, POLLERR);
    FAILS(recv(fd, byte, 8, MSG_DONTWAIT), filtered.error);
    reports_this(fd, "lost", 64, expired);
    reports_this(fd, "lost", 64, filtered);
    FAILS(recv(fd, byte, 8, MSG_ERRQUEUE), EAGAIN);
    GIVES(error_of(fd), 0);
    close(fd);
}

static void reports(void) {
    char byte[8];
    find_port();
    int fd = socket(family, SOCK_DGRAM, 0);
    // Nobody asked for errors.
    FAILS(recv(fd, byte, 8, MSG_ERRQUEUE), EAGAIN);
    GIVES(sends(fd, "lost"), 4);
    GIVES(events(fd), 0);
    FAILS(recv(fd, byte, 8, MSG_ERRQUEUE), EAGAIN);
    GIVES(wants(fd, 1), 0);
    GIVES(sends(fd, "hello"), 5);
    GIVES(events(fd) & POLLERR, POLLERR);
    // A call reports the error once; the queue keeps it.
    FAILS(recv(fd, byte, 8, MSG_DONTWAIT), ECONNREFUSED);
    FAILS(recv(fd, byte, 8, MSG_DONTWAIT), EAGAIN);
    GIVES(events(fd) & POLLERR, POLLERR);
    reported(fd, "hello", 64);
    FAILS(recv(fd, byte, 8, MSG_ERRQUEUE), EAGAIN);
    GIVES(events(fd), 0);
    // Several reports, in order; the last one takes the pending error with it.
    GIVES(sends(fd, "first"), 5);
    FAILS(sends(fd, "x"), ECONNREFUSED);
    GIVES(sends(fd, "second"), 6);
    GIVES(error_of(fd), ECONNREFUSED);
    reported(fd, "first", 2);
    GIVES(error_of(fd), ECONNREFUSED);
    GIVES(sends(fd, ""), 0);
    reported(fd, "second", 64);
    reported(fd, "", 64);
    GIVES(error_of(fd), 0);
    // Without a buffer for names and control data.
    GIVES(sends(fd, "third"), 5);
    GIVES(recv(fd, byte, 8, MSG_ERRQUEUE), 5);
    GIVES(memcmp(byte, "third", 5), 0);
    // Who wants no more errors loses those that wait.
    GIVES(sends(fd, "fourth"), 6);
    GIVES(wants(fd, 0), 0);
    FAILS(recv(fd, byte, 8, MSG_ERRQUEUE), EAGAIN);
    close(fd);
    // A connected socket hears of errors without asking, but has no queue then.
    fd = socket(family, SOCK_DGRAM, 0);
    GIVES(connect(fd, (void *)&nobody, length), 0);
    GIVES(send(fd, "a", 1, 0), 1);
    FAILS(recv(fd, byte, 8, MSG_ERRQUEUE), EAGAIN);
    FAILS(recv(fd, byte, 8, 0), ECONNREFUSED);
    GIVES(wants(fd, 1), 0);
    GIVES(send(fd, "bc", 2, 0), 2);
    reported(fd, "bc", 64);
    close(fd);
}

int main(int count, char **arguments) {
    char byte;
    int ends[2];
    enter(count, arguments);
    family = AF_INET, reports(), routers();
    family = AF_INET6, reports(), routers();
    GIVES(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    FAILS(recv(ends[0], &byte, 1, MSG_ERRQUEUE | MSG_DONTWAIT), EAGAIN);
    return finish("errqueue");
}
