// ICMP sockets: echo requests over the loopback interface.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

// `ICMP_FILTER` of linux/icmp.h.
#define FILTER 1

// A message with its header: type, code, checksum, identifier, sequence number.
struct echo {
    uint8_t type, code;
    uint16_t checksum, identifier, sequence;
    char text[8];
};

static uint16_t checksum(const void *bytes, size_t length) {
    const uint16_t *words = bytes;
    uint32_t sum = 0;
    for (size_t i = 0; i < length / 2; i++) sum += words[i];
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}

// Whether this process's group may create echo sockets.
static int may_echo(void) {
    FILE *file = fopen("/proc/sys/net/ipv4/ping_group_range", "r");
    long first = 0, last = 0x7fffffff;
    if (!file) return 0;
    GIVES(fscanf(file, "%ld %ld", &first, &last), 2);
    fclose(file);
    return first <= (long)getegid() && (long)getegid() <= last;
}

// Receives within two seconds.
static long receive(int fd, void *buffer, size_t length) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    GIVES(poll(&ready, 1, 2000), 1);
    return recv(fd, buffer, length, MSG_DONTWAIT);
}

// The hop limit that comes with a message, -1 if there is none; the message's type.
static int hops_of(int fd, int level, int kind, int *type) {
    struct echo answer = {0};
    char control[64];
    struct iovec part = {&answer, sizeof answer};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    GIVES(recvmsg(fd, &message, 0), sizeof answer);
    *type = answer.type;
    int hops = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == level && c->cmsg_type == kind) memcpy(&hops, CMSG_DATA(c), sizeof hops);
    return hops;
}

static void echoes(void) {
    if (!may_echo()) {
        FAILS(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP), EACCES);
        return;
    }
    int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
    CHECK(fd >= 0);
    FAILS(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMPV6), EPROTONOSUPPORT);
    int value = 0;
    socklen_t size = sizeof value;
    GIVES(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &value, &size), 0);
    GIVES(value, IPPROTO_ICMP);
    struct echo request = {.type = ICMP_ECHO, .sequence = htons(7), .text = "payload"};
    FAILS(send(fd, &request, sizeof request, 0), EDESTADDRREQ);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    FAILS(sendto(fd, &request, 7, 0, (void *)&to, sizeof to), EINVAL);
    request.type = ICMP_ECHOREPLY;
    FAILS(sendto(fd, &request, sizeof request, 0, (void *)&to, sizeof to), EINVAL);
    request.type = ICMP_ECHO;
    GIVES(sendto(fd, &request, sizeof request, 0, (void *)&to, sizeof to), sizeof request);
    struct sockaddr_in own = {0}, from = {0};
    size = sizeof own;
    GIVES(getsockname(fd, (void *)&own, &size), 0);
    CHECK(own.sin_port != 0);
    struct echo answer = {0};
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    GIVES(poll(&ready, 1, 2000), 1);
    size = sizeof from;
    GIVES(recvfrom(fd, &answer, sizeof answer, 0, (void *)&from, &size), sizeof answer);
    GIVES(ntohl(from.sin_addr.s_addr), INADDR_LOOPBACK);
    GIVES(from.sin_port, 0);
    GIVES(answer.type, ICMP_ECHOREPLY);
    GIVES(answer.identifier, own.sin_port);
    GIVES(answer.sequence, request.sequence);
    GIVES(strcmp(answer.text, "payload"), 0);
    GIVES(checksum(&answer, sizeof answer), 0);
    FAILS(recv(fd, &answer, sizeof answer, MSG_DONTWAIT), EAGAIN);
    int on = 1, type = 0;
    GIVES(setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on), 0);
    GIVES(setsockopt(fd, IPPROTO_IP, IP_RETOPTS, &on, sizeof on), 0);
    GIVES(connect(fd, (void *)&to, sizeof to), 0);
    GIVES(send(fd, &request, sizeof request, 0), sizeof request);
    GIVES(hops_of(fd, IPPROTO_IP, IP_TTL, &type), 64);
    GIVES(type, ICMP_ECHOREPLY);
    close(fd);

    fd = socket(AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6);
    if (fd < 0) return;
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    request.type = ICMP6_ECHO_REQUEST;
    GIVES(setsockopt(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof on), 0);
    GIVES(sendto(fd, &request, sizeof request, 0, (void *)&to6, sizeof to6), sizeof request);
    GIVES(hops_of(fd, IPPROTO_IPV6, IPV6_HOPLIMIT, &type), 64);
    GIVES(type, ICMP6_ECHO_REPLY);
    close(fd);
}

static void raw(void) {
    int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
    // Root may be without CAP_NET_RAW, in a container.
    if (fd < 0) {
        GIVES(errno, EPERM);
        return;
    }
    FAILS(socket(AF_INET, SOCK_RAW, 0), EPROTONOSUPPORT);
    struct sockaddr_in own = {0};
    socklen_t size = sizeof own;
    GIVES(getsockname(fd, (void *)&own, &size), 0);
    GIVES(ntohs(own.sin_port), IPPROTO_ICMP);
    uint32_t filter = 1 << ICMP_ECHO;
    GIVES(setsockopt(fd, IPPROTO_RAW, FILTER, &filter, sizeof filter), 0);
    filter = 0, size = sizeof filter;
    GIVES(getsockopt(fd, IPPROTO_RAW, FILTER, &filter, &size), 0);
    GIVES(filter, 1 << ICMP_ECHO);
    FAILS(setsockopt(fd, IPPROTO_UDP, 1, &filter, sizeof filter), ENOPROTOOPT);
    struct echo request = {.type = ICMP_ECHO, .identifier = htons(77), .text = "payload"};
    request.checksum = checksum(&request, sizeof request);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    GIVES(sendto(fd, &request, sizeof request, 0, (void *)&to, sizeof to), sizeof request);
    struct {
        struct iphdr ip;
        struct echo echo;
    } packet = {0};
    // Other processes may receive echoes at the same time.
    do {
        GIVES(receive(fd, &packet, sizeof packet), sizeof packet);
    } while (packet.echo.identifier != htons(77) && !failures);
    GIVES(packet.echo.type, ICMP_ECHOREPLY);
    GIVES(packet.ip.protocol, IPPROTO_ICMP);
    GIVES(packet.ip.ttl, 64);
    GIVES(checksum(&packet.ip, sizeof packet.ip), 0);
    close(fd);

    fd = socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6);
    if (fd < 0) return;
    struct icmp6_filter some;
    ICMP6_FILTER_SETBLOCKALL(&some);
    ICMP6_FILTER_SETPASS(ICMP6_ECHO_REPLY, &some);
    GIVES(setsockopt(fd, IPPROTO_ICMPV6, ICMP6_FILTER, &some, sizeof some), 0);
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    // The kernel computes the checksum.
    request.type = ICMP6_ECHO_REQUEST, request.checksum = 0;
    GIVES(sendto(fd, &request, sizeof request, 0, (void *)&to6, sizeof to6), sizeof request);
    struct echo answer = {0};
    do {
        GIVES(receive(fd, &answer, sizeof answer), sizeof answer);
    } while (answer.identifier != htons(77) && !failures);
    GIVES(answer.type, ICMP6_ECHO_REPLY);
    close(fd);
    CHILD_EXITS(0, {
        if (setuid(1)) _exit(1);
        _exit(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) >= 0 || errno != EPERM);
    });
}

int main(int count, char **arguments) {
    enter(count, arguments);
    echoes();
    raw();
    return finish("icmp");
}
