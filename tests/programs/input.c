// Reads all of standard input in three ways (read, fgets, getchar) and sums it up.
#include <stdio.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    uint64_t hash = 14695981039346656037ull;
    unsigned long bytes = 0, lines = 0, words = 0;
    if (argc > 1 && !strcmp(argv[1], "read")) {
        static unsigned char buffer[100000];
        ssize_t n;
        while ((n = read(0, buffer, sizeof buffer)) > 0)
            for (ssize_t i = 0; i < n; i++, bytes++) {
                hash = (hash ^ buffer[i]) * 1099511628211ull;
                lines += buffer[i] == '\n';
            }
        if (n < 0) return 1;
    } else if (argc > 1 && !strcmp(argv[1], "lines")) {
        char line[256];
        while (fgets(line, sizeof line, stdin)) {
            lines++;
            bytes += strlen(line);
            for (char *c = line; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
        }
    } else {
        int c, in_word = 0;
        while ((c = getchar()) != EOF) {
            bytes++;
            hash = (hash ^ (unsigned)c) * 1099511628211ull;
            if (c == '\n') lines++;
            if (c > ' ' && !in_word) words++;
            in_word = c > ' ';
        }
    }
    printf("%lu bytes %lu lines %lu words %016llx\n", bytes, lines, words,
           (unsigned long long)hash);
    return 0;
}
