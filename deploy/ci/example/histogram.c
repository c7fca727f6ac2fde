// Prints how often each byte value is in standard input, and a checksum of all bytes.
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    static unsigned char buffer[1 << 16];
    static uint64_t counts[256];
    uint32_t checksum = 2166136261u; // FNV-1a
    ssize_t length;
    while ((length = read(STDIN_FILENO, buffer, sizeof buffer)) > 0)
        for (ssize_t i = 0; i < length; i++) {
            counts[buffer[i]]++;
            checksum = (checksum ^ buffer[i]) * 16777619u;
        }
    if (length < 0) {
        perror("histogram: standard input");
        return 1;
    }
    for (int value = 0; value < 256; value++)
        if (counts[value]) printf("%d %" PRIu64 "\n", value, counts[value]);
    printf("checksum %08" PRIx32 "\n", checksum);
    return 0;
}
