/* Crashes of many kinds: the first argument names one. */
#include <assert.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile int sink;
static volatile uintptr_t bad = 8;
static char *volatile nothing;

static inline __attribute__((always_inline)) int load(volatile int *from)
{
    return *from + 1;
}

static NOINLINE void null_load(int depth)
{
    sink = load((volatile int *)bad) + depth;
    sink++;
}

static NOINLINE void null_store(int depth)
{
    *(volatile int *)bad = depth;
    sink++;
}

static NOINLINE void nested(int depth)
{
    if (depth == 0)
        null_load(depth);
    else
        nested(depth - 1);
    sink += depth;
}

static NOINLINE int overflow(int depth)
{
    volatile char room[512];
    room[depth % 512] = (char)depth;
    int below = overflow(depth + 1);
    return below + room[below % 512];
}

static NOINLINE void call(uintptr_t address)
{
    ((void (*)(void))address)();
    sink++;
}

static NOINLINE void variable(int length)
{
    volatile char room[length];
    memset((void *)room, 1, length);
    null_store(room[length - 1]);
    sink += room[0];
}

static NOINLINE int many(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j)
{
    null_load(a + b + c);
    return d + e + f + g + h + i + j + sink;
}

static int compare(const void *a, const void *b)
{
    null_load(*(const int *)a - *(const int *)b);
    return sink;
}

static void in_handler(int signal)
{
    null_store(signal);
    sink++;
}

static NOINLINE void install(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(signal, &action, NULL);
}

static void abort_in_handler(int signal)
{
    sink = signal;
    abort();
}

static void second_handler(int signal)
{
    sink = signal;
    raise(SIGUSR2);
    sink++;
}

static NOINLINE void alternate(void)
{
    static char stack[65536];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    install(SIGSEGV, abort_in_handler, SA_ONSTACK);
    sink = overflow(0);
}

static void *corrupt(void *argument)
{
    char *block = malloc(24);
    memset(block, 0, 24);
    free(block);
    free(block);
    sink++;
    return argument;
}

static volatile int sleeping;

static void *sleeper(void *argument)
{
    sleeping = 1;
    for (;;)
        pause();
    return argument;
}

static void *spinner(void *argument)
{
    for (;;)
        sink++;
    return argument;
}

static void *fault_in_thread(void *argument)
{
    // On a busy machine, the sleeper may run after both others.
    while (sink < 1000 || !sleeping)
        usleep(100);
    null_load(1);
    return argument;
}

static NOINLINE void threads(void *(*last)(void *))
{
    pthread_t thread;
    pthread_create(&thread, NULL, sleeper, NULL);
    pthread_create(&thread, NULL, spinner, NULL);
    pthread_create(&thread, NULL, last, NULL);
    pthread_join(thread, NULL);
    sink++;
}

static NOINLINE void one_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, corrupt, NULL);
    pthread_join(thread, NULL);
    sink++;
}

static void at_exit(void)
{
    null_store(3);
    sink++;
}

static NOINLINE void after_longjmp(void)
{
    static jmp_buf buffer;
    if (setjmp(buffer) == 0)
        longjmp(buffer, 1);
    null_load(2);
    sink++;
}

static NOINLINE __attribute__((no_stack_protector)) void smash(int length)
{
    volatile char room[16];
    memset((char *)room, 0, length);
    sink = room[0];
}

static NOINLINE void smash_protected(int length)
{
    volatile char room[16];
    memset((char *)room, 0, length);
    sink = room[0];
}

static NOINLINE void read_only(void)
{
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(volatile char *)page = 1;
    sink++;
}

static NOINLINE void beyond_end(void)
{
    FILE *file = tmpfile();
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fileno(file), 0);
    sink = *(volatile char *)page;
    sink++;
}

static NOINLINE void misaligned(void)
{
    static long long words[2];
    __asm__ volatile("lr.w t0, (%0)" : : "r"((char *)words + 1) : "t0", "memory");
    sink++;
}

static NOINLINE void illegal(void)
{
    __asm__ volatile(".word 0");
    sink++;
}

static NOINLINE void trap(void)
{
    __asm__ volatile("ebreak");
    sink++;
}

static NOINLINE void in_child(void)
{
    int status = 0;
    if (fork() == 0) {
        null_store(4);
        _exit(0);
    }
    wait(&status);
    exit(WIFSIGNALED(status) ? 10 + WTERMSIG(status) : 1);
}

static NOINLINE void by_function_pointer(void (*volatile function)(int))
{
    function(sink);
    sink++;
}

static NOINLINE void crash(const char *how)
{
    static int data[4] = {3, 1, 2};
#define CASE(name, action) \
    if (!strcmp(how, name)) { \
        action; \
        sink++; \
    }
    CASE("load", null_load(1))
    CASE("store", null_store(1))
    CASE("nested", nested(20))
    CASE("deep", nested(300))
    CASE("overflow", sink = overflow(0))
    CASE("null-call", call(0))
    CASE("wild-jump", call(0x123456))
    CASE("data-call", call((uintptr_t)data))
    CASE("abort", abort())
    CASE("assert", assert(how == nothing))
    CASE("variable", variable(100 + sink))
    CASE("many", sink = many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
    CASE("qsort", qsort(data, 3, sizeof data[0], compare))
    CASE("handler", install(SIGUSR1, in_handler, 0); raise(SIGUSR1))
    CASE("handler-of-fault", install(SIGSEGV, abort_in_handler, 0); null_load(1))
    CASE("two-handlers", install(SIGUSR1, second_handler, 0); install(SIGUSR2, in_handler, 0);
         raise(SIGUSR1))
    CASE("alternate-stack", alternate())
    CASE("double-free-in-thread", one_thread())
    CASE("invalid-free", free(&data[1]))
    CASE("threads", threads(fault_in_thread))
    CASE("exit", atexit(at_exit); exit(0))
    CASE("longjmp", after_longjmp())
    CASE("smash", smash(200 + sink))
    CASE("smash-protected", smash_protected(200 + sink))
    CASE("read-only", read_only())
    CASE("beyond-end", beyond_end())
    CASE("misaligned", misaligned())
    CASE("illegal", illegal())
    CASE("trap", trap())
    CASE("pointer", by_function_pointer(null_load))
    CASE("child", in_child())
    CASE("raise", raise(SIGFPE))
    CASE("memcpy", memcpy((char *)bad, how, strlen(how)))
    CASE("strlen", sink = strlen((char *)bad))
}

int main(int argc, char **argv)
{
    if (argc > 1)
        crash(argv[1]);
    return 0;
}
