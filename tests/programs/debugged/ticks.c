// Prints numbers for ever.
#include <stdio.h>
#include <unistd.h>

int last;
int *volatile place = &last;

__attribute__((noinline)) void tick(int number) {
    *place = number;
    printf("%d\n", number);
    fflush(stdout);
}

int main(void) {
    for (int number = 1;; number++) {
        tick(number);
        usleep(20000);
    }
}
