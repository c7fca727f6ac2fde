// File operations in a directory given as argument: create, write, read back, seek,
// truncate, links, rename, permissions, vectors, mapping, errors.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static void result(const char *what, long value) {
    if (value < 0)
        printf("%s: error %d\n", what, errno);
    else
        printf("%s: %ld\n", what, value);
}

static void status(const char *path) {
    struct stat s;
    if (lstat(path, &s) < 0)
        printf("%s: lstat error %d\n", path, errno);
    else
        printf("%s: mode %o links %lu size %ld\n", path, s.st_mode, (unsigned long)s.st_nlink,
               S_ISDIR(s.st_mode) ? 0L : (long)s.st_size);
}

static void contents(void) {
    char buffer[100];
    int fd = open("data", O_RDWR | O_CREAT | O_EXCL, 0640);
    result("write", write(fd, "0123456789", 10));
    result("pwrite", pwrite(fd, "AB", 2, 4));
    result("seek end", lseek(fd, -3, SEEK_END));
    result("read", read(fd, buffer, 100));
    result("seek past", lseek(fd, 5000, SEEK_SET));
    result("write", write(fd, "end", 3));
    result("pread hole", pread(fd, buffer, 10, 2000));
    printf("hole is %d %d\n", buffer[0], buffer[9]);
    struct iovec parts[3] = {{"one ", 4}, {"", 0}, {"three", 5}};
    result("writev", writev(fd, parts, 3));
    result("truncate", ftruncate(fd, 16));
    result("pread", pread(fd, buffer, 100, 0));
    printf("<%.16s>\n", buffer);
    result("bad seek", lseek(fd, -1, SEEK_SET));
    result("exists", open("data", O_CREAT | O_EXCL | O_WRONLY, 0600));
    int copy = dup(fd);
    lseek(copy, 2, SEEK_SET);
    result("shared position", lseek(fd, 0, SEEK_CUR));
    result("flags", fcntl(fd, F_GETFL) & O_ACCMODE);
    int append = open("data", O_WRONLY | O_APPEND);
    lseek(append, 0, SEEK_SET);
    result("append", write(append, "++", 2));
    result("read on write-only", read(append, buffer, 1));
    int out = open("copied", O_CREAT | O_TRUNC | O_RDWR, 0644);
    off_t from = 3;
    result("sendfile", sendfile(out, fd, &from, 8));
    char *map = mmap(NULL, 18, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    printf("<%.18s>\n", map);
    map[0] = 'Z';
    result("pread", pread(fd, buffer, 1, 0));
    printf("private: %c %c\n", map[0], buffer[0]);
    munmap(map, 18);
    close(copy), close(append), close(out), close(fd);
    result("closed", read(fd, buffer, 1));
}

static void names(void) {
    char buffer[100] = "";
    result("mkdir", mkdir("dir", 0755));
    result("mkdir again", mkdir("dir", 0755));
    result("link", link("data", "dir/hard"));
    result("symlink", symlink("../data", "dir/soft"));
    result("readlink", readlink("dir/soft", buffer, sizeof buffer));
    puts(buffer);
    status("data"), status("dir"), status("dir/soft");
    result("rename", rename("data", "dir/renamed"));
    result("dangling", open("dir/soft", O_RDONLY));
    result("nofollow", open("dir/soft", O_RDONLY | O_NOFOLLOW));
    result("symlink loop", symlink("loop", "loop"));
    result("open loop", open("loop", O_RDONLY));
    result("rmdir full", rmdir("dir"));
    result("rename onto directory", rename("copied", "dir"));
    result("chmod", chmod("copied", 0111));
    status("copied");
    result("access", access("copied", F_OK));
    result("missing", access("missing", F_OK));
    result("not a directory", open("copied/x", O_RDONLY));
    result("unlink", unlink("dir/hard"));
    status("dir/renamed");
    result("chdir", chdir("dir"));
    printf("cwd ends %s\n", strrchr(getcwd(buffer, sizeof buffer), '/'));
    result("up", chdir(".."));
    char name[300];
    memset(name, 'n', 299), name[299] = 0;
    result("long name", open(name, O_CREAT | O_WRONLY, 0600));
}

static void streams(void) {
    FILE *f = fopen("lines", "w+");
    for (int i = 0; i < 5000; i++) fprintf(f, "line %d of many\n", i);
    rewind(f);
    char line[64];
    long sum = 0;
    int count = 0;
    while (fgets(line, sizeof line, f)) sum += atoi(line + 5), count++;
    printf("%d lines, sum %ld, at %ld, eof %d\n", count, sum, ftell(f), feof(f) != 0);
    fseek(f, 100, SEEK_SET);
    ungetc('!', f);
    printf("%c%c\n", fgetc(f), fgetc(f));
    fclose(f);
    f = tmpfile();
    printf("tmpfile %d\n", f != NULL && fputs("x", f) >= 0 && fclose(f) == 0);
}

int main(int argc, char **argv) {
    if (argc != 2 || chdir(argv[1]) < 0) return 9;
    umask(022);
    contents();
    names();
    streams();
    int ends[2];
    char byte[4];
    result("pipe", pipe(ends));
    result("to pipe", write(ends[1], "abc", 3));
    close(ends[1]);
    result("from pipe", read(ends[0], byte, 4));
    result("end of pipe", read(ends[0], byte, 4));
    return 0;
}
