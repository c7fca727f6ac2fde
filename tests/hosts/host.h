// What the hosts in C share.
#pragma once
#include "hartline_host.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT = 60000 };

// The descriptors of the process that has started this one.
static int inherited[1024];

#define CHECK(condition)                                                                                        \
    do {                                                                                                        \
        if (!(condition)) {                                                                                     \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, hartline_last_error());          \
            exit(1);                                                                                            \
        }                                                                                                       \
    } while (0)

static int says(const char *text) {
    return strstr(hartline_last_error(), text) != NULL;
}

// Notes the descriptors of this process before the library has any.
static void note_inherited(void) {
    for (int number = 0; number < 1024; number++)
        inherited[number] = fcntl(number, F_GETFD) != -1;
}

// A program that this process executes now inherits nothing of the library.
static void check_close_on_exec(void) {
    for (int number = 0; number < 1024; number++) {
        int flags = fcntl(number, F_GETFD);
        CHECK(flags == -1 || (flags & FD_CLOEXEC) || inherited[number]);
    }
}

// The number of entries of a folder in /proc/self, without those of this look.
static int entries(const char *folder) {
    int number = 0;
    DIR *open = opendir(folder);
    CHECK(open != NULL);
    for (struct dirent *entry; (entry = readdir(open)) != NULL;)
        number += entry->d_name[0] != '.';
    CHECK(closedir(open) == 0);
    return number;
}

// Waits until this process has one thread and at most so many descriptors.
static void await_rest(int descriptors) {
    for (int patience = 0; patience < 6000; patience++) {
        if (entries("/proc/self/task") == 1 && entries("/proc/self/fd") <= descriptors)
            return;
        usleep(10000);
    }
    fprintf(stderr, "%d threads, %d descriptors, before %d\n", entries("/proc/self/task"), entries("/proc/self/fd"),
            descriptors);
    exit(1);
}
