// Control messages of UDP: addresses, interfaces, hop limits and classes of packets, time stamps.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

// A received message with its control messages.
static struct {
    struct msghdr header;
    struct sockaddr_storage from;
    char text[64];
    union {
        struct cmsghdr first;
        char bytes[512];
    } control;
} got;

static long take(int fd) {
    static struct iovec part;
    part = (struct iovec){got.text, sizeof got.text};
    memset(&got, 0, sizeof got);
    got.header = (struct msghdr){.msg_name = &got.from,
                                 .msg_namelen = sizeof got.from,
                                 .msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = &got.control,
                                 .msg_controllen = sizeof got.control};
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    poll(&ready, 1, 5000);
    return recvmsg(fd, &got.header, MSG_DONTWAIT);
}

// The data of the control message with this level and type and length, or NULL.
static void *found(int level, int type, size_t length) {
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&got.header); at; at = CMSG_NXTHDR(&got.header, at))
        if (at->cmsg_level == level && at->cmsg_type == type)
            return CHECK(at->cmsg_len == CMSG_LEN(length)) ? CMSG_DATA(at) : NULL;
    return NULL;
}

static int count(void) {
    int all = 0;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&got.header); at; at = CMSG_NXTHDR(&got.header, at)) all++;
    return all;
}

// Sends a text with one control message, or none of length 0.
static long sends(int fd, const void *to, socklen_t length, int level, int type, const void *data, size_t size) {
    union {
        struct cmsghdr first;
        char bytes[128];
    } control = {0};
    struct iovec part = {"text", 4};
    struct msghdr header = {.msg_name = (void *)to, .msg_namelen = length, .msg_iov = &part, .msg_iovlen = 1};
    if (size) {
        control.first.cmsg_len = CMSG_LEN(size);
        control.first.cmsg_level = level, control.first.cmsg_type = type;
        memcpy(CMSG_DATA(&control.first), data, size);
        header.msg_control = &control, header.msg_controllen = CMSG_SPACE(size);
    }
    return sendmsg(fd, &header, 0);
}

static int set(int fd, int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof value);
}

static int value_of(int fd, int level, int name) {
    int value = -7;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, name, &value, &length) ? -errno : value;
}

static void ipv4(void) {
    struct sockaddr_in any = {AF_INET}, to = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof any;
    int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
    GIVES(bind(server, (void *)&any, sizeof any), 0);
    GIVES(getsockname(server, (void *)&any, &length), 0);
    to.sin_port = any.sin_port;
#define SEND(level, type, data) sends(client, &to, sizeof to, level, type, &data, sizeof data)
    // Without options there are no control messages.
    GIVES(sends(client, &to, sizeof to, 0, 0, "", 0), 4);
    GIVES(take(server), 4);
    GIVES(got.header.msg_controllen, 0);
    GIVES(set(server, IPPROTO_IP, IP_PKTINFO, 1), 0);
    GIVES(sends(client, &to, sizeof to, 0, 0, "", 0), 4);
    GIVES(take(server), 4);
    GIVES(count(), 1);
    struct in_pktinfo *info = found(IPPROTO_IP, IP_PKTINFO, sizeof *info), source = {0};
    if (CHECK(info != NULL)) {
        GIVES(info->ipi_ifindex, 1);
        GIVES(info->ipi_addr.s_addr, htonl(INADDR_LOOPBACK));
        GIVES(info->ipi_spec_dst.s_addr, htonl(INADDR_LOOPBACK));
    }
    // The receiver sees the packet's destination, not its own address; the sender chooses the source.
    to.sin_addr.s_addr = htonl(0x7f000005);
    source.ipi_spec_dst.s_addr = htonl(0x7f000009);
    GIVES(SEND(IPPROTO_IP, IP_PKTINFO, source), 4);
    GIVES(take(server), 4);
    GIVES(((struct sockaddr_in *)&got.from)->sin_addr.s_addr, htonl(0x7f000009));
    info = found(IPPROTO_IP, IP_PKTINFO, sizeof *info);
    if (CHECK(info != NULL)) {
        GIVES(info->ipi_ifindex, 1);
        GIVES(info->ipi_addr.s_addr, htonl(0x7f000005));
    }
    // An answer from there goes back there.
    source = *info, source.ipi_spec_dst = info->ipi_addr;
    GIVES(sends(server, &got.from, sizeof(struct sockaddr_in), IPPROTO_IP, IP_PKTINFO, &source, sizeof source), 4);
    GIVES(take(client), 4);
    GIVES(((struct sockaddr_in *)&got.from)->sin_addr.s_addr, htonl(0x7f000005));
    source.ipi_spec_dst.s_addr = 0;
    GIVES(SEND(IPPROTO_IP, IP_PKTINFO, source), 4);
    GIVES(take(server), 4);
    GIVES(((struct sockaddr_in *)&got.from)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    source.ipi_spec_dst.s_addr = htonl(0xc0000201);
    FAILS(SEND(IPPROTO_IP, IP_PKTINFO, source), ENETUNREACH);
    source.ipi_spec_dst.s_addr = 0, source.ipi_ifindex = 99999;
    CHECK(SEND(IPPROTO_IP, IP_PKTINFO, source) == -1);
    FAILS(SEND(IPPROTO_IP, IP_PKTINFO, to.sin_port), EINVAL);
    // Hop limits.
    int hops = 9, *ttl;
    GIVES(set(server, IPPROTO_IP, IP_RECVTTL, 1), 0);
    GIVES(set(server, IPPROTO_IP, IP_PKTINFO, 0), 0);
    GIVES(SEND(IPPROTO_IP, IP_TTL, hops), 4);
    GIVES(take(server), 4);
    GIVES(count(), 1);
    ttl = found(IPPROTO_IP, IP_TTL, sizeof *ttl);
    CHECK(ttl && *ttl == 9);
    GIVES(set(client, IPPROTO_IP, IP_TTL, 33), 0);
    GIVES(sends(client, &to, sizeof to, 0, 0, "", 0), 4);
    GIVES(take(server), 4);
    ttl = found(IPPROTO_IP, IP_TTL, sizeof *ttl);
    CHECK(ttl && *ttl == 33);
    hops = 0;
    FAILS(SEND(IPPROTO_IP, IP_TTL, hops), EINVAL);
    hops = 256;
    FAILS(SEND(IPPROTO_IP, IP_TTL, hops), EINVAL);
    FAILS(set(client, IPPROTO_IP, IP_TTL, 0), EINVAL);
    FAILS(set(client, IPPROTO_IP, IP_TTL, 256), EINVAL);
    GIVES(set(client, IPPROTO_IP, IP_TTL, -1), 0);
    // A connected socket; control data for which there is no room is cut.
    GIVES(connect(client, (void *)&to, sizeof to), 0);
    GIVES(send(client, "more", 4, 0), 4);
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr small = {.msg_iov = &part, .msg_iovlen = 1};
    GIVES(recvmsg(server, &small, 0), 1);
    GIVES(small.msg_flags, MSG_TRUNC | MSG_CTRUNC);
    close(server), close(client);
}

static void ipv6(void) {
    struct sockaddr_in6 any = {AF_INET6}, to = {AF_INET6, 0, 0, IN6ADDR_LOOPBACK_INIT, 0};
    struct sockaddr_in to4 = {AF_INET, 0, {htonl(0x7f000003)}};
    socklen_t length = sizeof any;
    int server = socket(AF_INET6, SOCK_DGRAM, 0), client = socket(AF_INET6, SOCK_DGRAM, 0);
    int other = socket(AF_INET, SOCK_DGRAM, 0), hops = 5, *limit;
    struct in6_pktinfo *info, source = {.ipi6_addr = in6addr_loopback};
    GIVES(bind(server, (void *)&any, sizeof any), 0);
    GIVES(getsockname(server, (void *)&any, &length), 0);
    to.sin6_port = to4.sin_port = any.sin6_port;
    GIVES(set(server, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1), 0);
    GIVES(set(server, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1), 0);
    GIVES(SEND(IPPROTO_IPV6, IPV6_HOPLIMIT, hops), 4);
    GIVES(take(server), 4);
    GIVES(count(), 2);
    info = found(IPPROTO_IPV6, IPV6_PKTINFO, sizeof *info);
    CHECK(info && info->ipi6_ifindex == 1 && !memcmp(&info->ipi6_addr, &in6addr_loopback, 16));
    limit = found(IPPROTO_IPV6, IPV6_HOPLIMIT, sizeof *limit);
    CHECK(limit && *limit == 5);
    GIVES(SEND(IPPROTO_IPV6, IPV6_PKTINFO, source), 4);
    GIVES(take(server), 4);
    GIVES(memcmp(&((struct sockaddr_in6 *)&got.from)->sin6_addr, &in6addr_loopback, 16), 0);
    source.ipi6_addr.s6_addr[0] = 0x20;
    FAILS(SEND(IPPROTO_IPV6, IPV6_PKTINFO, source), EINVAL);
    source.ipi6_addr = in6addr_loopback, source.ipi6_ifindex = 99999;
    CHECK(SEND(IPPROTO_IPV6, IPV6_PKTINFO, source) == -1);
    hops = 256;
    FAILS(SEND(IPPROTO_IPV6, IPV6_HOPLIMIT, hops), EINVAL);
    hops = -2;
    FAILS(SEND(IPPROTO_IPV6, IPV6_HOPLIMIT, hops), EINVAL);
    FAILS(SEND(IPPROTO_IPV6, IPV6_PKTINFO, hops), EINVAL);
    // A packet of IPv4.
    GIVES(sends(other, &to4, sizeof to4, 0, 0, "", 0), 4);
    GIVES(take(server), 4);
    info = found(IPPROTO_IPV6, IPV6_PKTINFO, sizeof *info);
    CHECK(info && info->ipi6_ifindex == 1 && IN6_IS_ADDR_V4MAPPED(&info->ipi6_addr));
    CHECK(info && info->ipi6_addr.s6_addr[15] == 3);
    CHECK(!found(IPPROTO_IP, IP_PKTINFO, sizeof(struct in_pktinfo)));
    GIVES(set(server, IPPROTO_IP, IP_PKTINFO, 1), 0);
    GIVES(sends(other, &to4, sizeof to4, 0, 0, "", 0), 4);
    GIVES(take(server), 4);
    struct in_pktinfo *info4 = found(IPPROTO_IP, IP_PKTINFO, sizeof *info4);
    CHECK(info4 && info4->ipi_ifindex == 1 && info4->ipi_addr.s_addr == to4.sin_addr.s_addr);
    close(server), close(client), close(other);
}

// Types of service and traffic classes.
static void classes(void) {
    struct sockaddr_in any = {AF_INET}, to = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 any6 = {AF_INET6}, to6 = {AF_INET6, 0, 0, IN6ADDR_LOOPBACK_INIT, 0};
    socklen_t length = sizeof any;
    int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
    int class = 0x10, *class6;
    unsigned char byte = 0x12, *tos;
    GIVES(bind(server, (void *)&any, sizeof any), 0);
    GIVES(getsockname(server, (void *)&any, &length), 0);
    to.sin_port = any.sin_port;
    GIVES(set(server, IPPROTO_IP, IP_RECVTOS, 1), 0);
    GIVES(set(client, IPPROTO_IP, IP_TOS, 0x1b9), 0);
    GIVES(value_of(client, IPPROTO_IP, IP_TOS), 0xb9);
    GIVES(sends(client, &to, sizeof to, 0, 0, "", 0), 4);
    GIVES(take(server), 4);
    tos = found(IPPROTO_IP, IP_TOS, 1);
    CHECK(tos && *tos == 0xb9);
    GIVES(SEND(IPPROTO_IP, IP_TOS, class), 4);
    GIVES(take(server), 4);
    tos = found(IPPROTO_IP, IP_TOS, 1);
    CHECK(tos && *tos == 0x10);
    GIVES(SEND(IPPROTO_IP, IP_TOS, byte), 4);
    GIVES(take(server), 4);
    tos = found(IPPROTO_IP, IP_TOS, 1);
    CHECK(tos && *tos == 0x12);
    class = 256;
    FAILS(SEND(IPPROTO_IP, IP_TOS, class), EINVAL);
    GIVES(setsockopt(client, IPPROTO_IP, IP_TOS, &byte, 1), 0);
    GIVES(value_of(client, IPPROTO_IP, IP_TOS), 0x12);
    close(server), close(client);

    length = sizeof any6;
    server = socket(AF_INET6, SOCK_DGRAM, 0), client = socket(AF_INET6, SOCK_DGRAM, 0);
    GIVES(bind(server, (void *)&any6, sizeof any6), 0);
    GIVES(getsockname(server, (void *)&any6, &length), 0);
    to6.sin6_port = any6.sin6_port;
    GIVES(set(server, IPPROTO_IPV6, IPV6_RECVTCLASS, 1), 0);
    GIVES(set(client, IPPROTO_IPV6, IPV6_TCLASS, 0xb9), 0);
    GIVES(sends(client, &to6, sizeof to6, 0, 0, "", 0), 4);
    GIVES(take(server), 4);
    class6 = found(IPPROTO_IPV6, IPV6_TCLASS, sizeof *class6);
    CHECK(class6 && *class6 == 0xb9);
    class = 0x20;
    GIVES(sends(client, &to6, sizeof to6, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof class), 4);
    GIVES(take(server), 4);
    class6 = found(IPPROTO_IPV6, IPV6_TCLASS, sizeof *class6);
    CHECK(class6 && *class6 == 0x20);
    class = 256;
    FAILS(sends(client, &to6, sizeof to6, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof class), EINVAL);
    FAILS(set(client, IPPROTO_IPV6, IPV6_TCLASS, 256), EINVAL);
    FAILS(set(client, IPPROTO_IPV6, IPV6_TCLASS, -2), EINVAL);
    GIVES(set(client, IPPROTO_IPV6, IPV6_TCLASS, -1), 0);
    GIVES(value_of(client, IPPROTO_IPV6, IPV6_TCLASS), 0);
    close(server), close(client);

    // TCP has the bits of congestion notification itself.
    int stream = socket(AF_INET6, SOCK_STREAM, 0);
    GIVES(set(stream, IPPROTO_IPV6, IPV6_TCLASS, 0xff), 0);
    GIVES(value_of(stream, IPPROTO_IPV6, IPV6_TCLASS), 0xfc);
    GIVES(set(stream, IPPROTO_IP, IP_TOS, 0xff), 0);
    GIVES(value_of(stream, IPPROTO_IP, IP_TOS), 0xfc);
    close(stream);
}

// Whether a time in seconds is that of this moment.
static int is_now(double time) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double difference = now.tv_sec + now.tv_nsec / 1e9 - time;
    return difference > -1 && difference < 5;
}

static void times(int family, int pair[2]) {
    struct timeval *old;
    struct timespec *fine;
    GIVES(set(pair[0], SOL_SOCKET, SO_TIMESTAMP, 1), 0);
    GIVES(value_of(pair[0], SOL_SOCKET, SO_TIMESTAMP), 1);
    GIVES(send(pair[1], "time", 4, 0), 4);
    GIVES(take(pair[0]), 4);
    GIVES(count(), 1);
    old = found(SOL_SOCKET, SCM_TIMESTAMP, sizeof *old);
    CHECK(old && is_now(old->tv_sec + old->tv_usec / 1e6) && old->tv_usec < 1000000);
    // One format replaces the other.
    GIVES(set(pair[0], SOL_SOCKET, SO_TIMESTAMPNS, 1), 0);
    GIVES(value_of(pair[0], SOL_SOCKET, SO_TIMESTAMPNS), 1);
    GIVES(value_of(pair[0], SOL_SOCKET, SO_TIMESTAMP), 0);
    GIVES(send(pair[1], "time", 4, 0), 4);
    GIVES(take(pair[0]), 4);
    GIVES(count(), 1);
    fine = found(SOL_SOCKET, SCM_TIMESTAMPNS, sizeof *fine);
    CHECK(fine && is_now(fine->tv_sec + fine->tv_nsec / 1e9) && fine->tv_nsec < 1000000000);
    if (family == AF_UNIX) {
        GIVES(set(pair[0], SOL_SOCKET, SO_PASSCRED, 1), 0);
        GIVES(send(pair[1], "who", 3, 0), 3);
        GIVES(take(pair[0]), 3);
        GIVES(count(), 2);
        struct ucred *cred = found(SOL_SOCKET, SCM_CREDENTIALS, sizeof *cred);
        CHECK(cred && cred->pid == getpid());
    }
    GIVES(set(pair[0], SOL_SOCKET, SO_TIMESTAMPNS, 0), 0);
    if (family == AF_UNIX) GIVES(set(pair[0], SOL_SOCKET, SO_PASSCRED, 0), 0);
    GIVES(send(pair[1], "none", 4, 0), 4);
    GIVES(take(pair[0]), 4);
    GIVES(got.header.msg_controllen, 0);
    close(pair[0]), close(pair[1]);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    ipv4();
    classes();
    ipv6();
    struct sockaddr_in here = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof here;
    int pair[2] = {socket(AF_INET, SOCK_DGRAM, 0), socket(AF_INET, SOCK_DGRAM, 0)};
    GIVES(bind(pair[0], (void *)&here, sizeof here), 0);
    GIVES(getsockname(pair[0], (void *)&here, &length), 0);
    GIVES(connect(pair[1], (void *)&here, sizeof here), 0);
    times(AF_INET, pair);
    GIVES(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
    times(AF_UNIX, pair);
    return finish("packets");
}
