// Use of a terminal. raw: reads single bytes without echo, until `q`;
// wait: reads lines until the end of the input; size: rows and columns.
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static int raw(void) {
    struct termios settings;
    if (tcgetattr(0, &settings)) return 1;
    cfmakeraw(&settings);
    if (tcsetattr(0, TCSANOW, &settings)) return 1;
    write(1, "ready\n", 6);
    for (char c = 0; c != 'q' && read(0, &c, 1) == 1;) {
        printf("<%02x>", c);
        fflush(stdout);
    }
    return 7;
}

static int wait_for_lines(void) {
    char line[100];
    write(1, "ready\n", 6);
    while (read(0, line, sizeof line) > 0) write(1, "line\n", 5);
    return 8;
}

static int size(void) {
    struct winsize window;
    if (ioctl(1, TIOCGWINSZ, &window)) return 1;
    printf("%d rows %d columns\n", window.ws_row, window.ws_col);
    return isatty(0) && isatty(2) ? 9 : 1;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (!strcmp(argv[1], "raw")) return raw();
    return strcmp(argv[1], "wait") ? size() : wait_for_lines();
}
