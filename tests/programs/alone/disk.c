/* A block device, or on Linux a file, as bytes.
 *
 * disk check PATH      writes and reads at odd positions, over the end, and after a seek
 * disk device PATH     what only a block device has
 * disk commit PATH     writes blocks with their numbers, says which are durable, for ever
 * disk tasks PATH      processes and threads write beside one another, in the same sectors
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../include/check.h"

static char buffer[1 << 20] __attribute__((aligned(4096))), back[1 << 20];

static void check(int fd) {
    static const struct {
        long at, length;
    } pieces[] = {{0, 512}, {1, 1}, {511, 2}, {700, 5000}, {4096, 4096}, {100000, 300000}, {512, 0}};
    off_t end = lseek(fd, 0, SEEK_END);
    CHECK(end >= 1 << 20);
    for (unsigned n = 0; n < sizeof pieces / sizeof *pieces; n++) {
        long at = pieces[n].at, length = pieces[n].length;
        for (long byte = 0; byte < length; byte++)
            buffer[byte] = (byte * 7 + (byte >> 9) + n) ^ 0x55;
        CHECK(pwrite(fd, buffer, length, at) == length);
        CHECK(pread(fd, back, length, at) == length);
        CHECK(memcmp(buffer, back, length) == 0);
    }
    /* Bytes beside those that were written stay. */
    memset(buffer, 'a', 2048);
    CHECK(pwrite(fd, buffer, 2048, 8192) == 2048 && pwrite(fd, "b", 1, 8192 + 600) == 1);
    CHECK(pread(fd, back, 2048, 8192) == 2048);
    buffer[600] = 'b';
    CHECK(memcmp(buffer, back, 2048) == 0);
    /* The position. */
    CHECK(lseek(fd, 1000, SEEK_SET) == 1000 && write(fd, "12345", 5) == 5);
    CHECK(lseek(fd, -5, SEEK_CUR) == 1000 && read(fd, back, 3) == 3 && memcmp(back, "123", 3) == 0);
    struct iovec parts[2] = {{back, 1}, {back + 1, 1}};
    CHECK(readv(fd, parts, 2) == 2 && memcmp(back, "45", 2) == 0);
    /* The end. */
    CHECK(pread(fd, back, 100, end - 10) == 10 && pread(fd, back, 100, end) == 0);
    CHECK(fsync(fd) == 0 && fdatasync(fd) == 0);
    puts("checked");
}

static void device(int fd, const char *path) {
    struct stat status;
    CHECK(fstat(fd, &status) == 0 && S_ISBLK(status.st_mode));
    unsigned long sectors;
    uint64_t size;
    int sector, read_only;
    CHECK(ioctl(fd, BLKGETSIZE, &sectors) == 0 && ioctl(fd, BLKGETSIZE64, &size) == 0);
    CHECK(ioctl(fd, BLKSSZGET, &sector) == 0 && ioctl(fd, BLKROGET, &read_only) == 0);
    CHECK(size == sectors * 512 && sector == 512 && read_only == 0);
    CHECK(pwrite(fd, "xyz", 3, size - 1) == 1);
    CHECK(pwrite(fd, "x", 1, size) == -1 && errno == ENOSPC);
    memset(buffer, 'a', 8192);
    CHECK(pwrite(fd, buffer, 8192, 0) == 8192);
    uint64_t range[2] = {4096, 4096}, odd[2] = {1, 512}, outside[2] = {size, 512};
    CHECK(ioctl(fd, BLKDISCARD, range) == 0);
    CHECK(ioctl(fd, BLKDISCARD, odd) == -1 && errno == EINVAL);
    CHECK(ioctl(fd, BLKDISCARD, outside) == -1 && errno == EINVAL);
    CHECK(pread(fd, back, 4096, 0) == 4096 && memcmp(buffer, back, 4096) == 0);
    CHECK(ioctl(fd, BLKFLSBUF) == 0 && ioctl(fd, 0x12ff) == -1 && errno == ENOTTY);
    CHECK(open(path, O_RDWR | O_CREAT | O_TRUNC, 0600) >= 0);
    printf("%lu sectors\n", sectors);
}

static void commit(int fd) {
    CHECK(lseek(fd, 0, SEEK_END) >= 1 << 20);
    for (uint64_t n = 1;; n++) {
        uint64_t block[64];
        for (int word = 0; word < 64; word++)
            block[word] = n;
        CHECK(pwrite(fd, block, sizeof block, n % 2048 * 512) == sizeof block);
        CHECK(fsync(fd) == 0);
        printf("%lu\n", (unsigned long)n);
        fflush(stdout);
    }
}

enum { TASKS = 6, RECORDS = 80, RECORD = 700 };

static int shared;

/* Writes every sixth record, and looks at what it wrote. */
static void *task(void *argument) {
    long number = (long)argument;
    char record[RECORD], again[RECORD];
    for (long n = 0; n < RECORDS; n++) {
        off_t at = (n * TASKS + number) * RECORD;
        memset(record, 'a' + (n + number) % 26, RECORD);
        CHECK(pwrite(shared, record, RECORD, at) == RECORD);
        if (n % 16 == number)
            CHECK(fdatasync(shared) == 0);
        CHECK(pread(shared, again, RECORD, at) == RECORD);
        CHECK(memcmp(record, again, RECORD) == 0);
    }
    return NULL;
}

static void tasks(int fd) {
    pthread_t threads[TASKS / 2];
    pid_t processes[TASKS / 2];
    shared = fd;
    for (long n = 0; n < TASKS / 2; n++) {
        processes[n] = fork();
        CHECK(processes[n] >= 0);
        if (processes[n] == 0) {
            task((void *)(TASKS / 2 + n));
            _exit(0);
        }
    }
    for (long n = 0; n < TASKS / 2; n++)
        CHECK(pthread_create(&threads[n], NULL, task, (void *)n) == 0);
    /* One that is killed while it reads and writes takes nothing with it. */
    pid_t killed = fork();
    CHECK(killed >= 0);
    for (off_t at = 1 << 20; killed == 0; at ^= 4096)
        CHECK(pread(fd, back, 300000, at) == 300000 && pwrite(fd, back, 300000, at) == 300000);
    for (int n = 0; n < TASKS / 2; n++) {
        int status;
        CHECK(pthread_join(threads[n], NULL) == 0);
        CHECK(waitpid(processes[n], &status, 0) == processes[n] && status == 0);
    }
    CHECK(kill(killed, SIGKILL) == 0 && waitpid(killed, NULL, 0) == killed);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    for (long n = 0; n < RECORDS * TASKS; n++) {
        CHECK(read(fd, back, RECORD) == RECORD);
        for (int byte = 0; byte < RECORD; byte++)
            CHECK(back[byte] == 'a' + (n / TASKS + n % TASKS) % 26);
    }
    puts("all there");
}

int main(int argc, char **argv) {
    CHECK(argc > 2);
    int fd = open(argv[2], O_RDWR);
    CHECK(fd >= 0);
    if (strcmp(argv[1], "check") == 0)
        check(fd);
    else if (strcmp(argv[1], "device") == 0)
        device(fd, argv[2]);
    else if (strcmp(argv[1], "commit") == 0)
        commit(fd);
    else if (strcmp(argv[1], "tasks") == 0)
        tasks(fd);
    else
        return 2;
    return 0;
}
