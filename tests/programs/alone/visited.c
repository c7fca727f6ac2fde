// An HTTP server for `hartline serve`: each request does something that a later one may find.
//
//     visited PORT
//
// GET /count       the number of requests so far
// GET /keep/WORD   keeps a word in memory and in a file, and answers what was kept before
// GET /random      random bytes, and a random id of the kernel
// GET /dirty/N     writes N MiB of memory and maps as many anew, leaves a child and a thread that write on
// GET /crash       ends by a signal
// GET /exit        ends
// GET /loop        answers never
// GET /big/N       N KiB
// GET /time        CLOCK_MONOTONIC in ms
// GET /out/WORD    prints a word
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static unsigned requests;
static char kept[64] = "nothing";

static void respond(int client, const char *text, size_t length) {
    char head[128];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n", length);
    if (write(client, head, n) != n)
        return;
    for (size_t done = 0; done < length;) {
        ssize_t count = write(client, text + done, length - done);
        if (count <= 0)
            return;
        done += count;
    }
}

static void say(int client, const char *text) {
    respond(client, text, strlen(text));
}

static void *scribble(void *area) {
    volatile char *byte = area;
    for (;;) {
        (*byte)++;
        usleep(1000);
    }
    return NULL;
}

static void dirty(long mebibytes) {
    size_t length = mebibytes << 20;
    memset(malloc(length), 7, length);
    char *mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < length; at += 4096)
        mapped[at] = 1;
    mprotect(mapped, length / 2, PROT_READ);
    if (fork() == 0)
        scribble(malloc(1));
    pthread_t thread;
    pthread_create(&thread, NULL, scribble, malloc(1));
}

static void keep(int client, const char *word) {
    char text[256], file[64] = "nothing";
    int fd = open("/tmp/kept", O_RDWR | O_CREAT, 0600);
    ssize_t length = read(fd, file, sizeof file - 1);
    if (length > 0)
        file[length] = 0;
    snprintf(text, sizeof text, "%s %s", kept, file);
    snprintf(kept, sizeof kept, "%s", word);
    if (ftruncate(fd, 0) || pwrite(fd, word, strlen(word), 0) < 0)
        perror("/tmp/kept");
    close(fd);
    say(client, text);
}

static void numbers(int client) {
    unsigned char bytes[16];
    char text[128] = "", id[64] = "";
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        abort();
    for (size_t n = 0; n < sizeof bytes; n++)
        sprintf(text + 2 * n, "%02x", bytes[n]);
    int fd = open("/proc/sys/kernel/random/uuid", O_RDONLY);
    if (read(fd, id, 36) != 36)
        abort();
    close(fd);
    strcat(strcat(text, " "), id);
    say(client, text);
}

static void serve(int client) {
    char request[2048], path[64] = "", text[64];
    size_t length = 0;
    while (!memmem(request, length, "\r\n\r\n", 4) && length < sizeof request - 1) {
        ssize_t count = read(client, request + length, sizeof request - 1 - length);
        if (count <= 0)
            return;
        length += count;
    }
    request[length] = 0;
    sscanf(request, "GET %63s", path);
    long number = strrchr(path, '/') ? atol(strrchr(path, '/') + 1) : 0;
    requests++;
    if (!strcmp(path, "/count")) {
        snprintf(text, sizeof text, "%u", requests);
        say(client, text);
    } else if (!strncmp(path, "/keep/", 6)) {
        keep(client, path + 6);
    } else if (!strcmp(path, "/random")) {
        numbers(client);
    } else if (!strncmp(path, "/dirty/", 7)) {
        dirty(number);
        say(client, "dirty");
    } else if (!strcmp(path, "/crash")) {
        abort();
    } else if (!strcmp(path, "/exit")) {
        exit(3);
    } else if (!strcmp(path, "/loop")) {
        for (volatile int n = 0;; n++) {
        }
    } else if (!strncmp(path, "/big/", 5)) {
        char *big = malloc(number << 10);
        memset(big, 'x', number << 10);
        respond(client, big, number << 10);
        free(big);
    } else if (!strcmp(path, "/time")) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        snprintf(text, sizeof text, "%ld", now.tv_sec * 1000 + now.tv_nsec / 1000000);
        say(client, text);
    } else if (!strncmp(path, "/out/", 5)) {
        printf("%s\n", path + 5);
        fflush(stdout);
        say(client, "printed");
    } else {
        say(client, "?");
    }
}

int main(int argc, char **argv) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(argc > 1 ? atoi(argv[1]) : 8080),
                                  .sin_addr.s_addr = htonl(INADDR_ANY)};
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64)) {
        perror("visited");
        return 1;
    }
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0) {
            perror("accept");
            return 1;
        }
        serve(client);
        close(client);
    }
}
