// Multicast groups, and sockets that are bound to an interface. All packets stay on the loopback
// interface.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif
#define LOOPBACK 1

static char text[64];
static union {
    struct cmsghdr first;
    char bytes[256];
} control;
static struct msghdr got;

// Receives a message with its control messages. Packets on the loopback interface arrive at once.
static long take(int fd) {
    static struct iovec part = {text, sizeof text};
    got = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    return recvmsg(fd, &got, MSG_DONTWAIT);
}

static void *found(int level, int type) {
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&got); at; at = CMSG_NXTHDR(&got, at))
        if (at->cmsg_level == level && at->cmsg_type == type) return CMSG_DATA(at);
    return NULL;
}

static int set(int fd, int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof value);
}

static int value_of(int fd, int level, int name) {
    int value = -7;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, name, &value, &length) ? -errno : value;
}

// A UDP socket at the port, which others may have too; port 0 is replaced.
static int receiver(in_addr_t address, in_port_t *port) {
    struct sockaddr_in at = {AF_INET, *port, {address}};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    GIVES(set(fd, SOL_SOCKET, SO_REUSEADDR, 1), 0);
    GIVES(bind(fd, (void *)&at, sizeof at), 0);
    GIVES(getsockname(fd, (void *)&at, &length), 0);
    *port = at.sin_port;
    return fd;
}

static int membership(int fd, int name, in_addr_t group, in_addr_t address, int index) {
    struct ip_mreqn request = {{group}, {address}, index};
    return setsockopt(fd, IPPROTO_IP, name, &request, sizeof request);
}

static void ipv4(void) {
    const in_addr_t group = htonl(0xef010203), own = htonl(INADDR_LOOPBACK);
    in_port_t port = 0;
    int first = receiver(INADDR_ANY, &port), second = receiver(INADDR_ANY, &port);
    int bound = receiver(group, &port), sender = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to = {AF_INET, port, {group}};
#define SEND() sendto(sender, "text", 4, 0, (void *)&to, sizeof to)
    GIVES(value_of(sender, IPPROTO_IP, IP_MULTICAST_IF), 0);
    FAILS(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, "a", 1), EINVAL);
    struct in_addr foreign = {htonl(0xc0000201)}, local = {own};
    FAILS(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &foreign, sizeof foreign), EADDRNOTAVAIL);
    GIVES(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &local, sizeof local), 0);
    GIVES(value_of(sender, IPPROTO_IP, IP_MULTICAST_IF), own);
    // No member: nobody receives.
    GIVES(SEND(), 4);
    FAILS(take(first), EAGAIN);
    // One member: it receives, and so do other sockets unless they want only their own groups.
    GIVES(membership(first, IP_ADD_MEMBERSHIP, group, 0, LOOPBACK), 0);
    GIVES(set(second, IPPROTO_IP, IP_MULTICAST_ALL, 0), 0);
    GIVES(value_of(second, IPPROTO_IP, IP_MULTICAST_ALL), 0);
    FAILS(set(second, IPPROTO_IP, IP_MULTICAST_ALL, 2), EINVAL);
    GIVES(set(first, IPPROTO_IP, IP_PKTINFO, 1), 0);
    GIVES(set(first, IPPROTO_IP, IP_RECVTTL, 1), 0);
    GIVES(SEND(), 4);
    GIVES(take(first), 4);
    int *ttl = found(IPPROTO_IP, IP_TTL);
    CHECK(ttl && *ttl == 1);
    struct in_pktinfo *info = found(IPPROTO_IP, IP_PKTINFO);
    CHECK(info && info->ipi_addr.s_addr == group && info->ipi_ifindex == LOOPBACK);
    GIVES(take(bound), 4);
    FAILS(take(first), EAGAIN);
    FAILS(take(second), EAGAIN);
    GIVES(set(second, IPPROTO_IP, IP_MULTICAST_ALL, 1), 0);
    GIVES(set(sender, IPPROTO_IP, IP_MULTICAST_TTL, 9), 0);
    GIVES(SEND(), 4);
    GIVES(take(first), 4);
    ttl = found(IPPROTO_IP, IP_TTL);
    CHECK(ttl && *ttl == 9);
    GIVES(take(second), 4);
    GIVES(take(bound), 4);
    GIVES(value_of(sender, IPPROTO_IP, IP_MULTICAST_TTL), 9);
    GIVES(set(sender, IPPROTO_IP, IP_MULTICAST_TTL, -1), 0);
    GIVES(value_of(sender, IPPROTO_IP, IP_MULTICAST_TTL), 1);
    FAILS(set(sender, IPPROTO_IP, IP_MULTICAST_TTL, 256), EINVAL);
    unsigned char byte = 0;
    GIVES(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_LOOP, &byte, 1), 0);
    GIVES(value_of(sender, IPPROTO_IP, IP_MULTICAST_LOOP), 0);
    // Another group at the same port.
    to.sin_addr.s_addr = htonl(0xef010204);
    GIVES(SEND(), 4);
    FAILS(take(first), EAGAIN);
    to.sin_addr.s_addr = group;
    // A connected sender has the address of the interface; a connected receiver one peer.
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    GIVES(connect(sender, (void *)&to, sizeof to), 0);
    GIVES(getsockname(sender, (void *)&name, &length), 0);
    GIVES(name.sin_addr.s_addr, own);
    GIVES(send(sender, "four", 4, 0), 4);
    GIVES(take(first), 4);
    GIVES(take(second), 4);
    GIVES(take(bound), 4);
    name.sin_port = htons(ntohs(name.sin_port) ^ 1);
    GIVES(connect(second, (void *)&name, sizeof name), 0);
    GIVES(send(sender, "four", 4, 0), 4);
    FAILS(take(second), EAGAIN);
    GIVES(take(first), 4);
    GIVES(take(bound), 4);
    // Memberships.
    FAILS(membership(first, IP_ADD_MEMBERSHIP, group, 0, LOOPBACK), EADDRINUSE);
    FAILS(membership(first, IP_ADD_MEMBERSHIP, own, 0, LOOPBACK), EINVAL);
    FAILS(membership(first, IP_ADD_MEMBERSHIP, group, 0, 99999), ENODEV);
    FAILS(membership(first, IP_ADD_MEMBERSHIP, group, foreign.s_addr, 0), ENODEV);
    FAILS(membership(first, IP_DROP_MEMBERSHIP, group, foreign.s_addr, 0), EADDRNOTAVAIL);
    FAILS(setsockopt(first, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group), EINVAL);
    FAILS(membership(bound, IP_DROP_MEMBERSHIP, group, 0, LOOPBACK), EADDRNOTAVAIL);
    GIVES(membership(first, IP_DROP_MEMBERSHIP, group, 0, LOOPBACK), 0);
    FAILS(membership(first, IP_DROP_MEMBERSHIP, group, 0, LOOPBACK), EADDRNOTAVAIL);
    GIVES(send(sender, "four", 4, 0), 4);
    FAILS(take(bound), EAGAIN);
    struct ip_mreq by_address = {{group}, {own}};
    GIVES(setsockopt(second, IPPROTO_IP, IP_ADD_MEMBERSHIP, &by_address, sizeof by_address), 0);
    GIVES(send(sender, "four", 4, 0), 4);
    GIVES(take(bound), 4);
    // A closed socket is no member.
    close(second);
    GIVES(send(sender, "four", 4, 0), 4);
    FAILS(take(bound), EAGAIN);
    for (int i = 0; i < 20; i++) GIVES(membership(first, IP_ADD_MEMBERSHIP, htonl(0xef020000 + i), 0, LOOPBACK), 0);
    FAILS(membership(first, IP_ADD_MEMBERSHIP, group, 0, LOOPBACK), ENOBUFS);
    int tcp = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(membership(tcp, IP_ADD_MEMBERSHIP, group, 0, LOOPBACK), EPROTO);
    FAILS(setsockopt(tcp, IPPROTO_IP, IP_MULTICAST_IF, &local, sizeof local), EINVAL);
    FAILS(set(tcp, IPPROTO_IP, IP_MULTICAST_TTL, 2), EINVAL);
    FAILS(connect(tcp, (void *)&to, sizeof to), ENETUNREACH);
    close(tcp), close(first), close(bound), close(sender);
}

static void ipv6(void) {
    struct sockaddr_in6 at = {AF_INET6}, to = {AF_INET6};
    socklen_t length = sizeof at;
    int first = socket(AF_INET6, SOCK_DGRAM, 0), sender = socket(AF_INET6, SOCK_DGRAM, 0);
    GIVES(bind(first, (void *)&at, sizeof at), 0);
    GIVES(getsockname(first, (void *)&at, &length), 0);
    to.sin6_port = at.sin6_port;
    inet_pton(AF_INET6, "ff02::1234", &to.sin6_addr);
    struct ipv6_mreq request = {to.sin6_addr, LOOPBACK};
    GIVES(set(sender, IPPROTO_IPV6, IPV6_MULTICAST_IF, LOOPBACK), 0);
    GIVES(value_of(sender, IPPROTO_IPV6, IPV6_MULTICAST_IF), LOOPBACK);
    FAILS(set(sender, IPPROTO_IPV6, IPV6_MULTICAST_IF, 99999), ENODEV);
    // Of IPv6, the loopback interface has no route to groups.
    FAILS(SEND(), ENETUNREACH);
    GIVES(setsockopt(first, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request), 0);
    FAILS(setsockopt(first, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request), EADDRINUSE);
    GIVES(set(sender, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, -1), 0);
    GIVES(value_of(sender, IPPROTO_IPV6, IPV6_MULTICAST_HOPS), 1);
    FAILS(set(sender, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 256), EINVAL);
    FAILS(set(sender, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 2), EINVAL);
    GIVES(value_of(first, IPPROTO_IPV6, IPV6_MULTICAST_ALL), 1);
    request.ipv6mr_interface = 99999;
    FAILS(setsockopt(first, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request), ENODEV);
    FAILS(setsockopt(first, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &request, sizeof request), EADDRNOTAVAIL);
    request = (struct ipv6_mreq){in6addr_loopback, LOOPBACK};
    FAILS(setsockopt(first, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request), EINVAL);
    FAILS(setsockopt(first, IPPROTO_IPV6, IPV6_LEAVE_GROUP, &request, sizeof request), EINVAL);
    struct group_req general = {.gr_interface = LOOPBACK};
    memcpy(&general.gr_group, &to, sizeof to);
    FAILS(setsockopt(first, IPPROTO_IPV6, MCAST_JOIN_GROUP, &general, sizeof general), EADDRINUSE);
    GIVES(setsockopt(first, IPPROTO_IPV6, MCAST_LEAVE_GROUP, &general, sizeof general), 0);
    FAILS(setsockopt(first, IPPROTO_IPV6, MCAST_LEAVE_GROUP, &general, sizeof general), EADDRNOTAVAIL);
    FAILS(setsockopt(first, IPPROTO_IPV6, MCAST_JOIN_GROUP, &general, 8), EINVAL);
    int tcp = socket(AF_INET6, SOCK_STREAM, 0);
    request = (struct ipv6_mreq){to.sin6_addr, LOOPBACK};
    FAILS(setsockopt(tcp, IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request), EPROTO);
    FAILS(set(tcp, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 2), ENOPROTOOPT);
    FAILS(set(tcp, IPPROTO_IPV6, IPV6_MULTICAST_IF, LOOPBACK), ENOPROTOOPT);
    close(tcp), close(first), close(sender);
}

static void devices(void) {
    char name[IFNAMSIZ] = "";
    socklen_t length = sizeof name;
    int fd = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
    GIVES(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length), 0);
    GIVES(length, 0);
    FAILS(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "nodevice9", 9), ENODEV);
    FAILS(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, (void *)8, 4), EFAULT);
    GIVES(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2), 0);
    length = sizeof name;
    GIVES(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length), 0);
    CHECK(length == 3 && !strcmp(name, "lo"));
    length = 8;
    FAILS(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &length), EINVAL);
    GIVES(value_of(fd, SOL_SOCKET, SO_BINDTOIFINDEX), LOOPBACK);
    FAILS(set(fd, SOL_SOCKET, SO_BINDTOIFINDEX, -1), EINVAL);
    CHILD_EXITS(0, int before = failures; GIVES(setuid(12345), 0);
                FAILS(set(fd, SOL_SOCKET, SO_BINDTOIFINDEX, 0), EPERM);
                int other = socket(AF_INET, SOCK_DGRAM, 0);
                GIVES(set(other, SOL_SOCKET, SO_BINDTOIFINDEX, LOOPBACK), 0); _exit(failures != before));
    struct sockaddr_in to = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
    length = sizeof to;
    GIVES(bind(fd, (void *)&to, sizeof to), 0);
    GIVES(getsockname(fd, (void *)&to, &length), 0);
    GIVES(sendto(client, "text", 4, 0, (void *)&to, sizeof to), 4);
    GIVES(take(fd), 4);
    // A socket of an interface that is not there receives nothing, and cannot send.
    GIVES(set(fd, SOL_SOCKET, SO_BINDTOIFINDEX, 99999), 0);
    GIVES(value_of(fd, SOL_SOCKET, SO_BINDTOIFINDEX), 99999);
    GIVES(connect(client, (void *)&to, sizeof to), 0);
    GIVES(send(client, "text", 4, 0), 4);
    FAILS(take(fd), EAGAIN);
    FAILS(send(client, "text", 4, 0), ECONNREFUSED);
    FAILS(sendto(fd, "text", 4, 0, (void *)&to, sizeof to), ENODEV);
    GIVES(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "", 0), 0);
    GIVES(value_of(fd, SOL_SOCKET, SO_BINDTOIFINDEX), 0);
    GIVES(send(client, "text", 4, 0), 4);
    GIVES(take(fd), 4);
    close(fd), close(client);

    // Two listeners at one port, of different interfaces.
    int server = socket(AF_INET, SOCK_STREAM, 0), other = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_port = 0;
    GIVES(set(server, SOL_SOCKET, SO_BINDTOIFINDEX, 99999), 0);
    GIVES(bind(server, (void *)&to, sizeof to), 0);
    GIVES(getsockname(server, (void *)&to, &length), 0);
    GIVES(listen(server, 1), 0);
    client = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(connect(client, (void *)&to, sizeof to), ECONNREFUSED);
    close(client), client = socket(AF_INET, SOCK_STREAM, 0);
    FAILS(bind(other, (void *)&to, sizeof to), EADDRINUSE);
    GIVES(set(other, SOL_SOCKET, SO_BINDTOIFINDEX, LOOPBACK), 0);
    GIVES(bind(other, (void *)&to, sizeof to), 0);
    GIVES(listen(other, 1), 0);
    GIVES(connect(client, (void *)&to, sizeof to), 0);
    int accepted = accept(other, NULL, NULL);
    GIVES(value_of(accepted, SOL_SOCKET, SO_BINDTOIFINDEX), LOOPBACK);
    close(accepted), close(client), close(server), close(other);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    ipv4();
    ipv6();
    devices();
    return finish("groups");
}
