// A child that counts, and gdb, which attaches to it: the program becomes gdb, with its arguments
// behind `-p PID`.
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

volatile long count;

int main(int argc, char **argv) {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            count++;
        }
    }
    char pid[20];
    snprintf(pid, sizeof pid, "%d", child);
    char *command[argc + 5];
    char *first[] = {"/usr/bin/gdb", "-nx", "-batch", "-p", pid};
    for (int i = 0; i < 5; i++) {
        command[i] = first[i];
    }
    for (int i = 1; i <= argc; i++) {
        command[i + 4] = argv[i];
    }
    execv(command[0], command);
    perror(command[0]);
    return 1;
}
