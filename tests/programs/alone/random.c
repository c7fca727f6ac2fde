// Random numbers: of the entropy device, and of the generator that it seeds.
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../include/check.h"

static unsigned char first[1 << 16], second[1 << 16];

/* Each value of a byte about as often as any other. */
static void check_bytes(const unsigned char *bytes, size_t length) {
    size_t counts[256] = {0};
    for (size_t n = 0; n < length; n++)
        counts[bytes[n]]++;
    for (int value = 0; value < 256; value++)
        CHECK(counts[value] > length / 256 / 2 && counts[value] < length / 256 * 2);
}

int main(void) {
    struct stat status;
    int device = open("/dev/hwrng", O_RDWR);
    CHECK(device >= 0 && fstat(device, &status) == 0);
    CHECK(S_ISCHR(status.st_mode) && status.st_rdev == makedev(10, 183));
    CHECK(read(device, first, 5) == 5 && read(device, first, 0) == 0);
    CHECK(read(device, first, sizeof first) == sizeof first);
    CHECK(read(device, second, sizeof second) == sizeof second);
    CHECK(memcmp(first, second, sizeof first) != 0);
    check_bytes(first, sizeof first);
    CHECK(write(device, first, 1) == -1 && errno == EINVAL);

    int pool = open("/dev/urandom", O_RDWR);
    int bits = 0;
    struct {
        struct rand_pool_info head;
        unsigned char bytes[8];
    } more = {{64, 8}, "entropy"};
    CHECK(pool >= 0 && ioctl(pool, RNDGETENTCNT, &bits) == 0 && bits == 256);
    CHECK(getrandom(first, sizeof first, 0) == sizeof first);
    CHECK(ioctl(pool, RNDRESEEDCRNG) == 0 && ioctl(pool, RNDADDENTROPY, &more) == 0);
    more.head.buf_size = -1;
    CHECK(ioctl(pool, RNDADDENTROPY, &more) == -1 && errno == EINVAL);
    CHECK(ioctl(pool, RNDADDENTROPY, 1) == -1 && errno == EFAULT);
    CHECK(write(pool, "more", 4) == 4 && ioctl(pool, 0x5299) == -1 && errno == EINVAL);
    CHECK(read(pool, second, sizeof second) == sizeof second);
    CHECK(memcmp(first, second, sizeof first) != 0);
    check_bytes(second, sizeof second);

    CHECK(setuid(1000) == 0 && ioctl(pool, RNDRESEEDCRNG) == -1 && errno == EPERM);
    CHECK(open("/dev/hwrng", O_RDONLY) == -1 && errno == EACCES);
    puts("random");
    return 0;
}
