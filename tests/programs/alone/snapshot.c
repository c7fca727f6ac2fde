// State that a snapshot keeps: memory, registers, tasks, files, timers and signals. The program reads
// standard input once, where the snapshot is made, and checks everything afterwards.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("line %d: %s: %s\n", __LINE__, #condition, strerror(errno));                    \
            exit(99);                                                                              \
        }                                                                                          \
    } while (0)

enum { WORDS = 1 << 19 };

static volatile sig_atomic_t alarms, users;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int told;
static __thread int own = 5;

// The rounding mode of `frm`. The C library has its functions in another library.
enum { UPWARD = 3 };

static void set_rounding(unsigned long mode) {
    __asm__ volatile("fsrm %0" : : "r"(mode));
}

static unsigned long rounding(void) {
    unsigned long mode;
    __asm__ volatile("frrm %0" : "=r"(mode));
    return mode;
}

static void on_alarm(int signal) {
    (void)signal;
    alarms++;
}

static void on_user(int signal) {
    (void)signal;
    users++;
}

static uint64_t now(clockid_t clock) {
    struct timespec time;
    CHECK(clock_gettime(clock, &time) == 0);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void *waits(void *argument) {
    own = *(int *)argument;
    pthread_mutex_lock(&mutex);
    while (!told)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    return (void *)(intptr_t)(own + told);
}

static void child(int in, int out, int *shared) {
    char text[8];
    ssize_t count = read(in, text, sizeof text);
    CHECK(count == 4 && memcmp(text, "ping", 4) == 0);
    *shared += 1;
    CHECK(write(out, "pong", 4) == 4);
    _exit(7);
}

static void fill(uint64_t *words, uint64_t seed) {
    for (int n = 0; n < WORDS; n++)
        words[n] = seed = seed * 6364136223846793005u + 1442695040888963407u;
}

// Makes state of each kind, reads a line, and checks the state.
static int everything(void) {
    uint64_t *words = malloc(WORDS * sizeof *words), *again = malloc(WORDS * sizeof *words);
    fill(words, 1);
    set_rounding(UPWARD);
    volatile double one = 1, three = 3;
    double third = one / three;

    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *wiped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED && wiped != MAP_FAILED);
    CHECK(madvise(wiped, 4096, MADV_WIPEONFORK) == 0);
    memset(wiped, 1, 8192);
    *shared = 40;

    int to[2], from[2], pair[2];
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(write(pair[0], "queued", 6) == 6);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(to[0], from[1], shared);
    pthread_t thread;
    int number = 30;
    CHECK(pthread_create(&thread, NULL, waits, &number) == 0);

    int file = open("/tmp/file", O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && write(file, "0123456789", 10) == 10 && lseek(file, 4, SEEK_SET) == 4);
    CHECK(unlink("/tmp/file") == 0);

    signal(SIGALRM, on_alarm);
    signal(SIGUSR1, on_user);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && raise(SIGUSR1) == 0 && users == 0);
    int timer = timerfd_create(CLOCK_MONOTONIC, 0), poller = epoll_create1(0);
    struct itimerspec later = {.it_value = {.tv_nsec = 400000000}};
    CHECK(timerfd_settime(timer, 0, &later, NULL) == 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 12};
    CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event) == 0);
    struct itimerval alarm = {.it_value = {.tv_usec = 300000}};
    uint64_t before = now(CLOCK_MONOTONIC);
    CHECK(setitimer(ITIMER_REAL, &alarm, NULL) == 0);

    printf("before\n");
    fflush(stdout);
    char line[100];
    ssize_t count;
    do
        count = read(0, line, sizeof line - 1);
    while (count < 0 && errno == EINTR);
    CHECK(count > 2);
    line[count] = 0;
    uint64_t after = now(CLOCK_MONOTONIC);
    printf("after %s", line + 2);

    CHECK(rounding() == UPWARD && one / three == third && third * 3 > 1);
    fill(again, 1);
    CHECK(memcmp(words, again, WORDS * sizeof *words) == 0);
    // The first one counts from the checkpoint on.
    CHECK(after >= before && after - before < 600000000000);
    CHECK(now(CLOCK_REALTIME) > 1700000000000000000);
    printf("wiped %d %d\n", 1 - wiped[0], 1 - wiped[4096]);
    CHECK(sigpending(&set) == 0 && sigismember(&set, SIGUSR1));
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0 && users == 1);
    while (alarms == 0)
        CHECK(poll(NULL, 0, 100) <= 0);
    int ready;
    do
        ready = epoll_wait(poller, &event, 1, 10000);
    while (ready < 0 && errno == EINTR);
    CHECK(ready == 1 && event.data.u64 == 12);
    uint64_t expirations;
    CHECK(read(timer, &expirations, 8) == 8 && expirations == 1 && alarms == 1);
    char text[16];
    CHECK(read(file, text, sizeof text) == 6 && memcmp(text, "456789", 6) == 0);
    CHECK(read(pair[1], text, sizeof text) == 6 && memcmp(text, "queued", 6) == 0);
    CHECK(write(to[1], "ping", 4) == 4);
    CHECK(read(from[0], text, sizeof text) == 4 && memcmp(text, "pong", 4) == 0);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(*shared == 41 && own == 5);
    pthread_mutex_lock(&mutex);
    told = 2;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
    void *result;
    CHECK(pthread_join(thread, &result) == 0 && (intptr_t)result == 32);
    // New tasks, memory and files.
    pid = fork();
    if (pid == 0)
        _exit(own + 1);
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 6);
    printf("all there\n");
    return line[0] - '0';
}

// Computes until standard input has something.
static int compute(void) {
    volatile uint64_t threes = 0, fives = 0;
    printf("ready\n");
    fflush(stdout);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    double sum = 0;
    do
        for (int n = 0; n < 3000000; n++) {
            threes += 3;
            fives += 5;
            sum += 0.5;
        }
    while (poll(&input, 1, 0) == 0);
    CHECK(threes > 0 && threes % 9000000 == 0);
    CHECK(threes * 5 == fives * 3);
    CHECK(sum * 6 == threes);
    printf("computed\n");
    return 4;
}

// What the threads of `busy` do until they are told to stop.
enum { SLEEPERS = 1000, FILE_BYTES = 1 << 16 };

static atomic_int is_over;
static atomic_ulong wakeups, forks, rewrites, rallies, signals;

static void *sleeps(void *argument) {
    uint64_t number = (uintptr_t)argument, sum = 0;
    for (unsigned long rounds = 0;; rounds++) {
        CHECK(sum == rounds * number);
        if (atomic_load(&is_over))
            return NULL;
        usleep(100000 + number * 100);
        sum += number;
        atomic_fetch_add(&wakeups, 1);
    }
}

static void *makes_children(void *unused) {
    for (int code = 0; !atomic_load(&is_over); code = (code + 1) % 100) {
        int status;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            _exit(code);
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == code);
        atomic_fetch_add(&forks, 1);
    }
    return unused;
}

static void *writes_a_file(void *unused) {
    static unsigned char out[FILE_BYTES], in[FILE_BYTES];
    int file = open("/tmp/busy", O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0);
    for (unsigned char round = 1; !atomic_load(&is_over); round++) {
        memset(out, round, sizeof out);
        CHECK(pwrite(file, out, sizeof out, 0) == sizeof out);
        CHECK(ftruncate(file, 100) == 0 && ftruncate(file, sizeof out) == 0);
        CHECK(pread(file, in, sizeof in, 0) == sizeof in);
        CHECK(memcmp(in, out, 100) == 0 && in[100] == 0 && in[sizeof in - 1] == 0);
        atomic_fetch_add(&rewrites, 1);
    }
    return unused;
}

static void *answers(void *argument) {
    int *ends = argument;
    uint64_t number;
    while (read(ends[0], &number, sizeof number) == sizeof number) {
        number++;
        CHECK(write(ends[1], &number, sizeof number) == sizeof number);
    }
    return NULL;
}

static void *asks(void *argument) {
    int *ends = argument;
    uint64_t number = 1;
    while (!atomic_load(&is_over)) {
        uint64_t before = number;
        CHECK(write(ends[1], &number, sizeof number) == sizeof number);
        CHECK(read(ends[0], &number, sizeof number) == sizeof number && number == before + 1);
        atomic_fetch_add(&rallies, 1);
    }
    close(ends[1]);
    return NULL;
}

static void counts(int signal) {
    (void)signal;
    atomic_fetch_add(&signals, 1);
}

// All of it at once, until there is a line of input. Each thread checks what it sees.
static int busy(void) {
    pthread_t threads[SLEEPERS + 4];
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 65536) == 0);
    struct sigaction action = {.sa_handler = counts, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{.tv_usec = 3000}, {.tv_usec = 3000}};
    for (uintptr_t n = 0; n < SLEEPERS; n++)
        CHECK(pthread_create(&threads[n], &small, sleeps, (void *)n) == 0);
    int to[2], from[2];
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    int near[2] = {from[0], to[1]}, far[2] = {to[0], from[1]};
    void *(*const others[])(void *) = {asks, answers, makes_children, writes_a_file};
    void *const arguments[] = {near, far, NULL, NULL};
    for (int n = 0; n < 4; n++)
        CHECK(pthread_create(&threads[SLEEPERS + n], NULL, others[n], arguments[n]) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    puts("ready");
    fflush(stdout);
    char byte;
    ssize_t count;
    do
        count = read(0, &byte, 1);
    while (count < 0 && errno == EINTR);
    CHECK(count == 1);
    // All of it goes on, however busy the machine is. The timer's signals interrupt sleeps.
    atomic_ulong *const counters[] = {&wakeups, &forks, &rewrites, &rallies, &signals};
    uint64_t patience = now(CLOCK_MONOTONIC) + 60000000000;
    for (int n = 0; n < 5; n++)
        for (unsigned long before = *counters[n]; *counters[n] == before;) {
            CHECK(now(CLOCK_MONOTONIC) < patience);
            usleep(10000);
        }
    atomic_store(&is_over, 1);
    for (int n = 0; n < SLEEPERS + 4; n++)
        CHECK(pthread_join(threads[n], NULL) == 0);
    puts("all ended");
    return 3;
}

// Serves a connection of its child, which connects some time later.
static int server(int waits_by_epoll) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/tmp/socket"};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 5) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        usleep(500000);
        int client = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(connect(client, (void *)&address, sizeof address) == 0);
        CHECK(write(client, "hello", 5) == 5);
        _exit(0);
    }
    printf("listening\n");
    fflush(stdout);
    if (waits_by_epoll) {
        int poller = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN};
        CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event) == 0);
        CHECK(epoll_wait(poller, &event, 1, -1) == 1);
    }
    int client = accept(listener, NULL, NULL);
    CHECK(client >= 0);
    char text[16] = {0};
    CHECK(read(client, text, sizeof text) == 5);
    CHECK(waitpid(pid, NULL, 0) == pid);
    printf("served %s\n", text);
    return 6;
}

// hartline_generation() and hartline_keep_generation() of hartline.h.
static long generation(void) { return syscall(0x484c, 3); }
static volatile uint64_t kept_generation[2];

static int numbers(void) {
    uint64_t random;
    char line[8];
    CHECK(syscall(0x484c, 4, (char *)kept_generation + 4) == -1 && errno == EINVAL);
    CHECK(syscall(0x484c, 4, 8) == -1 && errno == EFAULT);
    CHECK(syscall(0x484c, 4, kept_generation) == 0 && kept_generation[0] == (uint64_t)generation());
    uint64_t before = kept_generation[0];
    int pipes[2], ready[2];
    CHECK(pipe(pipes) == 0 && pipe(ready) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        // It has the word of its parent, and its own one from now on.
        CHECK(syscall(0x484c, 4, kept_generation + 1) == 0 && kept_generation[1] == before);
        pid_t grandchild = fork();
        CHECK(grandchild >= 0 && write(ready[1], "x", 1) == 1 && read(pipes[0], line, 1) == 1);
        CHECK(kept_generation[0] == before);
        CHECK(kept_generation[1] == (uint64_t)generation() && kept_generation[1] != before);
        int status = 0;
        CHECK(grandchild == 0 || (waitpid(grandchild, &status, 0) == grandchild && status == 0));
        _exit(0);
    }
    CHECK(read(ready[0], line, 1) == 1 && read(ready[0], line, 1) == 1);
    CHECK(getrandom(&random, 8, 0) == 8);
    CHECK(read(0, line, sizeof line) > 0);
    CHECK(kept_generation[0] == (uint64_t)generation() && kept_generation[0] != before);
    int status = 0;
    CHECK(write(pipes[1], "xx", 2) == 2 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(getrandom(&random, 8, 0) == 8);
    printf("%016lx\n", (unsigned long)random);
    char id[40] = {0};
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY);
    CHECK(file >= 0 && read(file, id, 37) == 37);
    printf("%s%ld\n%ld\n", id, (long)time(NULL), generation());
    return 0;
}

// Prints the arguments of the new VM, each in brackets.
static int given(void) {
    char line[8], text[256];
    CHECK(access("/run/hartline/arguments", F_OK) == -1);
    while (read(0, line, sizeof line) > 0) {
        FILE *file = fopen("/run/hartline/arguments", "r");
        size_t length = file ? fread(text, 1, sizeof text, file) : 0;
        for (size_t at = 0; at < length; at += strlen(text + at) + 1)
            printf("[%s]", text + at);
        puts(file ? "" : "none");
        CHECK(!file || (length == 0 || text[length - 1] == 0));
    }
    return 0;
}

// Fills many megabytes, and reads and changes them after the snapshot.
static int large(size_t megabytes) {
    size_t words = megabytes << 17;
    // Nothing is left out.
    volatile uint64_t *memory = malloc(words * sizeof *memory);
    for (size_t at = 0; at < words; at++)
        memory[at] = at * 11400714819323198485u + 1;
    char line[8];
    CHECK(read(0, line, sizeof line) > 0);
    for (size_t at = 0; at < words; at++)
        CHECK(memory[at] == at * 11400714819323198485u + 1);
    for (size_t at = 0; at < words; at += 512)
        memory[at]++;
    for (size_t at = 0; at < words; at++)
        CHECK(memory[at] == at * 11400714819323198485u + 1 + (at % 512 == 0));
    printf("%zu MiB\n", megabytes);
    return 0;
}

#define PAGES ((size_t)16384)
#define PAGE_SIZE ((size_t)4096)
#define FREED 0x1d5f00dfeed0ff5eu

static void fill_page(char *page, uint64_t word) {
    for (size_t at = 0; at < PAGE_SIZE; at += sizeof word)
        memcpy(page + at, &word, sizeof word);
}

// Frees huge frames and small ones before the snapshot, and uses them again after it.
static int freed(void) {
    char *memory = mmap(NULL, PAGES * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    size_t whole = PAGES * 3 / 4;
    for (size_t page = 0; page < PAGES; page++)
        fill_page(memory + page * PAGE_SIZE, page >= whole && page % 2 ? page : FREED);
    CHECK(munmap(memory, whole * PAGE_SIZE) == 0);
    for (size_t page = whole; page < PAGES; page += 2)
        CHECK(munmap(memory + page * PAGE_SIZE, PAGE_SIZE) == 0);
    char line[8];
    CHECK(read(0, line, sizeof line) > 0);
    for (size_t page = whole + 1; page < PAGES; page += 2)
        for (size_t at = 0; at < PAGE_SIZE; at += sizeof page)
            CHECK(memcmp(memory + page * PAGE_SIZE + at, &page, sizeof page) == 0);
    uint64_t *again = mmap(NULL, PAGES * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(again != MAP_FAILED);
    for (size_t at = 0; at < PAGES * PAGE_SIZE / sizeof *again; at++) {
        CHECK(again[at] == 0);
        again[at] = at;
    }
    printf("zero again\n");
    return 0;
}

__attribute__((noinline)) static int falls(volatile int *where) { return *where; }

static int crash(void) {
    char byte;
    CHECK(read(0, &byte, 1) == 1);
    return falls((int *)8) + byte;
}

int main(int count, char **arguments) {
    const char *part = count > 1 ? arguments[1] : "";
    if (strcmp(part, "everything") == 0)
        return everything();
    if (strcmp(part, "compute") == 0)
        return compute();
    if (strcmp(part, "busy") == 0)
        return busy();
    if (strcmp(part, "accept") == 0)
        return server(0);
    if (strcmp(part, "epoll") == 0)
        return server(1);
    if (strcmp(part, "numbers") == 0)
        return numbers();
    if (strcmp(part, "arguments") == 0)
        return given();
    if (strcmp(part, "crash") == 0)
        return crash();
    if (strcmp(part, "freed") == 0)
        return freed();
    if (strcmp(part, "large") == 0)
        return large(strtoul(arguments[2], NULL, 10));
    return 2;
}
