// A child patches its parent's code with process_vm_writev, without an announcement. Between the patch and the
// code, the parent only loads a word in memory that both have.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../include/assembler.h"

enum { ROUNDS = 20, HOT = 3000 };

static struct {
    _Atomic int asked, done;
} *both;

static void patch(pid_t parent, uint32_t *code, int value) {
    uint32_t new = addi(A0, ZERO, value);
    struct iovec from = {&new, 4}, to = {code, 4};
    if (process_vm_writev(parent, &from, 1, &to, 1, 0) != 4) exit(3);
}

int main(void) {
    uint32_t *code = map(RWX);
    both = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (both == MAP_FAILED) return 1;
    code[0] = addi(A0, ZERO, 0);
    code[1] = RET;
    // If the child fails, nobody answers.
    alarm(120);
    pid_t parent = getpid();
    pid_t child = fork();
    if (!child)
        for (int round = 1; round <= ROUNDS; round++) {
            while (both->asked != round) {}
            patch(parent, code, round);
            both->done = round;
        }
    else
        for (int round = 0; round <= ROUNDS; round++) {
            both->asked = round;
            while (both->done != round) {}
            for (int i = 0; i < HOT; i++)
                if (((long (*)(void))code)() != round) {
                    printf("round %d, call %d\n", round, i);
                    return 2;
                }
        }
    int status = 0;
    if (child && waitpid(child, &status, 0) != child) return 1;
    return child ? WEXITSTATUS(status) : 0;
}
