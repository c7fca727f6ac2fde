// Threads that take turns: one runs, the others wait. A debugger's server that stops only the thread that meets a
// breakpoint shows the same as one that stops all.
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

enum { THREADS = 3, ROUNDS = 2 };

static sem_t turns[THREADS + 1];
static pthread_barrier_t ready;
long total;

__attribute__((noinline)) long turn(int number, int round) {
    long before = total;
    total = before * 10 + number;
    return total - before + round;
}

static void *work(void *argument) {
    int number = (int)(long)argument;
    pthread_barrier_wait(&ready);
    for (int round = 0;; round++) {
        sem_wait(&turns[number]);
        turn(number, round);
        sem_post(&turns[(number + 1) % (THREADS + 1)]);
    }
    return NULL;
}

int main(void) {
    pthread_barrier_init(&ready, NULL, THREADS + 1);
    for (int i = 0; i <= THREADS; i++) {
        sem_init(&turns[i], 0, 0);
    }
    for (long i = 1; i <= THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, (void *)i);
    }
    pthread_barrier_wait(&ready);
    for (int round = 0; round < ROUNDS; round++) {
        turn(0, round);
        sem_post(&turns[1]);
        sem_wait(&turns[0]);
    }
    printf("total %ld\n", total);
    return 3;
}
