// Network interfaces: requests, netlink, /proc/net.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

static char text[1 << 18];

static long contents(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) return -errno;
    long length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    return length;
}

static void requests(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq request = {.ifr_name = "lo"};
    GIVES(ioctl(fd, SIOCGIFINDEX, &request), 0);
    int index = request.ifr_ifindex;
    CHECK(index > 0);
    GIVES(ioctl(fd, SIOCGIFFLAGS, &request), 0);
    GIVES(request.ifr_flags & (IFF_UP | IFF_LOOPBACK | IFF_RUNNING | IFF_BROADCAST),
          IFF_UP | IFF_LOOPBACK | IFF_RUNNING);
    GIVES(ioctl(fd, SIOCGIFMTU, &request), 0);
    GIVES(request.ifr_mtu, 65536);
    GIVES(ioctl(fd, SIOCGIFADDR, &request), 0);
    struct sockaddr_in *address = (void *)&request.ifr_addr;
    GIVES(address->sin_family, AF_INET);
    GIVES(ntohl(address->sin_addr.s_addr), INADDR_LOOPBACK);
    GIVES(ioctl(fd, SIOCGIFNETMASK, &request), 0);
    GIVES(ntohl(address->sin_addr.s_addr), 0xff000000);
    GIVES(ioctl(fd, SIOCGIFHWADDR, &request), 0);
    GIVES(request.ifr_hwaddr.sa_family, 772);
    memset(&request, 0, sizeof request);
    request.ifr_ifindex = index;
    GIVES(ioctl(fd, SIOCGIFNAME, &request), 0);
    GIVES(strcmp(request.ifr_name, "lo"), 0);
    request.ifr_ifindex = 99999;
    FAILS(ioctl(fd, SIOCGIFNAME, &request), ENODEV);
    strcpy(request.ifr_name, "none");
    FAILS(ioctl(fd, SIOCGIFADDR, &request), ENODEV);
    FAILS(ioctl(fd, SIOCGIFADDR, (void *)8), EFAULT);
    FAILS(ioctl(fd, SIOCGIFCONF, (void *)8), EFAULT);
    struct ifconf list = {0};
    GIVES(ioctl(fd, SIOCGIFCONF, &list), 0);
    CHECK(list.ifc_len >= (int)sizeof request && list.ifc_len % sizeof request == 0);
    struct ifreq some[8];
    list.ifc_len = sizeof some, list.ifc_req = some;
    GIVES(ioctl(fd, SIOCGIFCONF, &list), 0);
    int found = 0;
    for (unsigned i = 0; i < list.ifc_len / sizeof request; i++)
        found += !strcmp(some[i].ifr_name, "lo");
    GIVES(found, 1);
    list.ifc_len = sizeof request - 1;
    GIVES(ioctl(fd, SIOCGIFCONF, &list), 0);
    GIVES(list.ifc_len, 0);
    close(fd);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strcpy(request.ifr_name, "lo");
    GIVES(ioctl(fd, SIOCGIFINDEX, &request), 0);
    GIVES(request.ifr_ifindex, index);
    close(fd);
    GIVES(if_nametoindex("lo"), index);
}

static void addresses(void) {
    struct ifaddrs *all, *one;
    GIVES(getifaddrs(&all), 0);
    int links = 0, v4 = 0;
    for (one = all; one; one = one->ifa_next) {
        if (strcmp(one->ifa_name, "lo") || !one->ifa_addr) continue;
        CHECK(one->ifa_flags & IFF_LOOPBACK);
        if (one->ifa_addr->sa_family == AF_PACKET) links++;
        if (one->ifa_addr->sa_family != AF_INET) continue;
        const struct sockaddr_in *own = (void *)one->ifa_addr, *mask = (void *)one->ifa_netmask;
        v4 += ntohl(own->sin_addr.s_addr) == INADDR_LOOPBACK;
        GIVES(ntohl(mask->sin_addr.s_addr), 0xff000000);
    }
    GIVES(links, 1);
    GIVES(v4, 1);
    freeifaddrs(all);
}

static struct {
    struct nlmsghdr head;
    union {
        struct ifinfomsg link;
        struct rtgenmsg any;
    };
    char attributes[64];
} question;

// Sends a request; the result is the type of the answer's first message.
static int ask(int fd, int kind, int flags, size_t body) {
    question.head.nlmsg_len = NLMSG_LENGTH(body);
    question.head.nlmsg_type = kind;
    question.head.nlmsg_flags = NLM_F_REQUEST | flags;
    question.head.nlmsg_seq++;
    if (send(fd, &question, question.head.nlmsg_len, 0) < 0) return -1;
    struct sockaddr_nl from;
    socklen_t length = sizeof from;
    ssize_t got = recvfrom(fd, text, sizeof text, 0, (void *)&from, &length);
    const struct nlmsghdr *head = (void *)text;
    CHECK(got >= NLMSG_HDRLEN && NLMSG_OK(head, got));
    GIVES(head->nlmsg_seq, question.head.nlmsg_seq);
    GIVES(from.nl_family, AF_NETLINK);
    GIVES(from.nl_pid, 0);
    return head->nlmsg_type;
}

// The error in an error message.
static int error(void) { return -((struct nlmsgerr *)NLMSG_DATA(text))->error; }

static void netlink(void) {
    FAILS(socket(AF_NETLINK, SOCK_STREAM, NETLINK_ROUTE), ESOCKTNOSUPPORT);
    FAILS(socket(AF_NETLINK, SOCK_RAW, 99), EPROTONOSUPPORT);
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    CHECK(fd >= 0);
    int value = 0;
    socklen_t size = sizeof value;
    GIVES(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &size), 0);
    GIVES(value, SOCK_RAW);
    GIVES(getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &value, &size), 0);
    GIVES(value, AF_NETLINK);
    struct sockaddr_nl own = {.nl_family = AF_NETLINK};
    GIVES(bind(fd, (void *)&own, sizeof own), 0);
    socklen_t length = sizeof own;
    GIVES(getsockname(fd, (void *)&own, &length), 0);
    GIVES(length, sizeof own);
    CHECK(own.nl_pid != 0);
    int other = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE);
    FAILS(bind(other, (void *)&own, sizeof own), EADDRINUSE);
    FAILS(bind(other, (void *)&own, 4), EINVAL);
    close(other);
    FAILS(listen(fd, 1), EOPNOTSUPP);
    FAILS(recv(fd, text, sizeof text, MSG_DONTWAIT), EAGAIN);
    struct pollfd ready = {.fd = fd, .events = POLLIN | POLLOUT};
    GIVES(poll(&ready, 1, 0), 1);
    GIVES(ready.revents, POLLOUT);

    question.link.ifi_index = if_nametoindex("lo");
    GIVES(ask(fd, RTM_GETLINK, 0, sizeof question.link), RTM_NEWLINK);
    const struct ifinfomsg *link = NLMSG_DATA(text);
    GIVES(link->ifi_index, question.link.ifi_index);
    CHECK(link->ifi_flags & IFF_LOOPBACK);
    question.link.ifi_index = 99999;
    GIVES(ask(fd, RTM_GETLINK, 0, sizeof question.link), NLMSG_ERROR);
    GIVES(error(), ENODEV);
    memset(&question.link, 0, sizeof question.link);
    GIVES(ask(fd, RTM_GETLINK, NLM_F_DUMP, sizeof question.link), RTM_NEWLINK);
    // The messages before the end of the list.
    while (recv(fd, text, sizeof text, MSG_DONTWAIT) > 0) {}
    question.any.rtgen_family = AF_INET;
    GIVES(ask(fd, RTM_GETADDR, NLM_F_DUMP, sizeof question.any), RTM_NEWADDR);
    const struct ifaddrmsg *address = NLMSG_DATA(text);
    GIVES(address->ifa_family, AF_INET);
    while (recv(fd, text, sizeof text, MSG_DONTWAIT) > 0) {}
    close(fd);
}

// Multicast groups, and the routes of the table `local`.
static void groups(void) {
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    struct sockaddr_nl own = {.nl_family = AF_NETLINK,
                              .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR};
    GIVES(bind(fd, (void *)&own, sizeof own), 0);
    socklen_t length = sizeof own;
    GIVES(getsockname(fd, (void *)&own, &length), 0);
    GIVES(own.nl_groups, RTMGRP_LINK | RTMGRP_IPV4_IFADDR);
    int group = RTNLGRP_IPV4_ROUTE;
    GIVES(setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group), 0);
    group = RTNLGRP_LINK;
    GIVES(setsockopt(fd, SOL_NETLINK, NETLINK_DROP_MEMBERSHIP, &group, sizeof group), 0);
    GIVES(getsockname(fd, (void *)&own, &length), 0);
    GIVES(own.nl_groups, RTMGRP_IPV4_ROUTE | RTMGRP_IPV4_IFADDR);
    group = 9999;
    FAILS(setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group), EINVAL);
    close(fd);

    fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    int on = 1, found = 0;
    GIVES(setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on, sizeof on), 0);
    struct {
        struct nlmsghdr head;
        struct rtmsg route;
    } request = {
        .head = {.nlmsg_len = sizeof request,
                 .nlmsg_type = RTM_GETROUTE,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .route = {.rtm_family = AF_INET, .rtm_table = RT_TABLE_LOCAL},
    };
    GIVES(send(fd, &request, sizeof request, 0), sizeof request);
    for (int done = 0; !done;) {
        ssize_t got = recv(fd, text, sizeof text, 0);
        if (!CHECK(got > 0)) break;
        for (struct nlmsghdr *head = (void *)text; NLMSG_OK(head, got);
             head = NLMSG_NEXT(head, got)) {
            done |= head->nlmsg_type == NLMSG_DONE || head->nlmsg_type == NLMSG_ERROR;
            if (head->nlmsg_type != RTM_NEWROUTE) continue;
            const struct rtmsg *route = NLMSG_DATA(head);
            GIVES(route->rtm_table, RT_TABLE_LOCAL);
            const struct rtattr *first = RTM_RTA(route);
            int left = RTM_PAYLOAD(head);
            for (; RTA_OK(first, left); first = RTA_NEXT(first, left))
                if (first->rta_type == RTA_DST && route->rtm_type == RTN_LOCAL &&
                    *(uint32_t *)RTA_DATA(first) == htonl(INADDR_LOOPBACK)) {
                    GIVES(route->rtm_scope, RT_SCOPE_HOST);
                    found++;
                }
        }
    }
    GIVES(found, 1);
    close(fd);
}

static void shown(void) {
    static const struct {
        const char *path, *part;
    } files[] = {
        {"/proc/net/dev", "    lo:"},
        {"/proc/net/tcp", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when "},
        {"/proc/net/udp", "inode ref pointer drops"},
        {"/proc/net/route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU"},
        {"/proc/net/unix", "Num       RefCount Protocol Flags    Type St Inode Path\n"},
        {"/proc/self/net/tcp", "local_address"},
    };
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        CHECK(contents(files[i].path) > 0);
        CHECK(strstr(text, files[i].part) != NULL);
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof any;
    GIVES(bind(fd, (void *)&any, sizeof any), 0);
    GIVES(listen(fd, 5), 0);
    GIVES(getsockname(fd, (void *)&any, &length), 0);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    GIVES(connect(client, (void *)&any, sizeof any), 0);
    char wanted[64];
    snprintf(wanted, sizeof wanted, ": 0100007F:%04X 00000000:0000 0A ", ntohs(any.sin_port));
    CHECK(contents("/proc/net/tcp") > 0 && strstr(text, wanted));
    snprintf(wanted, sizeof wanted, " 0100007F:%04X 01 ", ntohs(any.sin_port));
    CHECK(strstr(text, wanted) != NULL);
    // Every line has the length of the first.
    long width = strchr(text, '\n') - text;
    GIVES(strlen(text) % (width + 1), 0);
    any.sin_port = 0;
    GIVES(bind(udp, (void *)&any, sizeof any), 0);
    GIVES(getsockname(udp, (void *)&any, &length), 0);
    snprintf(wanted, sizeof wanted, ": 0100007F:%04X 00000000:0000 07 ", ntohs(any.sin_port));
    CHECK(contents("/proc/net/udp") > 0 && strstr(text, wanted));
    close(fd), close(udp), close(client);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "listener"};
    GIVES(bind(fd, (void *)&name, sizeof name), 0);
    GIVES(listen(fd, 1), 0);
    CHECK(contents("/proc/net/unix") > 0 && strstr(text, " 00010000 0001 01 "));
    CHECK(strstr(text, " listener\n") != NULL);
    close(fd);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    requests();
    addresses();
    netlink();
    groups();
    shown();
    return finish("network");
}
