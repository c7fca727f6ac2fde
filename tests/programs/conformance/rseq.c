// Restartable sequences: registration, the numbers in the area, and critical sections that are
// aborted by signals and by other tasks on the CPU.
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>

struct area {
    uint32_t cpu_id_start, cpu_id;
    uint64_t rseq_cs;
    uint32_t flags, node_id, mm_cid, padding;
} __attribute__((aligned(32)));

struct section {
    uint32_t version, flags;
    uint64_t start, length, abort;
} __attribute__((aligned(32)));

#define UNREGISTER 1

// A critical section: `body` between the pointer to its description being set and its last
// instruction. If it is aborted, control goes to the label `aborted`.
#define DESCRIPTION(name)                                                                         \
    ".pushsection .data\n.balign 32\n.globl " name "\n" name ": .long 0, 0\n"                     \
    ".quad 11f, 12f - 11f, 13f\n.popsection\n"
#if defined __riscv
#define SIGNATURE 0xf1401073
#define SECTION(name, body)                                                                       \
    DESCRIPTION(name) "lla t0, " name "\nsd t0, 8(%[area])\n"                                     \
    "11:\n" body "\n12:\nj 14f\n.long 0xf1401073\n13:\nj %l[aborted]\n14:\n"
#define SPIN "10: j 10b"
// Adds 1 to the counter of the CPU, slowly.
#define ADD "lw t1, 4(%[area])\nslli t1, t1, 6\nadd t1, t1, %[counters]\nld t2, 0(t1)\n"          \
    "li t3, 300\n10: addi t3, t3, -1\nbnez t3, 10b\naddi t2, t2, 1\nsd t2, 0(t1)"
#define CLOBBERS "t0", "t1", "t2", "t3", "memory"
#define PC(context) (context)->uc_mcontext.__gregs[REG_PC]
#elif defined __x86_64__
#define SIGNATURE 0x53053053
#define SECTION(name, body)                                                                       \
    DESCRIPTION(name) "leaq " name "(%%rip), %%rax\nmovq %%rax, 8(%[area])\n"                     \
    "11:\n" body "\n12:\njmp 14f\n.byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n13:\njmp %l[aborted]\n14:\n"
#define SPIN "10: jmp 10b"
#define ADD "movl 4(%[area]), %%eax\nshlq $6, %%rax\naddq %[counters], %%rax\nmovq (%%rax), %%rdx\n" \
    "movl $300, %%ecx\n10: decl %%ecx\njnz 10b\naddq $1, %%rdx\nmovq %%rdx, (%%rax)"
#define CLOBBERS "rax", "rcx", "rdx", "memory", "cc"
#define PC(context) (context)->uc_mcontext.gregs[REG_RIP]
#endif

extern struct section spinning, adding;

static long rseq(volatile struct area *area, uint32_t length, int flags, uint32_t signature) {
    return syscall(SYS_rseq, area, length, flags, signature);
}

static unsigned cpu_now(void) {
    unsigned cpu = -1;
    syscall(SYS_getcpu, &cpu, NULL, NULL);
    return cpu;
}

static volatile struct area own;


extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

// Ends the registration by the C library, if there is one.
static void begin(void) {
    if (&__rseq_size && __rseq_size) {
        char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
        GIVES(rseq((void *)area, 32, UNREGISTER, SIGNATURE), 0);
        GIVES(((struct area *)area)->cpu_id, (uint32_t)-1);
    }
    memset((void *)&own, 0, sizeof own);
}

static void registration(void) {
    begin();
    FAILS(rseq(&own, 32, UNREGISTER, SIGNATURE), EINVAL);
    FAILS(rseq(&own, 31, 0, SIGNATURE), EINVAL);
    FAILS(rseq((void *)((char *)&own + 4), 32, 0, SIGNATURE), EINVAL);
    FAILS(rseq(&own, 32, 2, SIGNATURE), EINVAL);
    FAILS(rseq(&own, 32, 3, SIGNATURE), EINVAL);
    FAILS(rseq((void *)-4096, 32, 0, SIGNATURE), EFAULT);
    own.cpu_id = own.cpu_id_start = 777;
    GIVES(rseq(&own, 32, 0, SIGNATURE), 0);
    CHECK(own.cpu_id < 4096 && own.cpu_id_start == own.cpu_id);
    FAILS(rseq(&own, 32, 0, SIGNATURE), EBUSY);
    FAILS(rseq(&own + 1, 32, 0, SIGNATURE), EINVAL);
    FAILS(rseq(&own, 64, 0, SIGNATURE), EINVAL);
    FAILS(rseq(&own, 32, 0, 1), EPERM);
    FAILS(rseq(&own, 32, UNREGISTER, 1), EPERM);
    FAILS(rseq(&own, 64, UNREGISTER, SIGNATURE), EINVAL);
    FAILS(rseq(&own + 1, 32, UNREGISTER, SIGNATURE), EINVAL);
    // On each allowed CPU.
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        GIVES(sched_setaffinity(0, sizeof one, &one), 0);
        GIVES(own.cpu_id, cpu);
        GIVES(own.cpu_id_start, cpu);
        GIVES(cpu_now(), cpu);
        CHECK(own.mm_cid < 2);
    }
    GIVES(sched_setaffinity(0, sizeof all, &all), 0);
    // A process inherits the registration, a process with the same memory does not.
    CHILD_EXITS(0, _exit(rseq(&own, 32, 0, SIGNATURE) != -1 || errno != EBUSY || own.cpu_id > 4096));
    pid_t child = vfork();
    if (child == 0) _exit(rseq(&own, 32, UNREGISTER, SIGNATURE) != -1 || errno != EINVAL);
    GIVES(status_of(child), 0);
    GIVES(rseq(&own, 32, UNREGISTER, SIGNATURE), 0);
    CHECK(own.cpu_id == (uint32_t)-1 && own.cpu_id_start == 0);
    FAILS(rseq(&own, 32, UNREGISTER, SIGNATURE), EINVAL);
}

static volatile uint64_t seen_pc;
static volatile int calls;

static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    seen_pc = PC((ucontext_t *)context);
    calls++;
}

// Spins in a section until it is aborted; whether it was.
static int spin(void) {
    asm goto(SECTION("spinning", SPIN) : : [area] "r"(&own) : CLOBBERS : aborted);
    return 0;
aborted:
    return 1;
}

static void signals(void) {
    begin();
    GIVES(rseq(&own, 32, 0, SIGNATURE), 0);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 1; i <= 3; i++) {
        struct itimerval soon = {{0, 0}, {0, 20000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        GIVES(spin(), 1);
        CHECK(own.rseq_cs == 0);
        // Another task may have aborted the section before. The signal may come right after the
        // comparison, so pause() could miss it.
        while (calls < i) usleep(1000);
        if (i == 1) CHECK(seen_pc != 0);
    }
    // Outside of the section, only the pointer is removed.
    own.rseq_cs = (uintptr_t)&spinning;
    raise(SIGUSR1);
    CHECK(own.rseq_cs == 0 && calls == 4);
    // Sections that the kernel rejects.
    static struct section wrong[5];
    for (int i = 0; i < 5; i++) wrong[i] = spinning;
    wrong[0].version = 1;
    wrong[1].abort = wrong[1].start;
    wrong[2].abort += 1;
    wrong[3].length = -1;
    wrong[4].abort = -4096;
    for (int i = 0; i < 5; i++) CHILD_DIES(SIGSEGV, own.rseq_cs = (uintptr_t)&wrong[i]; raise(SIGUSR1));
    CHILD_DIES(SIGSEGV, own.rseq_cs = 64; raise(SIGUSR1));
    CHILD_DIES(SIGSEGV, spinning.flags = 1; alarm(1); spin());
    CHILD_DIES(SIGSEGV, own.flags = 4; alarm(1); spin());
    CHILD_EXITS(0, own.rseq_cs = (uintptr_t)&spinning; raise(SIGUSR1));
    GIVES(rseq(&own, 32, UNREGISTER, SIGNATURE), 0);
}

// Another process on the same CPU aborts a section.
static void preemption(void) {
    begin();
    GIVES(rseq(&own, 32, 0, SIGNATURE), 0);
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    CPU_SET(cpu_now(), &one);
    GIVES(sched_setaffinity(0, sizeof one, &one), 0);
    pid_t busy = CHILD(for (;;) {});
    for (int i = 0; i < 3; i++) GIVES(spin(), 1);
    CHECK(own.rseq_cs == 0);
    GIVES(kill(busy, SIGKILL), 0);
    status_of(busy);
    GIVES(sched_setaffinity(0, sizeof all, &all), 0);
    GIVES(rseq(&own, 32, UNREGISTER, SIGNATURE), 0);
}

enum { THREADS = 4, ROUNDS = 20000 };

static struct {
    uint64_t count;
    char padding[56];
} counters[1024] __attribute__((aligned(64)));

static void add(volatile struct area *area) {
aborted:
    asm goto(SECTION("adding", ADD) : : [area] "r"(area), [counters] "r"(counters) : CLOBBERS : aborted);
}

static void *adder(void *unused) {
    static __thread volatile struct area area;
    if (&__rseq_size && __rseq_size)
        rseq((void *)((char *)__builtin_thread_pointer() + __rseq_offset), 32, UNREGISTER, SIGNATURE);
    if (rseq(&area, 32, 0, SIGNATURE)) return (void *)1;
    for (int i = 0; i < ROUNDS; i++) add(&area);
    return rseq(&area, 32, UNREGISTER, SIGNATURE) ? (void *)1 : unused;
}

// Counters without atomic operations, one for each CPU: no addition is lost.
static void counting(void) {
    pthread_t threads[THREADS];
    uint64_t sum = 0;
    for (int i = 0; i < THREADS; i++) GIVES(pthread_create(&threads[i], NULL, adder, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        GIVES(pthread_join(threads[i], &failed), 0);
        CHECK(!failed);
    }
    for (int i = 0; i < 1024; i++) sum += counters[i].count;
    GIVES(sum, THREADS * ROUNDS);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    static void (*const parts[])(void) = {registration, signals, preemption};

    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        CHILD_EXITS(0, int before = failures; parts[i](); _exit(failures != before));
    }
    counting();
    return finish("rseq");
}
