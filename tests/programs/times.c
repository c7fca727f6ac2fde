// Clocks and sleeping: order, resolution and calendar arithmetic, not values.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>

static int64_t now(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t)) return -1;
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(void) {
    const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID,
                                CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME,
                                CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE};
    for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        int64_t last = now(clocks[i]);
        int forward = last >= 0;
        for (int k = 0; k < 2000; k++) {
            int64_t t = now(clocks[i]);
            forward &= t >= last;
            last = t;
        }
        printf("clock %d goes forward %d\n", clocks[i], forward);
    }
    struct timespec nap = {0, 30000000};
    int64_t before = now(CLOCK_MONOTONIC);
    int code = nanosleep(&nap, NULL);
    int64_t slept = now(CLOCK_MONOTONIC) - before;
    printf("nanosleep %d long enough %d not too long %d\n", code, slept >= 30000000,
           slept < 5000000000LL);
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_nsec += 20000000;
    if (deadline.tv_nsec >= 1000000000) deadline.tv_sec++, deadline.tv_nsec -= 1000000000;
    code = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL);
    printf("absolute %d\n", code);
    nap.tv_nsec = 1000000000;
    printf("invalid %d", nanosleep(&nap, NULL));
    printf(" %d\n", errno);

    struct timeval tv;
    time_t t = time(NULL);
    gettimeofday(&tv, NULL);
    printf("time %d\n", t > 1700000000 && tv.tv_sec - t <= 1);
    struct tms usage;
    struct rusage r;
    printf("times %d rusage %d\n", times(&usage) != (clock_t)-1, getrusage(RUSAGE_SELF, &r));

    const time_t moments[] = {0, 951782400, 1709164800, 2147483648, 4102444800, -1, -2208988800};
    for (unsigned i = 0; i < sizeof moments / sizeof *moments; i++) {
        struct tm parts;
        char text[80];
        gmtime_r(&moments[i], &parts);
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %a %j %U %G-W%V", &parts);
        printf("%ld %s %d\n", (long)moments[i], text, timegm(&parts) == moments[i]);
    }
    return 0;
}
