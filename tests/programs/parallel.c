// Threads on several CPUs that change shared state: mappings and permissions that other
// threads use, copies of the address space, signals to a computing thread, and the end of a
// process whose threads are busy. The output is the same with one CPU.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define THREADS 4
#define ROUNDS 40

static atomic_int stop;
static atomic_long wrong, faults, done;

static uint64_t compute(uint64_t seed, int steps) {
    for (int i = 0; i < steps; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
    }
    return seed;
}

/* Each thread maps, fills, reads and unmaps memory of its own: frames go from one
   thread to another, and none may see what is not its own. */
static void *map_and_unmap(void *argument) {
    uint64_t mark = (uint64_t)(uintptr_t)argument + 1;
    for (int round = 0; round < ROUNDS; round++) {
        size_t length = PAGE * (1 + (size_t)(round * 7) % 23);
        uint64_t *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            wrong++;
            break;
        }
        for (size_t i = 0; i < length / 8; i += 64) {
            if (memory[i] != 0) wrong++;
            memory[i] = mark << 32 | i;
        }
        compute(mark, 200);
        if (round % 3 == 0) mprotect(memory, length, PROT_READ);
        for (size_t i = 0; i < length / 8; i += 64)
            if (memory[i] != (mark << 32 | i)) wrong++;
        if (round % 4 == 1) madvise(memory, length, MADV_DONTNEED);
        if (round % 4 == 1 && memory[0] != 0) wrong++;
        munmap(memory, length);
    }
    return NULL;
}

/* A page that one thread reads while another takes the permission away and gives it
   back: after mprotect has returned, a store must fault. */
static char *guarded;
static atomic_int allowed = 1;
static __thread sigjmp_buf back;

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    if ((char *)info->si_addr < guarded || (char *)info->si_addr >= guarded + PAGE) _exit(9);
    faults++;
    siglongjmp(back, 1);
}

static void *store_to_guarded(void *argument) {
    while (!stop) {
        if (sigsetjmp(back, 1) == 0) {
            /* Closed before and after the store: nobody may have stored between. */
            int before = allowed;
            *(volatile char *)guarded = 1;
            (void)before;
        }
        sched_yield();
    }
    return argument;
}

static void *open_and_close(void *argument) {
    for (int round = 0; round < ROUNDS; round++) {
        mprotect(guarded, PAGE, PROT_READ);
        char was = *(volatile char *)guarded;
        /* From now on nobody can store. */
        compute(3, 3000);
        if (*(volatile char *)guarded != was) wrong++;
        mprotect(guarded, PAGE, PROT_READ | PROT_WRITE);
        *(volatile char *)guarded = 0;
        compute(5, 500);
    }
    stop = 1;
    return argument;
}

/* The address space is copied while others store to it: the copy stays as it was. */
static long changing[PAGE / 8 * 4] __attribute__((aligned(4096)));

static void *change(void *argument) {
    for (long i = 1; !stop; i++)
        for (int page = 0; page < 4; page++)
            __atomic_store_n(&changing[page * (PAGE / 8)], i, __ATOMIC_RELAXED);
    return argument;
}

static void *copy(void *argument) {
    for (int round = 0; round < ROUNDS / 2; round++) {
        pid_t child = fork();
        if (child == 0) {
            long seen = __atomic_load_n(&changing[0], __ATOMIC_RELAXED);
            compute(7, 2000);
            if (__atomic_load_n(&changing[0], __ATOMIC_RELAXED) != seen) _exit(1);
            changing[0] = -1;
            _exit(changing[0] == -1 ? 0 : 2);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) wrong++;
        if (__atomic_load_n(&changing[0], __ATOMIC_RELAXED) < 0) wrong++;
        /* What was shared with the child is this process's again: stores of one thread
           are seen by the other. */
        long before = __atomic_load_n(&changing[PAGE / 8], __ATOMIC_RELAXED);
        long after = before;
        for (long i = 0; i < 100000000 && after == before; i++) {
            after = __atomic_load_n(&changing[PAGE / 8], __ATOMIC_RELAXED);
            if (i % 1000 == 999) sched_yield();
        }
        if (after == before) wrong++;
    }
    stop = 1;
    return argument;
}

/* Signals to threads that compute without system calls. */
static atomic_int arrived;

static void count(int signal) {
    (void)signal;
    arrived++;
}

static volatile uint64_t sink;

static void *spin(void *argument) {
    done++;
    while (!stop) sink = compute(11, 100);
    return argument;
}

static void *spin_for_ever(void *argument) {
    done++;
    while (argument == NULL) sink = compute(13, 1000);
    return argument;
}

static void signals(void) {
    pthread_t threads[THREADS];
    signal(SIGUSR1, count);
    stop = 0;
    done = 0;
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, spin, NULL);
    while (done != THREADS) sched_yield();
    for (int round = 0; round < 20; round++) {
        int before = arrived;
        pthread_kill(threads[round % THREADS], SIGUSR1);
        while (arrived == before) sched_yield();
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("signals %d\n", arrived);
}

static void together(void *(*first)(void *), void *(*second)(void *)) {
    pthread_t threads[2];
    stop = 0;
    pthread_create(&threads[0], NULL, first, NULL);
    pthread_create(&threads[1], NULL, second, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

/* A process ends, stops or executes another program while its threads compute. */
static void ends(void) {
    for (int round = 0; round < 6; round++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            done = 0;
            for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, spin_for_ever, NULL);
            while (done != 3) sched_yield();
            if (round % 3 == 0) exit(round);
            if (round % 3 == 1) raise(SIGKILL);
            for (;;) sink = compute(17, 1000);
        }
        if (round % 3 == 2) {
            int status;
            usleep(2000);
            kill(child, SIGSTOP);
            waitpid(child, &status, WUNTRACED);
            if (!WIFSTOPPED(status)) wrong++;
            kill(child, SIGCONT);
            waitpid(child, &status, WCONTINUED);
            if (!WIFCONTINUED(status)) wrong++;
            kill(child, SIGTERM);
        }
        int status;
        waitpid(child, &status, 0);
        printf("end %d: %x\n", round, (unsigned)status);
    }
}

static void affinity(void) {
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0) wrong++;
        for (int i = 0; i < 20; i++, sched_yield())
            if (sched_getcpu() != cpu) wrong++;
    }
    sched_setaffinity(0, sizeof all, &all);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (online != CPU_COUNT(&all)) wrong++;
}

int main(void) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, map_and_unmap, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("mappings: wrong %ld\n", wrong);

    together(change, copy);
    printf("copies: wrong %ld\n", wrong);
    signals();
    ends();
    affinity();
    printf("affinity: wrong %ld\n", wrong);

    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    guarded = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    together(open_and_close, store_to_guarded);
    printf("permissions: wrong %ld\n", wrong);

    pthread_t thread;
    done = 0;
    for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, spin_for_ever, NULL);
    while (done != 3) sched_yield();
    puts("the end");
    fflush(stdout);
    _exit(7);
}
