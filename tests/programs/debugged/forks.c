// A process, its child, and what both have after the fork, for sessions of a debugger that follows one of them.
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int value = 5;

__attribute__((noinline)) int hit(int number) {
    value += number;
    return value;
}

int main(void) {
    hit(1);
    pid_t child = fork();
    if (child == 0) {
        hit(20);
        hit(300);
        _exit(4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    hit(4000);
    printf("value %d, child %d\n", value, WEXITSTATUS(status));
    return 6;
}
