// String and memory functions at every alignment and many lengths.
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static unsigned char source[600], target[600];

static uint32_t checksum(const unsigned char *p, size_t n) {
    uint32_t h = 2166136261u;
    while (n--) h = (h ^ *p++) * 16777619u;
    return h;
}

static void alignments(void) {
    uint32_t total = 0;
    for (int from = 0; from < 17; from++)
        for (int to = 0; to < 17; to++)
            for (int length = 0; length < 300; length += 1 + length / 8) {
                memset(target, 0xee, sizeof target);
                memcpy(target + to, source + from, length);
                total = total * 31 + checksum(target, sizeof target);
                memmove(target + from, target + to, length);
                total = total * 31 + checksum(target, sizeof target);
                total += memcmp(target + from, source + from, length) != 0;
            }
    printf("copy %08x\n", total);
}

static void searches(void) {
    long total = 0;
    char text[300];
    for (int start = 0; start < 9; start++)
        for (int length = 0; length < 250; length += 3) {
            memset(text, 'a', sizeof text);
            text[start + length] = 0;
            if (length > 5) text[start + length - 3] = 'z';
            char *s = text + start;
            char *z = strchr(s, 'z'), *r = strrchr(s, 'a');
            total = total * 7 + (long)strlen(s) + (z ? z - s : -1) + (r ? r - s : -1);
            void *m = memchr(s, 'z', (size_t)length + 1);
            total = total * 3 + (m ? (char *)m - s : -1) + (long)strnlen(s, 100);
            total += strcmp(s, "aaaaaaaaaaaaaaaaaaa") > 0 ? 1 : 2;
            total += strncmp(s, "aaaz", 3) * 5 + (long)strspn(s, "a") + (long)strcspn(s, "z");
        }
    printf("search %ld\n", total);
}

int main(void) {
    for (size_t i = 0; i < sizeof source; i++) source[i] = (unsigned char)(i * 167 + 13);
    alignments();
    searches();
    char line[] = "one, two;three  four\tfive", *save, copy[64], low[64];
    for (char *t = strtok_r(line, ", ;\t", &save); t; t = strtok_r(NULL, ", ;\t", &save))
        printf("<%s>", t);
    puts("");
    printf("%s\n", strstr("the quick brown fox jumps", "brown"));
    printf("%d %d\n", strcasecmp("HeLLo", "hEllO"), strncasecmp("abcX", "ABCy", 4) < 0);
    strcpy(copy, "Mixed Case 123");
    for (int i = 0; (low[i] = (char)tolower((unsigned char)copy[i])); i++);
    printf("%s|%s|%s\n", copy, low, strpbrk(copy, "0123456789"));
    char *end;
    printf("%ld %s\n", strtol("  -0x7fzz", &end, 16), end);
    printf("%lu %llu\n", strtoul("777", NULL, 8), strtoull("18446744073709551616", NULL, 10));
    printf("%a %a %a\n", strtod("0x1.8p3", NULL), strtod("1e-320", NULL), strtod("1.1", NULL));
    printf("%s %s\n", strerror(2), strsignal(11));
    return 0;
}
