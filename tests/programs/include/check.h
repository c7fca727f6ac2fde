// Ends a program at the first thing that is not as it should be, and says what it was.
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno)); \
            exit(1); \
        } \
    } while (0)
