// The Mandelbrot set, a point at a time: registers, multiplications and one comparison.
#include "kernels.h"

enum { WIDTH = 200, HEIGHT = 160, LIMIT = 500 };

static NOINLINE unsigned escape(double re, double im) {
    double x = 0, y = 0;
    for (unsigned i = 0; i < LIMIT; i++) {
        double xx = x * x, yy = y * y;
        if (xx + yy > 4)
            return i;
        y = 2 * x * y + im;
        x = xx - yy + re;
    }
    return LIMIT;
}

void mandelbrot(unsigned rounds) {
    static uint16_t picture[HEIGHT][WIDTH];
    uint64_t sum = 0;
    for (unsigned round = 0; round < rounds; round++) {
        // Every round zooms in a little at the same point.
        double scale = 3.0 / (1 + round / 16.0);
        for (int row = 0; row < HEIGHT; row++)
            for (int column = 0; column < WIDTH; column++)
                picture[row][column] = escape((column - WIDTH * 0.7) * scale / WIDTH,
                                              (row - HEIGHT * 0.5) * scale / HEIGHT);
        sum = sum * 31 + checksum(picture, sizeof picture);
    }
    printf("mandelbrot %016llx\n", (unsigned long long)sum);
}
