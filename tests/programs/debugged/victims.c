// A process that another one kills when the debugger asks for it: the first process, or a child.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

volatile struct orders {
    int victim;
    int kill;
} *orders;

__attribute__((noipa)) void hit(volatile struct orders *shared) {
    __asm__ volatile("" : : "r"(shared));
}

// Whether a process has ended, and its parent has not waited for it.
static int is_zombie(int pid) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file) {
        fgets(text, sizeof text, file);
        fclose(file);
    }
    return strstr(text, ") Z ") != NULL;
}

// The debugger does not know this process. The first process ends when the debugger continues it.
static void killer(void) {
    while (!orders->kill) {
        usleep(1000);
    }
    kill(orders->victim, SIGKILL);
    while (orders->victim != getppid() && !is_zombie(orders->victim)) {
        usleep(1000);
    }
    if (orders->kill == 1) {
        puts("sent");
        fflush(stdout);
    }
    _exit(0);
}

static void victim(void) {
    orders->victim = getpid();
    hit(orders);
    for (;;) {
        pause();
    }
}

int main(int argc, char **argv) {
    orders = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t other = fork();
    if (other == 0) {
        killer();
    }
    if (argc > 1 && !strcmp(argv[1], "first")) {
        victim();
    }
    pid_t child = fork();
    if (child == 0) {
        victim();
    }
    int status;
    waitpid(child, &status, 0);
    waitpid(other, NULL, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 99;
}
