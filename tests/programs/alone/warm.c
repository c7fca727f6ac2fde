// Runs from a snapshot: reads lines of standard input, the first one after the snapshot, and does what they say. Memory, files,
// processes and threads show what an earlier run has left.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t HEAP = 4 << 20, PAGE = 4096;
static int counter;
static unsigned char *heap;
// A page with MADV_WIPEONFORK, and one without after it. All bytes are 1 at first.
static unsigned char *secrets;

static void *wait_forever(void *argument) {
    for (;;)
        pause();
    return argument;
}

// Prints the number of earlier uses, as the parts of the state tell, and changes them.
static void count(void) {
    struct stat file;
    int files = stat("/left", &file) == 0;
    const char *variable = getenv("LEFT");
    printf("%d %d %d %d\n", counter, heap[HEAP / 2], files, variable != NULL);
    counter++;
    memset(heap, heap[0] + 1, HEAP);
    close(open("/left", O_CREAT | O_WRONLY, 0600));
    setenv("LEFT", "1", 1);
    if (fork() == 0)
        for (;;)
            ;
    pthread_t thread;
    pthread_create(&thread, NULL, wait_forever, NULL);
}

// Prints the first byte of a page with MADV_WIPEONFORK and of one without, and changes all bytes of both.
static void compare(void) {
    printf("%d %d\n", secrets[0], secrets[PAGE]);
    memset(secrets, 7, 2 * PAGE);
}

static void print_lines(FILE *file, int lines) {
    for (int line = 0; line < lines; line++)
        fprintf(file, "%07d\n", line);
}

int main(int argc, char **argv) {
    char line[256], word[16];
    int number;
    heap = calloc(1, HEAP);
    secrets = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(secrets, PAGE, MADV_WIPEONFORK);
    memset(secrets, 1, 2 * PAGE);
    // An argument shows that all is prepared.
    if (argc > 1)
        puts(argv[1]);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        number = 0;
        if (sscanf(line, "%15s %d", word, &number) < 1)
            continue;
        if (strcmp(word, "count") == 0)
            count();
        else if (strcmp(word, "wiped") == 0)
            compare();
        else if (strcmp(word, "exit") == 0)
            exit(number);
        else if (strcmp(word, "signal") == 0)
            raise(number);
        else if (strcmp(word, "crash") == 0)
            *(volatile int *)(uintptr_t)(64 + number) = 1;
        else if (strcmp(word, "spin") == 0)
            for (;;)
                ;
        else if (strcmp(word, "sleep") == 0)
            sleep((unsigned)number);
        else if (strcmp(word, "lines") == 0)
            print_lines(stdout, number);
        else if (strcmp(word, "errors") == 0)
            print_lines(stderr, number);
        else if (strcmp(word, "endless") == 0)
            for (;;)
                print_lines(stdout, 1000);
        else
            printf("%s", line);
        fflush(stdout);
    }
    return 0;
}
