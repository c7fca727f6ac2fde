// Lists, floating point and a counter, for sessions of a debugger.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    int value;
    struct node *next;
};

int counter;
double last_half;

__attribute__((noinline)) int add(int a, int b) {
    counter++;
    return a + b;
}

__attribute__((noinline)) int sum(struct node *node) {
    int total = 0;
    while (node) {
        total = add(total, node->value);
        node = node->next;
    }
    return total;
}

__attribute__((noinline)) double half(double value) {
    last_half = value / 2;
    return last_half;
}

static void on_signal(int signal) {
    counter += signal;
}

int main(int argc, char **argv) {
    struct node *list = NULL;
    for (int i = 1; i <= 5; i++) {
        struct node *node = malloc(sizeof *node);
        node->value = i;
        node->next = list;
        list = node;
    }
    int total = sum(list);
    printf("sum %d, half %g\n", total, half(total));
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "crash")) {
        *(volatile int *)8 = 1;
    }
    if (argc > 1 && !strcmp(argv[1], "signal")) {
        signal(SIGUSR1, on_signal);
        raise(SIGUSR1);
    }
    volatile int *spins = &counter;
    while (argc > 1 && !strcmp(argv[1], "spin") && *spins >= 0) {
        ++*spins;
        *spins &= 0xffff;
    }
    return counter;
}
