// Sockets that a snapshot keeps, and those that it ends. The program reads a line of standard input, where the
// snapshot is made: "kept WORD" if the VM has its network still, "new WORD" if it has another one. Then
// it serves with WORD until a client says "quit".
// With the argument "count", it answers each text of a client with the number of texts so far and the text.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("line %d: %s: %s\n", __LINE__, #condition, strerror(errno));                    \
            exit(99);                                                                              \
        }                                                                                          \
    } while (0)

enum { TCP = 7000, UDP = 7001, INSIDE = 7002 };

static struct sockaddr_in at(const char *address, int port) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(port)};
    CHECK(inet_pton(AF_INET, address, &there.sin_addr) == 1);
    return there;
}

static int listening(const char *address, int port) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in there = at(address, port);
    CHECK(bind(listener, (void *)&there, sizeof there) == 0);
    CHECK(listen(listener, 16) == 0);
    return listener;
}

static int connected(const char *address, int port) {
    int one = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in there = at(address, port);
    CHECK(connect(one, (void *)&there, sizeof there) == 0);
    return one;
}

// Waits for an event of a descriptor.
static void wait_for(int descriptor) {
    struct pollfd entry = {.fd = descriptor, .events = POLLIN};
    CHECK(poll(&entry, 1, -1) == 1);
}

// Checks that bytes sent at one end arrive at the other one.
static void passes(int from, int to) {
    char byte = 0;
    CHECK(write(from, "x", 1) == 1);
    CHECK(read(to, &byte, 1) == 1 && byte == 'x');
}

// Checks a connection to the outside that has ended.
static void is_reset(int outside, int poller) {
    struct epoll_event event;
    CHECK(epoll_wait(poller, &event, 1, -1) == 1);
    CHECK((event.events & (EPOLLERR | EPOLLHUP)) == (EPOLLERR | EPOLLHUP));
    char byte;
    CHECK(read(outside, &byte, 1) == -1 && errno == ECONNRESET);
    CHECK(read(outside, &byte, 1) == 0);
    CHECK(write(outside, "x", 1) == -1 && errno == EPIPE);
}

// Answers a client. Result: whether it says that it was the last one.
static int answer(int listener, const char *word) {
    int client = accept4(listener, NULL, NULL, 0);
    if (client < 0)
        return 0;
    char text[16] = {0};
    ssize_t length = read(client, text, sizeof text - 1);
    if (length > 0)
        CHECK(write(client, word, strlen(word)) == (ssize_t)strlen(word));
    close(client);
    return length > 0 && strcmp(text, "quit") == 0;
}

// Serves any number of clients. A client that is reset is forgotten.
static void count_texts(void) {
    enum { MOST = 64 };
    struct pollfd entries[MOST] = {{.fd = listening("0.0.0.0", TCP), .events = POLLIN}};
    int used = 1, texts = 0;
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        CHECK(poll(entries, used, -1) >= 1);
        for (int at = used - 1; at > 0; at--) {
            char text[64] = {0}, answer[96];
            if (!entries[at].revents)
                continue;
            ssize_t length = read(entries[at].fd, text, sizeof text - 1);
            int sent = length > 0 ? sprintf(answer, "%d %s", ++texts, text) : 0;
            if (length <= 0 || write(entries[at].fd, answer, sent) != sent) {
                close(entries[at].fd);
                entries[at] = entries[--used];
            }
        }
        int client = entries[0].revents && used < MOST ? accept(entries[0].fd, NULL, NULL) : -1;
        if (client >= 0)
            entries[used++] = (struct pollfd){.fd = client, .events = POLLIN};
    }
}

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    if (count > 1 && strcmp(arguments[1], "count") == 0)
        count_texts();
    int listener = listening("0.0.0.0", TCP);
    int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in here = at("0.0.0.0", UDP);
    CHECK(bind(datagrams, (void *)&here, sizeof here) == 0);
    int own = listening("127.0.0.1", INSIDE);
    int near = connected("127.0.0.1", INSIDE);
    wait_for(own);
    int far = accept(own, NULL, NULL);
    CHECK(far >= 0);
    int outside = -1, poller = epoll_create1(0);
    // A client that nobody accepts, if there is an outside.
    if (count > 2) {
        outside = connected(arguments[1], atoi(arguments[2]));
        CHECK(write(outside, "before", 6) == 6);
        struct epoll_event event = {.events = EPOLLIN};
        CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, outside, &event) == 0);
        wait_for(listener);
    }
    printf("before\n");
    fflush(stdout);
    char line[64], how[64], word[64];
    CHECK(fgets(line, sizeof line, stdin) && sscanf(line, "%63s %63s", how, word) == 2);
    passes(near, far);
    passes(far, near);
    if (outside >= 0 && strcmp(how, "new") == 0) {
        is_reset(outside, poller);
        CHECK(accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
        close(outside);
    } else if (outside >= 0) {
        char text[8] = {0};
        CHECK(write(outside, "after", 5) == 5);
        CHECK(read(outside, text, sizeof text) == 2 && strcmp(text, "ok") == 0);
        CHECK(answer(listener, word) == 0);
    }
    printf("after %s\n", word);
    fflush(stdout);
    for (int is_last = 0; !is_last;) {
        struct pollfd entries[] = {{.fd = listener, .events = POLLIN},
                                   {.fd = datagrams, .events = POLLIN}};
        CHECK(poll(entries, 2, -1) >= 1);
        if (entries[0].revents)
            is_last = answer(listener, word);
        if (entries[1].revents) {
            char text[16];
            struct sockaddr_in from;
            socklen_t length = sizeof from;
            CHECK(recvfrom(datagrams, text, sizeof text, 0, (void *)&from, &length) > 0);
            CHECK(sendto(datagrams, word, strlen(word), 0, (void *)&from, length) > 0);
        }
    }
    return 7;
}
