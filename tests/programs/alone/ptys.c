// Pseudo-terminals: the line discipline, window sizes, sessions and job control on them.
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <termios.h>
#include <utmp.h>
#include <unistd.h>

static int master, slave;

static void fail(const char *what) {
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static void show(const char *what, const char *bytes, size_t count) {
    printf("%s:", what);
    for (size_t i = 0; i < count; i++)
        printf(isgraph((unsigned char)bytes[i]) ? " %c" : " %02x", (unsigned char)bytes[i]);
    putchar('\n');
}

// Reads `count` bytes, in any number of pieces.
static void take(const char *what, int fd, size_t count) {
    char bytes[256];
    size_t done = 0;
    while (done < count) {
        ssize_t got = read(fd, bytes + done, count - done);
        if (got <= 0) fail(what);
        done += got;
    }
    show(what, bytes, done);
}

// One read.
static void once(const char *what, int fd, size_t most) {
    char bytes[256];
    ssize_t got = read(fd, bytes, most);
    if (got < 0)
        printf("%s: %s\n", what, strerror(errno));
    else
        show(what, bytes, got);
}

static void type(const char *keys) {
    if (write(master, keys, strlen(keys)) != (ssize_t)strlen(keys)) fail("type");
}

// The result of poll, which waits until there is an event.
static void ready(const char *what, int fd, short events) {
    struct pollfd poll_fd = {fd, events, 0};
    int count = poll(&poll_fd, 1, 1000);
    printf("%s: %d %#x\n", what, count, poll_fd.revents);
}

static void open_pair(void) {
    struct stat of_slave;
    unsigned number;
    int locked;
    if ((master = posix_openpt(O_RDWR | O_NOCTTY)) < 0) fail("posix_openpt");
    if (ioctl(master, TIOCGPTN, &number) || ioctl(master, TIOCGPTLCK, &locked)) fail("TIOCGPTN");
    char *name = ptsname(master), expected[32];
    snprintf(expected, sizeof expected, "/dev/pts/%u", number);
    printf("name %s, locked %d\n", strcmp(name, expected) ? "differs" : "fits", locked);
    slave = open(name, O_RDWR | O_NOCTTY);
    printf("locked: %d %s\n", slave, strerror(errno));
    if (grantpt(master) || unlockpt(master)) fail("unlockpt");
    if ((slave = open(name, O_RDWR | O_NOCTTY)) < 0 || fstat(slave, &of_slave)) fail("open");
    printf("character device %d, number %d, major %d\n", S_ISCHR(of_slave.st_mode),
           minor(of_slave.st_rdev) == number, major(of_slave.st_rdev));
    printf("terminals %d %d, ttyname %d\n", isatty(master), isatty(slave),
           !strcmp(ttyname(slave), name));
    int peer = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
    printf("peer %d\n", peer >= 0 && isatty(peer));
    close(peer);
    long position = lseek(slave, 0, SEEK_CUR);
    printf("position %ld %s\n", position, strerror(errno));
}

static void lines(void) {
    struct termios settings;
    if (tcgetattr(slave, &settings)) fail("tcgetattr");
    printf("settings %o %o %o %o\n", settings.c_iflag, settings.c_oflag, settings.c_cflag & ~CBAUD,
           settings.c_lflag);
    show("characters", (char *)settings.c_cc, 17);
    type("hello\r");
    once("line", slave, 100);
    take("echo", master, 7);
    type("helq\x7fp me\x17you\x15nothing\x16\x03 \t!\n");
    once("edited", slave, 100);
    take("echo", master, 4 + 3 + 1 + 3 + 2 * 3 + 3 + 8 * 3 + 7 + 2 + 2 + 1 + 1 + 1 + 2);
    type("two\nlines\n");
    once("part", slave, 2);
    once("rest", slave, 100);
    once("second", slave, 100);
    type("no newline\x04\x04");
    once("end", slave, 100);
    once("end again", slave, 100);
    take("echo", master, 5 + 7 + 10);
    if (write(slave, "out\n\tput\n", 9) != 9) fail("write");
    take("output", master, 11);
    // Settings read and changed through the master.
    settings.c_lflag &= ~ECHO;
    if (tcsetattr(master, TCSANOW, &settings) || tcgetattr(slave, &settings)) fail("tcsetattr");
    printf("echo %d\n", (settings.c_lflag & ECHO) != 0);
    type("unseen\n");
    once("line", slave, 100);
    int waiting = 1;
    ioctl(master, FIONREAD, &waiting);
    printf("echoed %d\n", waiting);
}

static void raw(void) {
    struct termios settings;
    tcgetattr(slave, &settings);
    struct termios before = settings;
    cfmakeraw(&settings);
    if (tcsetattr(slave, TCSANOW, &settings)) fail("tcsetattr");
    type("a\r\x03");
    take("raw", slave, 3);
    settings.c_cc[VMIN] = 0, settings.c_cc[VTIME] = 0;
    tcsetattr(slave, TCSANOW, &settings);
    once("nothing", slave, 10);
    settings.c_cc[VTIME] = 1;
    tcsetattr(slave, TCSANOW, &settings);
    once("nothing for a while", slave, 10);
    settings.c_cc[VMIN] = 5;
    tcsetattr(slave, TCSANOW, &settings);
    type("xyz");
    once("less after a while", slave, 10);
    settings.c_cc[VMIN] = 2, settings.c_cc[VTIME] = 0;
    tcsetattr(slave, TCSANOW, &settings);
    type("pq");
    once("two", slave, 10);
    fcntl(slave, F_SETFL, O_RDWR | O_NONBLOCK);
    once("would block", slave, 10);
    fcntl(slave, F_SETFL, O_RDWR);
    if (write(slave, "\n", 1) != 1) fail("write");
    take("as it is", master, 1);
    type("dropped");
    ready("typed", slave, POLLIN);
    tcflush(slave, TCIFLUSH);
    ready("flushed", slave, POLLOUT);
    tcsetattr(slave, TCSAFLUSH, &before);
    tcflow(slave, TCOOFF);
    struct pollfd stopped = {slave, POLLOUT, 0};
    printf("stopped %d\n", poll(&stopped, 1, 0));
    tcflow(slave, TCOON);
    ready("goes on", slave, POLLOUT);
}

static volatile sig_atomic_t signalled;
static void note(int signal) { signalled = signal; }

// A child that leads a session on the slave, and says so with a byte.
static pid_t session(void (*what)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child) {
        close(slave);
        return child;
    }
    close(master);
    if (login_tty(slave)) _exit(99);
    what();
    fflush(NULL);
    _exit(0);
}

// A new pair without echo.
static void fresh_pair(void) {
    struct termios settings;
    if (openpty(&master, &slave, NULL, NULL, NULL)) fail("openpty");
    tcgetattr(slave, &settings);
    settings.c_lflag &= ~ECHO;
    tcsetattr(slave, TCSANOW, &settings);
}

static void status_of(const char *what, pid_t child, int options) {
    int status;
    if (waitpid(child, &status, options) != child) fail(what);
    if (WIFEXITED(status)) printf("%s: exit %d\n", what, WEXITSTATUS(status));
    if (WIFSIGNALED(status)) printf("%s: signal %d\n", what, WTERMSIG(status));
    if (WIFSTOPPED(status)) printf("%s: stopped %d\n", what, WSTOPSIG(status));
    if (WIFCONTINUED(status)) printf("%s: continued\n", what);
}

static void leader(void) {
    pid_t self = getpid();
    int tty = open("/dev/tty", O_RDWR);
    dprintf(1, "%d%d%d%d%d\n", tcgetpgrp(0) == self, tcgetsid(0) == self, getsid(0) == self,
            tty >= 0, tcgetpgrp(tty) == self);
    // The signal is blocked except while this waits, because it may arrive earlier.
    sigset_t window, before;
    sigemptyset(&window);
    sigaddset(&window, SIGWINCH);
    sigprocmask(SIG_BLOCK, &window, &before);
    signal(SIGWINCH, note);
    write(1, ".", 1);
    while (!signalled) sigsuspend(&before);
    struct winsize size;
    ioctl(0, TIOCGWINSZ, &size);
    dprintf(1, "%d: %d x %d\n", signalled == SIGWINCH, size.ws_row, size.ws_col);
}

static void wait_for_signal(void) {
    write(1, ".", 1);
    for (;;) pause();
}

static void stop_and_go(void) {
    write(1, ".", 1);
    char line[10];
    ssize_t count = read(0, line, sizeof line);
    dprintf(1, "%zd\n", count);
}

// A minimal shell. A foreground job stops, continues in the background, stops there when it
// reads, and continues in the foreground.
static void shell(void) {
    char line[20];
    int status;
    signal(SIGTTOU, SIG_IGN);
    pid_t job = fork();
    if (!job) {
        setpgid(0, 0);
        tcsetpgrp(0, getpid());
        signal(SIGTTOU, SIG_DFL);
        stop_and_go();
        _exit(7);
    }
    setpgid(job, job);
    waitpid(job, &status, WUNTRACED);
    dprintf(1, "stopped %d\n", WIFSTOPPED(status) ? WSTOPSIG(status) : -1);
    tcsetpgrp(0, getpid());
    kill(-job, SIGCONT);
    // If it reads at once, that stops it, and waitpid does not report that it continued.
    waitpid(job, &status, WCONTINUED | WUNTRACED);
    int has_stopped = WIFSTOPPED(status);
    dprintf(1, "continued %d\n", has_stopped || WIFCONTINUED(status));
    if (!has_stopped) waitpid(job, &status, WUNTRACED);
    dprintf(1, "in the background %d\n", WIFSTOPPED(status) ? WSTOPSIG(status) : -1);
    tcsetpgrp(0, job);
    kill(-job, SIGCONT);
    waitpid(job, &status, 0);
    dprintf(1, "exit %d\n", WEXITSTATUS(status));
    tcsetpgrp(0, getpid());
    dprintf(1, "read %zd\n", read(0, line, sizeof line));
}

// A session leader that ends while a job is stopped: the job gets SIGHUP.
static void leave_stopped_job(void) {
    int status;
    pid_t between = fork();
    if (!between) {
        pid_t job = fork();
        if (!job) {
            setpgid(0, 0);
            signal(SIGHUP, note);
            write(1, ".", 1);
            raise(SIGSTOP);
            // The leader reports first.
            usleep(50000);
            dprintf(1, "hung up %d\n", signalled == SIGHUP);
            _exit(0);
        }
        waitpid(job, &status, WUNTRACED);
        _exit(WIFSTOPPED(status) ? 5 : 6);
    }
    waitpid(between, &status, 0);
    dprintf(1, "left %d\n", WEXITSTATUS(status));
    // The job writes before the terminal is gone.
    usleep(200000);
}

static void job_control(void) {
    fresh_pair();
    struct winsize size = {33, 77, 0, 0};
    pid_t child = session(leader);
    take("leader", master, 7);
    take("waits", master, 1);
    ioctl(master, TIOCSWINSZ, &size);
    take("window", master, 12);
    status_of("leader", child, 0);
    ready("nobody there", master, POLLIN);
    once("nobody there", master, 10);
    close(master);

    fresh_pair();
    child = session(wait_for_signal);
    take("waits", master, 1);
    pid_t foreground = 0;
    printf("foreground %d\n", !ioctl(master, TIOCGPGRP, &foreground) && foreground == child);
    type("\x1c");
    status_of("quit", child, 0);
    close(master);

    fresh_pair();
    child = session(wait_for_signal);
    take("waits", master, 1);
    close(master);
    status_of("hung up", child, 0);

    fresh_pair();
    child = session(shell);
    take("job", master, 1);
    type("\x1a");
    take("shell", master, 12 + 13);
    take("shell", master, 22);
    type("x\n");
    take("shell", master, 3 + 8);
    type("yz\n");
    take("shell", master, 8);
    status_of("shell", child, 0);
    close(master);

    fresh_pair();
    child = session(leave_stopped_job);
    take("job", master, 1);
    take("orphans", master, 10 + 8);
    status_of("leader", child, 0);
    close(master);
}

static void hang_up(void) {
    char byte = 'x';
    fresh_pair();
    close(master);
    once("hung up", slave, 10);
    ssize_t written = write(slave, &byte, 1);
    printf("write %zd %s\n", written, strerror(errno));
    ready("hung up", slave, POLLIN | POLLOUT);
    printf("terminal %d\n", isatty(slave));
    close(slave);
    fresh_pair();
    close(slave);
    once("no slave", master, 10);
    ready("no slave", master, POLLIN | POLLOUT);
    slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    struct pollfd again = {master, POLLIN, 0};
    printf("slave again %d\n", poll(&again, 1, 0));
    close(slave);
    close(master);
}

// More data than there is room for: the writer waits, and nothing is lost.
static void volume(void) {
    enum { TOTAL = 300000 };
    char bytes[1000];
    struct termios settings;
    fresh_pair();
    tcgetattr(slave, &settings);
    cfmakeraw(&settings);
    tcsetattr(slave, TCSANOW, &settings);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        for (unsigned i = 0; i < TOTAL; i += sizeof bytes) {
            for (unsigned j = 0; j < sizeof bytes; j++) bytes[j] = (i + j) * 31 >> 3;
            if (write(slave, bytes, sizeof bytes) != sizeof bytes) _exit(1);
        }
        _exit(0);
    }
    unsigned right = 0, at = 0;
    while (at < TOTAL) {
        ssize_t got = read(master, bytes, sizeof bytes);
        if (got <= 0) fail("read");
        for (ssize_t j = 0; j < got; j++, at++) right += bytes[j] == (char)(at * 31 >> 3);
    }
    printf("right %u\n", right);
    status_of("writer", child, 0);
    close(slave);
    close(master);
}

// A master in packet mode: a zero byte before data, or a single byte that reports an event.
static void packets(void) {
    int on = 1;
    struct termios settings;
    fresh_pair();
    printf("packet mode %d\n", ioctl(master, TIOCPKT, &on));
    on = 0;
    printf("told %d", ioctl(master, TIOCGPKT, &on));
    printf(" %d\n", on);
    int slave_too = ioctl(slave, TIOCPKT, &on);
    printf("slave %d %s\n", slave_too, strerror(errno));
    if (write(slave, "out", 3) != 3) fail("write");
    once("packet", master, 10);
    type("\x13");
    ready("stopped", master, POLLIN | POLLPRI);
    once("stopped", master, 10);
    type("\x11");
    once("started", master, 10);
    if (write(slave, "more", 4) != 4) fail("write");
    tcflush(slave, TCIFLUSH);
    once("flushed", master, 10);
    once("short", master, 3);
    once("rest", master, 10);
    tcgetattr(slave, &settings);
    settings.c_iflag &= ~IXON;
    tcsetattr(slave, TCSANOW, &settings);
    once("no stop", master, 10);
    settings.c_iflag |= IXON;
    tcsetattr(slave, TCSANOW, &settings);
    once("stop", master, 10);
    on = 0;
    ioctl(master, TIOCPKT, &on);
    if (write(slave, "plain", 5) != 5) fail("write");
    once("plain", master, 10);
    close(slave);
    close(master);
}

// One process of a session releases its terminal; the others keep it.
static void give_up(void) {
    fresh_pair();
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        if (login_tty(dup(slave))) fail("login_tty");
        pid_t other = fork();
        if (!other) {
            int own = open("/dev/tty", O_RDWR), code = own < 0;
            if (ioctl(0, TIOCNOTTY)) code |= 2;
            if (open("/dev/tty", O_RDWR) >= 0 || errno != ENXIO) code |= 4;
            if (tcgetpgrp(0) >= 0 || errno != ENOTTY) code |= 8;
            if (ioctl(0, TIOCNOTTY) == 0 || errno != ENOTTY) code |= 16;
            pid_t inner = fork();
            if (!inner) _exit(open("/dev/tty", O_RDWR) < 0 && errno == ENXIO ? 0 : 1);
            int status;
            waitpid(inner, &status, 0);
            _exit(code | (status ? 32 : 0));
        }
        int status;
        waitpid(other, &status, 0);
        if (open("/dev/tty", O_RDWR) < 0) _exit(64);
        _exit(WEXITSTATUS(status));
    }
    status_of("giving up", child, 0);
    close(slave);
    close(master);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    // Sessions start with the settings that terminal programs expect.
    signal(SIGHUP, SIG_DFL);
    signal(SIGTTIN, SIG_DFL);
    open_pair();
    lines();
    raw();
    close(slave);
    close(master);
    job_control();
    hang_up();
    volume();
    packets();
    give_up();
    return 0;
}
