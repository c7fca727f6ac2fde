// Sockets: Unix sockets of all types, TCP and UDP over loopback, their data, their end,
// options, and errors of bad calls.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t broken;

static void on_pipe(int signal) { broken = signal; }

static void show(const char *what, long result) {
    printf("%s: %ld%s%s\n", what, result, result < 0 ? " " : "", result < 0 ? strerrorname_np(errno) : "");
}

static int ready(int fd, int events) {
    struct pollfd poll_fd = {fd, events, 0};
    poll(&poll_fd, 1, 0);
    return poll_fd.revents;
}

static void pairs(void) {
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 3; i++) {
        int s[2];
        char buffer[100];
        show("socketpair", socketpair(AF_UNIX, types[i] | SOCK_CLOEXEC, 0, s));
        show("write", write(s[0], "one", 3));
        show("write", write(s[0], "second", 6));
        show("peek", recv(s[1], buffer, 2, MSG_PEEK | MSG_TRUNC));
        int waiting;
        ioctl(s[1], FIONREAD, &waiting);
        show("waiting", waiting);
        show("read", read(s[1], buffer, 2));
        show("read", read(s[1], buffer, 50));
        show("nothing", recv(s[1], buffer, 50, MSG_DONTWAIT));
        printf("ready %x %x\n", ready(s[0], POLLIN | POLLOUT | POLLRDHUP), ready(s[1], POLLIN | POLLOUT));
        show("send", send(s[1], "back", 4, MSG_NOSIGNAL));
        printf("ready %x\n", ready(s[0], POLLIN | POLLOUT));
        show("recv", recv(s[0], buffer, 50, 0));
        show("shutdown", shutdown(s[0], SHUT_WR));
        if (types[i] != SOCK_DGRAM) {
            show("read", read(s[1], buffer, 50));
            printf("ready %x\n", ready(s[1], POLLIN | POLLOUT | POLLRDHUP));
        }
        show("write", send(s[0], "x", 1, MSG_NOSIGNAL));
        close(s[1]);
        printf("ready %x\n", ready(s[0], POLLIN | POLLOUT | POLLRDHUP));
        broken = 0;
        show("write", write(s[0], "x", 1));
        printf("signal %d\n", broken);
        close(s[0]);
    }
}

// A descriptor and credentials.
static void passing(void) {
    int s[2], pipe_fds[2], on = 1;
    socketpair(AF_UNIX, SOCK_STREAM, 0, s);
    setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    if (pipe(pipe_fds)) return;
    char text[] = "text", control[256];
    struct iovec vector = {text, 4};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &pipe_fds[1], sizeof(int));
    show("plain", send(s[0], "plain", 5, 0));
    show("sendmsg", sendmsg(s[0], &message, 0));
    show("plain", send(s[0], "after", 5, 0));
    close(pipe_fds[1]);
    char in[100];
    vector = (struct iovec){in, sizeof in};
    for (int i = 0; i < 3; i++) {
        message.msg_controllen = sizeof control;
        long result = recvmsg(s[1], &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        show("recvmsg", result);
        if (result < 0) break;
        for (header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
            printf("control %d %zu\n", header->cmsg_type, (size_t)header->cmsg_len);
            if (header->cmsg_type == SCM_RIGHTS) {
                int fd;
                memcpy(&fd, CMSG_DATA(header), sizeof fd);
                printf("cloexec %d\n", fcntl(fd, F_GETFD));
                show("through", write(fd, "through", 7));
                close(fd);
            } else {
                struct ucred who;
                memcpy(&who, CMSG_DATA(header), sizeof who);
                printf("who %d %d %d\n", who.pid == getpid(), who.uid == getuid(), who.gid == getgid());
            }
        }
    }
    show("read", read(pipe_fds[0], in, sizeof in));
    show("end", read(pipe_fds[0], in, sizeof in));
    struct ucred who;
    socklen_t length = sizeof who;
    show("peer", getsockopt(s[0], SOL_SOCKET, SO_PEERCRED, &who, &length));
    printf("peer %d %d\n", who.pid == getpid(), who.uid == getuid());
    // A descriptor that is not received is closed with the socket.
    if (pipe(pipe_fds)) return;
    message = (struct msghdr){.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(sizeof(int))};
    vector.iov_len = 1;
    header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(header), &pipe_fds[1], sizeof(int));
    show("sendmsg", sendmsg(s[0], &message, 0));
    close(pipe_fds[1]);
    close(s[1]);
    show("end", read(pipe_fds[0], in, sizeof in));
    close(s[0]);
    close(pipe_fds[0]);
}

static socklen_t unix_address(struct sockaddr_un *address, const char *name, int is_abstract) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    strcpy(address->sun_path + is_abstract, name);
    return offsetof(struct sockaddr_un, sun_path) + strlen(name) + 1;
}

static void names(void) {
    char path[64], abstract[64], buffer[100];
    snprintf(path, sizeof path, "/tmp/socket-%d", getpid());
    snprintf(abstract, sizeof abstract, "socket-%d", getpid());
    for (int is_abstract = 0; is_abstract < 2; is_abstract++) {
        struct sockaddr_un address, other;
        socklen_t length = unix_address(&address, is_abstract ? abstract : path, is_abstract);
        int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
        printf("ready %x\n", ready(client, POLLIN | POLLOUT));
        show("unbound listen", listen(listener, 1));
        show("connect", connect(client, (void *)&address, length));
        show("bind", bind(listener, (void *)&address, length));
        show("bind again", bind(client, (void *)&address, length));
        show("connect", connect(client, (void *)&address, length));
        show("listen", listen(listener, 1));
        show("connect", connect(client, (void *)&address, length));
        show("again", connect(client, (void *)&address, length));
        printf("ready %x\n", ready(listener, POLLIN | POLLOUT));
        socklen_t got = sizeof other;
        int server = accept4(listener, (void *)&other, &got, SOCK_NONBLOCK);
        printf("accepted %d %d flags %x\n", server > 0, (int)got, fcntl(server, F_GETFL) & O_NONBLOCK);
        show("nothing", read(server, buffer, 1));
        got = sizeof other;
        show("peer", getpeername(client, (void *)&other, &got));
        printf("%d %d\n", got == length, memcmp(&other, &address, length));
        show("send", write(client, "hello", 5));
        close(client);
        show("recv", read(server, buffer, 100));
        show("end", read(server, buffer, 100));
        show("write", write(server, "x", 1));
        close(server);
        close(listener);
        client = socket(AF_UNIX, SOCK_STREAM, 0);
        show("closed", connect(client, (void *)&address, length));
        close(client);
        if (!is_abstract) show("unlink", unlink(path));
        // Datagrams by name.
        int one = socket(AF_UNIX, SOCK_DGRAM, 0), two = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        show("bind", bind(one, (void *)&address, length));
        show("sendto", sendto(two, "first", 5, 0, (void *)&address, length));
        show("connect", connect(two, (void *)&address, length));
        int sent = 0;
        while (sent < 100 && send(two, "more", 4, 0) == 4) sent++;
        printf("sent %d %s ready %x\n", sent, strerrorname_np(errno), ready(two, POLLOUT));
        got = sizeof other;
        show("recvfrom", recvfrom(one, buffer, 100, 0, (void *)&other, &got));
        printf("from %d\n", got);
        close(one);
        show("send", send(two, "more", 4, 0));
        close(two);
        if (!is_abstract) unlink(path);
    }
}

static int tcp_listener(int family, struct sockaddr_storage *address, socklen_t *length) {
    int fd = socket(family, SOCK_STREAM, 0);
    memset(address, 0, sizeof *address);
    address->ss_family = family;
    if (family == AF_INET) {
        ((struct sockaddr_in *)address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        *length = sizeof(struct sockaddr_in);
    } else {
        ((struct sockaddr_in6 *)address)->sin6_addr = in6addr_any;
        *length = sizeof(struct sockaddr_in6);
    }
    show("bind", bind(fd, (void *)address, *length));
    show("listen", listen(fd, 5));
    show("name", getsockname(fd, (void *)address, length));
    return fd;
}

static void *echo(void *argument) {
    int listener = *(int *)argument;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) return NULL;
        char buffer[5000];
        long count, total = 0;
        while ((count = read(fd, buffer, sizeof buffer)) > 0) {
            total += count;
            for (long at = 0; at < count;) {
                long done = write(fd, buffer + at, count - at);
                if (done <= 0) break;
                at += done;
            }
        }
        close(fd);
        if (total == 0) return NULL;
    }
}

static void *fill(void *argument) {
    static char block[100000];
    int fd = *(int *)argument;
    for (size_t i = 0; i < sizeof block; i++) block[i] = i * 7;
    for (int i = 0; i < 50; i++)
        if (send(fd, block, sizeof block, 0) != sizeof block) perror("send");
    shutdown(fd, SHUT_WR);
    return NULL;
}

static void tcp(int family) {
    struct sockaddr_storage address;
    socklen_t length;
    int listener = tcp_listener(family, &address, &length);
    pthread_t server, writer;
    pthread_create(&server, NULL, echo, &listener);
    int fd = socket(family, SOCK_STREAM, 0), on = 1;
    printf("ready %x\n", ready(fd, POLLIN | POLLOUT));
    show("early", send(fd, "x", 1, MSG_NOSIGNAL));
    show("nodelay", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    show("connect", connect(fd, (void *)&address, length));
    pthread_create(&writer, NULL, fill, &fd);
    static char in[70000];
    long total = 0, count, wrong = 0;
    while ((count = recv(fd, in, sizeof in, MSG_WAITALL)) > 0) {
        for (long i = 0; i < count; i++) wrong += in[i] != (char)((total + i) % 100000 * 7);
        total += count;
    }
    printf("echoed %ld wrong %ld last %ld\n", total, wrong, count);
    pthread_join(writer, NULL);
    close(fd);
    fd = socket(family, SOCK_STREAM, 0);
    show("connect", connect(fd, (void *)&address, length));
    close(fd);
    pthread_join(server, NULL);
    // Nonblocking.
    fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    show("connect", connect(fd, (void *)&address, length));
    struct pollfd poll_fd = {fd, POLLOUT, 0};
    show("poll", poll(&poll_fd, 1, 1000));
    int error = -1;
    socklen_t size = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    printf("revents %x error %d\n", poll_fd.revents, error);
    show("connect", connect(fd, (void *)&address, length));
    show("connect", connect(fd, (void *)&address, length));
    struct sockaddr_storage from, peer;
    socklen_t from_length = sizeof from, peer_length = sizeof peer;
    int accepted = accept(listener, (void *)&from, &from_length);
    getsockname(fd, (void *)&peer, &peer_length);
    printf("same %d %d\n", from_length == peer_length, memcmp(&from, &peer, from_length));
    // A close with unread bytes resets the connection.
    show("send", send(fd, "unread", 6, 0));
    usleep(10000);
    close(accepted);
    usleep(10000);
    printf("reset %x\n", ready(fd, POLLIN | POLLOUT | POLLRDHUP));
    show("read", read(fd, in, 10));
    show("read", read(fd, in, 10));
    show("send", send(fd, "x", 1, MSG_NOSIGNAL));
    close(fd);
    // An orderly close: a write after it breaks the connection.
    fd = socket(family, SOCK_STREAM, 0);
    connect(fd, (void *)&address, length);
    accepted = accept(listener, NULL, NULL);
    close(accepted);
    usleep(10000);
    printf("closed %x\n", ready(fd, POLLIN | POLLOUT | POLLRDHUP));
    show("read", read(fd, in, 10));
    show("send", send(fd, "x", 1, MSG_NOSIGNAL));
    usleep(10000);
    show("send", send(fd, "x", 1, MSG_NOSIGNAL));
    close(fd);
    // No socket listens any more.
    int again = socket(family, SOCK_STREAM, 0);
    show("bound twice", bind(again, (void *)&address, length));
    close(again);
    close(listener);
    fd = socket(family, SOCK_STREAM, 0);
    show("refused", connect(fd, (void *)&address, length));
    close(fd);
    fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    show("refused", connect(fd, (void *)&address, length));
    poll_fd = (struct pollfd){fd, POLLOUT, 0};
    show("poll", poll(&poll_fd, 1, 1000));
    printf("revents %x\n", poll_fd.revents);
    show("refused", connect(fd, (void *)&address, length));
    close(fd);
}

static void udp(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}, from;
    socklen_t length = sizeof address;
    int one = socket(AF_INET, SOCK_DGRAM, 0), two = socket(AF_INET, SOCK_DGRAM, 0);
    char buffer[100];
    show("bind", bind(one, (void *)&address, length));
    getsockname(one, (void *)&address, &length);
    show("no destination", send(two, "x", 1, 0));
    show("sendto", sendto(two, "datagram", 8, 0, (void *)&address, length));
    show("empty", sendto(two, "", 0, 0, (void *)&address, length));
    show("cut", recv(one, buffer, 4, MSG_TRUNC));
    socklen_t got = sizeof from;
    show("empty", recvfrom(one, buffer, 100, 0, (void *)&from, &got));
    show("back", sendto(one, "back", 4, 0, (void *)&from, got));
    show("recv", recv(two, buffer, 100, 0));
    struct timeval limit = {0, 20000};
    setsockopt(one, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    show("timeout", recv(one, buffer, 100, 0));
    show("too long", sendto(two, malloc(70000), 70000, 0, (void *)&address, length));
    // Several messages in one call.
    struct mmsghdr messages[4];
    struct iovec vectors[4];
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < 4; i++) {
        vectors[i] = (struct iovec){"abcdef", i + 1};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &vectors[i], .msg_iovlen = 1, .msg_name = &address, .msg_namelen = length};
    }
    show("sendmmsg", sendmmsg(two, messages, 4, 0));
    char in[4][10];
    for (int i = 0; i < 4; i++) {
        vectors[i] = (struct iovec){in[i], 3};
        messages[i].msg_hdr.msg_name = NULL;
    }
    int count = recvmmsg(one, messages, 4, MSG_WAITFORONE, NULL);
    show("recvmmsg", count);
    for (int i = 0; i < count; i++) printf("%u %x\n", messages[i].msg_len, messages[i].msg_hdr.msg_flags);
    // A connected socket gets an error if its peer is missing.
    show("connect", connect(two, (void *)&address, length));
    close(one);
    show("send", send(two, "x", 1, 0));
    usleep(10000);
    show("send", send(two, "x", 1, 0));
    close(two);
    int any = socket(AF_INET6, SOCK_DGRAM, 0);
    struct sockaddr_in6 wildcard = {.sin6_family = AF_INET6}, mapped;
    show("bind", bind(any, (void *)&wildcard, sizeof wildcard));
    got = sizeof wildcard;
    getsockname(any, (void *)&wildcard, &got);
    two = socket(AF_INET, SOCK_DGRAM, 0);
    address.sin_port = wildcard.sin6_port;
    show("mapped", sendto(two, "mapped", 6, 0, (void *)&address, length));
    got = sizeof mapped;
    show("recvfrom", recvfrom(any, buffer, 100, 0, (void *)&mapped, &got));
    char text[INET6_ADDRSTRLEN];
    printf("%s %d\n", inet_ntop(AF_INET6, &mapped.sin6_addr, text, sizeof text), got);
    close(any);
    close(two);
}

static void option(int fd, const char *name, int level, int option, int value) {
    int old = -1, new = -1;
    socklen_t length = sizeof old;
    int get = getsockopt(fd, level, option, &old, &length) ? errno : 0;
    int set = setsockopt(fd, level, option, &value, sizeof value) ? errno : 0;
    getsockopt(fd, level, option, &new, &length);
    printf("%s: %d %d %s, %d %s\n", name, old, length, strerrorname_np(get), new, strerrorname_np(set));
}

#define OPTION(fd, level, name, value) option(fd, #name, level, name, value)

static void options(void) {
    int tcp = socket(AF_INET6, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0), local = socket(AF_UNIX, SOCK_STREAM, 0);
    OPTION(tcp, SOL_SOCKET, SO_REUSEADDR, 7);
    OPTION(tcp, SOL_SOCKET, SO_REUSEPORT, 1);
    OPTION(tcp, SOL_SOCKET, SO_KEEPALIVE, 1);
    OPTION(tcp, SOL_SOCKET, SO_TYPE, 1);
    OPTION(tcp, SOL_SOCKET, SO_DOMAIN, 1);
    OPTION(tcp, SOL_SOCKET, SO_PROTOCOL, 1);
    OPTION(tcp, SOL_SOCKET, SO_ACCEPTCONN, 1);
    OPTION(tcp, SOL_SOCKET, SO_ERROR, 1);
    OPTION(udp, SOL_SOCKET, SO_RCVBUF, 50000);
    OPTION(udp, SOL_SOCKET, SO_SNDBUF, 1);
    OPTION(udp, SOL_SOCKET, SO_BROADCAST, 1);
    OPTION(tcp, IPPROTO_TCP, TCP_NODELAY, 1);
    OPTION(tcp, IPPROTO_TCP, TCP_KEEPIDLE, 60);
    OPTION(tcp, IPPROTO_TCP, TCP_KEEPIDLE, 0);
    OPTION(tcp, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    OPTION(tcp, IPPROTO_TCP, TCP_KEEPCNT, 3);
    OPTION(tcp, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000);
    OPTION(tcp, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    OPTION(udp, IPPROTO_IP, IP_TOS, 16);
    OPTION(udp, IPPROTO_IP, IP_TTL, 3);
    OPTION(udp, IPPROTO_TCP, TCP_NODELAY, 1);
    OPTION(local, IPPROTO_TCP, TCP_NODELAY, 1);
    OPTION(local, SOL_SOCKET, SO_PASSCRED, 1);
    OPTION(tcp, SOL_SOCKET, 9999, 1);
    struct linger linger = {1, 5};
    socklen_t length = sizeof linger;
    show("linger", setsockopt(tcp, SOL_SOCKET, SO_LINGER, &linger, length));
    linger.l_linger = 0;
    getsockopt(tcp, SOL_SOCKET, SO_LINGER, &linger, &length);
    printf("linger %d %d\n", linger.l_onoff, linger.l_linger);
    close(tcp);
    close(udp);
    close(local);
}

static void bad(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(0xc0000201)}, .sin_port = htons(9)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0), pipe_fds[2], pair[2];
    char buffer[10];
    if (pipe(pipe_fds)) return;
    void *nowhere = (void *)8;
    show("family", socket(77, SOCK_STREAM, 0));
    show("type", socket(AF_INET, 15, 0));
    show("type", socket(AF_INET, SOCK_SEQPACKET, 0));
    show("protocol", socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
    show("pair", socketpair(AF_INET, SOCK_STREAM, 0, pair));
    show("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, nowhere));
    show("no socket", bind(pipe_fds[0], (void *)&address, length));
    show("no descriptor", listen(999, 1));
    show("not here", bind(fd, (void *)&address, length));
    show("short", bind(fd, (void *)&address, 3));
    show("long", bind(fd, (void *)&address, 1000));
    show("negative", connect(fd, (void *)&address, -1));
    show("pointer", bind(fd, nowhere, length));
    address.sin_family = AF_INET6;
    show("other family", connect(fd, (void *)&address, length));
    show("accept", accept(fd, NULL, NULL));
    show("peer", getpeername(fd, (void *)&address, &length));
    show("shutdown", shutdown(fd, SHUT_RD));
    show("shutdown", shutdown(fd, 9));
    show("recv", recv(fd, buffer, 10, 0));
    show("option", setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, nowhere, 4));
    show("option", setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, buffer, 2));
    show("option", getsockopt(fd, SOL_SOCKET, SO_TYPE, buffer, nowhere));
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    show("send", send(pair[0], nowhere, 10, 0));
    show("send", send(pair[0], "text", 4, 0));
    show("recv", recv(pair[1], nowhere, 10, 0));
    show("recv", recv(pair[1], buffer, 10, MSG_OOB));
    show("recv", recv(pair[1], buffer, 10, 0));
    show("message", sendmsg(pair[0], nowhere, 0));
    struct iovec vector = {nowhere, 5};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 5000};
    show("vectors", sendmsg(pair[0], &message, 0));
    message.msg_iovlen = 1;
    show("vectors", sendmsg(pair[0], &message, 0));
    vector.iov_len = -1;
    show("vectors", sendmsg(pair[0], &message, 0));
    vector = (struct iovec){buffer, 5};
    char control[64] = {0};
    message = (struct msghdr){.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memset(CMSG_DATA(header), 0x7f, sizeof(int));
    show("rights", sendmsg(pair[0], &message, 0));
    show("seek", lseek(fd, 0, SEEK_SET));
    show("pread", pread(fd, buffer, 1, 0));
}

int main(void) {
    signal(SIGPIPE, on_pipe);
    pairs();
    passing();
    names();
    tcp(AF_INET);
    tcp(AF_INET6);
    udp();
    options();
    bad();
    return 0;
}
