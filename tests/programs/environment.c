// Arguments, environment, auxiliary vector, limits and identity.
#define _GNU_SOURCE
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

extern char **environ;
extern char _start[];
extern const Elf64_Ehdr __ehdr_start;

static int compare(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) printf("argument %d: %zu <%s>\n", i, strlen(argv[i]), argv[i]);
    int count = 0;
    while (environ[count]) count++;
    qsort(environ, (size_t)count, sizeof *environ, compare);
    for (int i = 0; i < count; i++) puts(environ[i]);
    setenv("ADDED", "yes", 1);
    unsetenv("PATH");
    printf("%s %s\n", getenv("ADDED"), getenv("PATH") ? "PATH" : "no PATH");

    const Elf64_Phdr *headers = (const Elf64_Phdr *)getauxval(AT_PHDR);
    const char *random = (const char *)getauxval(AT_RANDOM);
    int distinct = 0;
    for (int i = 1; i < 16; i++) distinct += random[i] != random[0];
    printf("page %lu tick %lu secure %lu flags %lu\n", getauxval(AT_PAGESZ), getauxval(AT_CLKTCK),
           getauxval(AT_SECURE), getauxval(AT_FLAGS));
    printf("entry %d headers %d %lu %lu random %d\n", getauxval(AT_ENTRY) == (uintptr_t)_start,
           (uintptr_t)headers == (uintptr_t)&__ehdr_start + __ehdr_start.e_phoff,
           getauxval(AT_PHENT), getauxval(AT_PHNUM), distinct > 0);
    unsigned long letters = 0;
    for (const char *l = "imafdc"; *l; l++) letters |= 1ul << (*l - 'a');
    printf("hwcap %lx\n", getauxval(AT_HWCAP) & letters);
    printf("stack aligned %d\n", ((uintptr_t)(argv - 1)) % 16 == 0);

    struct utsname u;
    uname(&u);
    printf("%s %s\n", u.sysname, u.machine);
    struct rlimit limit;
    printf("stack limit %d\n", getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur >= 1 << 20);
    printf("pid %d tty %d page %ld\n", getpid() > 0, isatty(0), sysconf(_SC_PAGESIZE));
    return 0;
}
