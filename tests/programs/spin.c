// Never ends. ARG selects a plain loop, calls, or sleep.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile unsigned long counter;

__attribute__((noinline)) static void call(void) { counter++; }

int main(int argc, char **argv) {
    puts("spinning");
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "calls"))
        for (;;) call();
    if (argc > 1 && !strcmp(argv[1], "sleep"))
        for (;;) sleep(1000);
    if (argc > 1 && !strcmp(argv[1], "empty"))
        for (;;) __asm__ volatile("");
    for (;;) counter++;
}
