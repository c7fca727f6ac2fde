// getopt and getopt_long over the program's own arguments.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    static const struct option table[] = {
        {"verbose", no_argument, NULL, 'v'},
        {"output", required_argument, NULL, 'o'},
        {"level", optional_argument, NULL, 'l'},
        {NULL, 0, NULL, 0},
    };
    int c, index = -1;
    opterr = 0;
    while ((c = getopt_long(argc, argv, "vo:l::x", table, &index)) != -1) {
        printf("option %c value %s long %d\n", c, optarg ? optarg : "(none)", index);
        index = -1;
    }
    for (int i = optind; i < argc; i++) printf("argument %d: <%s>\n", i - optind, argv[i]);
    return argc - optind;
}
