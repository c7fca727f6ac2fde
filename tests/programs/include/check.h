// Ends the program at the first failed check, and prints the check.
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
