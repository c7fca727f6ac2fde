// Fills memory, which a core dump has, and ends by a null pointer (after SIGTERM: wait), a signal or
// itself. Usage: crash MIB null|wait|SIGNAL|end
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void inner(int *place, int depth) {
    if (depth == 0) {
        *place = 7;
    } else {
        inner(place, depth - 1);
    }
    __asm__ volatile("" ::: "memory");
}

int main(int count, char **arguments) {
    size_t length = (size_t)atoi(arguments[1]) << 20;
    unsigned char *memory = malloc(length + 1);
    for (size_t at = 0; at < length; at += 8) {
        memcpy(memory + at, &at, 8);
    }
    __asm__ volatile("" ::"r"(memory) : "memory");
    if (!strcmp(arguments[2], "wait")) {
        sigset_t set;
        int signal;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigprocmask(SIG_BLOCK, &set, NULL);
        puts("waits");
        fflush(stdout);
        sigwait(&set, &signal);
        inner(0, 2);
    } else if (!strcmp(arguments[2], "null")) {
        inner(0, 2);
    } else if (strcmp(arguments[2], "end")) {
        raise(atoi(arguments[2]));
    }
    return count == 0;
}
