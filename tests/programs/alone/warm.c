// Runs from a snapshot: reads lines of standard input, the first one after the snapshot, and does what they say. Memory, files,
// processes and threads show what an earlier run has left.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t HEAP = 4 << 20;
static int counter;
static unsigned char *heap;

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

static void print_lines(FILE *file, int lines) {
    for (int line = 0; line < lines; line++)
        fprintf(file, "%07d\n", line);
}

int main(void) {
    char line[256], word[16];
    int number;
    heap = calloc(1, HEAP);
    while (fgets(line, sizeof line, stdin) != NULL) {
        number = 0;
        if (sscanf(line, "%15s %d", word, &number) < 1)
            continue;
        if (strcmp(word, "count") == 0)
            count();
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
