// Three thousand threads, for the lists of threads.
#include <pthread.h>

enum { COUNT = 3000 };

static pthread_barrier_t barrier;

__attribute__((noipa)) void hit(int number) {
    __asm__ volatile("" : : "r"(number));
}

static void *work(void *unused) {
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

int main(void) {
    static pthread_t threads[COUNT];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 32 << 10);
    pthread_barrier_init(&barrier, NULL, COUNT + 1);
    for (int i = 0; i < COUNT; i++) {
        if (pthread_create(&threads[i], &attributes, work, NULL)) {
            return 99;
        }
    }
    pthread_barrier_wait(&barrier);
    hit(COUNT);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < COUNT; i++) {
        pthread_join(threads[i], NULL);
    }
    return 3;
}
