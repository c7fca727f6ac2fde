// Directory walk with ftw, readdir, scandir, glob and realpath.
#define _GNU_SOURCE
#include <dirent.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char *found[1000];
static int count;

static int visit(const char *path, const struct stat *s, int kind, struct FTW *at) {
    char line[600];
    long size = S_ISREG(s->st_mode) || S_ISLNK(s->st_mode) ? (long)s->st_size : 0;
    snprintf(line, sizeof line, "%d %d %s %o %ld", kind, at->level, path, s->st_mode, size);
    if (count < 1000) found[count++] = strdup(line);
    return 0;
}

static int compare(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }

static int hidden(const struct dirent *e) { return e->d_name[0] != '.'; }

int main(int argc, char **argv) {
    if (argc != 2) return 9;
    if (nftw(argv[1], visit, 16, FTW_PHYS)) return 1;
    qsort(found, (size_t)count, sizeof *found, compare);
    for (int i = 0; i < count; i++) puts(found[i]);

    struct dirent **list;
    int n = scandir(argv[1], &list, hidden, alphasort);
    for (int i = 0; i < n; i++) printf("%s type %d\n", list[i]->d_name, list[i]->d_type);

    // Seeking in a directory returns to the same entry.
    DIR *d = opendir(argv[1]);
    readdir(d);
    long place = telldir(d);
    struct dirent *e = readdir(d);
    char *name = strdup(e ? e->d_name : "");
    while (readdir(d));
    seekdir(d, place);
    e = readdir(d);
    printf("seekdir %d\n", e && strcmp(e->d_name, name) == 0);
    closedir(d);

    char pattern[300];
    snprintf(pattern, sizeof pattern, "%s/*.[tg]*", argv[1]);
    glob_t g;
    printf("glob %d\n", glob(pattern, 0, NULL, &g));
    for (size_t i = 0; i < g.gl_pathc; i++) puts(g.gl_pathv[i]);
    char real[PATH_MAX];
    snprintf(pattern, sizeof pattern, "%s/../%s/.", argv[1], strrchr(argv[1], '/') + 1);
    puts(realpath(pattern, real) ? real : "realpath failed");
    return 0;
}
