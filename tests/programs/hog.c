// Allocates ARG MiB in 1 MiB blocks and touches all of it; exit 5 when malloc refuses.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    long megabytes = argc > 1 ? atol(argv[1]) : 1;
    for (long i = 0; i < megabytes; i++) {
        char *p = malloc(1 << 20);
        if (!p) {
            puts("refused");
            return 5;
        }
        memset(p, (int)i, 1 << 20);
        if (i % 64 == 0) printf("%ld\n", i), fflush(stdout);
    }
    puts("done");
    return 0;
}
