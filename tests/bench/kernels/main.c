//   kernels NAME ROUNDS
#include "kernels.h"

static const struct {
    const char *name;
    kernel *run;
} all[] = {
    {"calls", calls},
    {"chase", chase},
    {"fft", fft},
    {"fibonacci", fibonacci},
    {"indirect", indirect},
    {"interpreter", interpreter},
    {"mandelbrot", mandelbrot},
    {"matmul", matmul},
    {"mixed", mixed},
    {"nbody", nbody},
    {"quicksort", quicksort},
    {"search", search},
    {"sieve", sieve},
};

int main(int argc, char **argv) {
    if (argc == 3)
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (strcmp(argv[1], all[i].name) == 0) {
                all[i].run(strtoul(argv[2], NULL, 10));
                return 0;
            }
    fputs("usage: kernels NAME ROUNDS\n", stderr);
    return 2;
}
