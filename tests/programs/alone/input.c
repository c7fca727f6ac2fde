// Waits for standard input in every way, and reads it byte by byte.
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>


static void take(const char *how, int ready) {
    char byte = 0;
    long got = read(0, &byte, 1);
    printf("%s: %d, %ld byte%s%.1s\n", how, ready, got, got == 1 ? " " : "s", got == 1 ? &byte : "");
    fflush(stdout);
}

int main(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    take("poll", poll(&input, 1, -1));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(0, &set);
    take("select", select(1, &set, NULL, NULL, NULL));
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &event) == 0)
        take("epoll", epoll_wait(epoll, &event, 1, -1));
    else
        take("a file", poll(&input, 1, -1));
    struct timespec time = {.tv_sec = 100};
    take("ppoll", ppoll(&input, 1, &time, NULL));
    take("read", 1);
    input.revents = 0;
    take("end", poll(&input, 1, -1));
    return 0;
}
