// Threads that count, a child, and another program, for sessions of a debugger.
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

volatile int stop;
volatile long counts[3];
pthread_barrier_t barrier;

static void *work(void *number) {
    pthread_barrier_wait(&barrier);
    while (!stop) {
        counts[(long)number]++;
    }
    return number;
}

__attribute__((noinline)) void hit(int number) {
    counts[0] += number;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        hit(9);
        return 4;
    }
    pthread_t threads[2];
    pthread_barrier_init(&barrier, NULL, 3);
    for (long i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    }
    pthread_barrier_wait(&barrier);
    hit(1);
    pid_t child = fork();
    if (child == 0) {
        hit(2);
        execl("/proc/self/exe", argv[0], "again", (char *)NULL);
        _exit(7);
    }
    int status;
    waitpid(child, &status, 0);
    hit(3);
    stop = 1;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("child %d\n", WEXITSTATUS(status));
    return 0;
}
