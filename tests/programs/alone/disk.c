/* A block device, or on Linux a file, as bytes.
 *
 * disk check PATH      writes and reads at odd positions, over the end, and after a seek
 * disk device PATH     what only a block device has
 * disk commit PATH     writes blocks with their numbers, says which are durable, for ever
 * disk random PATH N   N reads of 4 KiB at random places; prints how many a second
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
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

static void random_reads(int fd, long count) {
    uint64_t pages = lseek(fd, 0, SEEK_END) / 4096, state = 88172645463325252;
    struct timespec start, end;
    CHECK(pages > 0);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long n = 0; n < count; n++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        CHECK(pread(fd, buffer, 4096, state % pages * 4096) == 4096);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double time = end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9;
    printf("%.0f reads/s\n", count / time);
}

int main(int argc, char **argv) {
    CHECK(argc > 2);
    int reads = strcmp(argv[1], "random") == 0;
    int flags = reads ? O_RDONLY | (getenv("DIRECT") ? O_DIRECT : 0) : O_RDWR;
    int fd = open(argv[2], flags);
    CHECK(fd >= 0);
    if (strcmp(argv[1], "check") == 0)
        check(fd);
    else if (strcmp(argv[1], "device") == 0)
        device(fd, argv[2]);
    else if (strcmp(argv[1], "commit") == 0)
        commit(fd);
    else if (reads && argc > 3)
        random_reads(fd, atol(argv[3]));
    else
        return 2;
    return 0;
}
