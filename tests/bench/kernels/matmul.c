// Product of two matrices of doubles, in blocks that fit the first-level cache.
#include "kernels.h"

enum { SIZE = 240, BLOCK = 40 };

typedef double matrix[SIZE][SIZE];

static NOINLINE void multiply(matrix a, matrix b, matrix product) {
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++)
            product[i][j] = 0;
    for (int rows = 0; rows < SIZE; rows += BLOCK)
        for (int inner = 0; inner < SIZE; inner += BLOCK)
            for (int columns = 0; columns < SIZE; columns += BLOCK)
                for (int i = rows; i < rows + BLOCK; i++)
                    for (int k = inner; k < inner + BLOCK; k++) {
                        double factor = a[i][k];
                        for (int j = columns; j < columns + BLOCK; j++)
                            product[i][j] += factor * b[k][j];
                    }
}

void matmul(unsigned rounds) {
    static matrix a, b, product;
    uint32_t random = 1;
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++) {
            a[i][j] = next_fraction(&random) / 128;
            b[i][j] = next_fraction(&random);
        }
    for (unsigned round = 0; round < rounds; round++) {
        multiply(a, b, product);
        // The next round depends on this one.
        memcpy(b, product, sizeof b);
        for (int i = 0; i < SIZE; i++)
            b[i][i] += 1;
    }
    printf("matmul %016llx %.17g\n", (unsigned long long)checksum(b, sizeof b), b[7][11]);
}
