// Prints numbers for ever.
#include <stdio.h>
#include <unistd.h>

__attribute__((noinline)) void tick(int number) {
    printf("%d\n", number);
    fflush(stdout);
}

int main(void) {
    for (int number = 1;; number++) {
        tick(number);
        usleep(20000);
    }
}
