// Writes a lot: ARG MiB of numbered lines to standard output, some of it unbuffered,
// with a word on standard error in between. Reports EPIPE by exit code 3.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    unsigned long want = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1) << 20, written = 0;
    if (argc > 2 && !strcmp(argv[2], "ignore-sigpipe")) signal(SIGPIPE, SIG_IGN);
    if (argc > 2 && !strcmp(argv[2], "unbuffered")) setvbuf(stdout, NULL, _IONBF, 0);
    for (unsigned long i = 0; written < want; i++) {
        int n = printf("%lu: the line with number %lu, %lx in base 16\n", i, i * i, i * 7919);
        if (n < 0 || ferror(stdout)) return errno == EPIPE ? 3 : 4;
        written += (unsigned long)n;
        if (i % 50000 == 0) fprintf(stderr, "at line %lu\n", i);
    }
    return fflush(stdout) ? (errno == EPIPE ? 3 : 4) : 0;
}
