// Settings of pseudo-terminals.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

// Linux's structures: those of the C library are others.
struct kernel_termios {
    unsigned iflag, oflag, cflag, lflag;
    unsigned char line, cc[19];
};
struct kernel_termios2 {
    struct kernel_termios termios;
    unsigned ispeed, ospeed;
};
struct kernel_termio {
    unsigned short iflag, oflag, cflag, lflag;
    unsigned char line, cc[8];
};
enum {
    K_TCGETS = 0x5401, K_TCSETS = 0x5402,
    K_TCGETA = 0x5405, K_TCSETA = 0x5406,
    K_ECHO = 8, K_CBAUD = 0x100f, K_BOTHER = 0x1000, K_B9600 = 13, K_CLOCAL = 0x800,
};
#define K_TCGETS2 0x802c542aul
#define K_TCSETS2 0x402c542bul

static int master, slave;

// The three structures show the same settings.
static void structures(void) {
    struct kernel_termios plain;
    struct kernel_termios2 with_speeds;
    struct kernel_termio old;
    GIVES(ioctl(slave, K_TCGETS, &plain), 0);
    GIVES(ioctl(slave, K_TCGETS2, &with_speeds), 0);
    GIVES(ioctl(slave, K_TCGETA, &old), 0);
    CHECK(memcmp(&plain, &with_speeds.termios, sizeof plain) == 0);
    CHECK(with_speeds.ispeed == 38400 && with_speeds.ospeed == 38400);
    CHECK(old.lflag == (unsigned short)plain.lflag && old.cc[0] == plain.cc[0]);
    old.lflag &= ~K_ECHO;
    old.cc[0] = 'q';
    GIVES(ioctl(slave, K_TCSETA, &old), 0);
    GIVES(ioctl(slave, K_TCGETS, &plain), 0);
    CHECK((plain.lflag & K_ECHO) == 0 && plain.cc[0] == 'q');
    with_speeds.termios.cflag = (with_speeds.termios.cflag & ~K_CBAUD) | K_B9600;
    GIVES(ioctl(slave, K_TCSETS2, &with_speeds), 0);
    GIVES(ioctl(slave, K_TCGETS2, &with_speeds), 0);
    CHECK(with_speeds.ospeed == 9600);
    CHECK((with_speeds.termios.lflag & K_ECHO) != 0);
    FAILS(ioctl(slave, K_TCGETS2, NULL), EFAULT);
}

// Settings that are fixed do not change.
static void fixed(void) {
    struct kernel_termios settings, bits;
    GIVES(ioctl(slave, TIOCGLCKTRMIOS, &bits), 0);
    CHECK(bits.lflag == 0 && bits.cc[0] == 0);
    if (geteuid() != 0) return;
    bits.lflag = K_ECHO;
    bits.cc[0] = 1;
    GIVES(ioctl(slave, TIOCSLCKTRMIOS, &bits), 0);
    GIVES(ioctl(slave, K_TCGETS, &settings), 0);
    unsigned lflag = settings.lflag;
    unsigned char interrupt = settings.cc[0];
    settings.lflag = 0;
    settings.cc[0] = 'z';
    GIVES(ioctl(slave, K_TCSETS, &settings), 0);
    GIVES(ioctl(slave, K_TCGETS, &settings), 0);
    CHECK(settings.lflag == (lflag & K_ECHO) && settings.cc[0] == interrupt);
    bits.lflag = bits.cc[0] = 0;
    GIVES(ioctl(slave, TIOCSLCKTRMIOS, &bits), 0);
}

static void others(void) {
    int value = 7;
    GIVES(ioctl(slave, TIOCGETD, &value), 0);
    CHECK(value == 0);
    GIVES(ioctl(slave, TIOCSETD, &value), 0);
    value = 1;
    GIVES(ioctl(slave, TIOCSSOFTCAR, &value), 0);
    value = 0;
    GIVES(ioctl(slave, TIOCGSOFTCAR, &value), 0);
    CHECK(value == 1);
    GIVES(ioctl(slave, TIOCEXCL), 0);
    GIVES(ioctl(slave, TIOCGEXCL, &value), 0);
    CHECK(value == 1);
    GIVES(ioctl(slave, TIOCNXCL), 0);
    struct stat found;
    GIVES(fstat(slave, &found), 0);
    GIVES(ioctl(slave, TIOCGDEV, &value), 0);
    CHECK((unsigned)value == found.st_rdev);
    struct statfs system;
    GIVES(fstatfs(slave, &system), 0);
    CHECK(system.f_type == 0x1cd1);
    FAILS(ioctl(slave, 0x54ff, &value), ENOTTY);
}

// The session's leader, with a job in the foreground. Its status is 0 if the job outlives the leader's
// SIGHUP.
static int lead(int terminal, int ready, sigset_t *hang_up) {
    sigprocmask(SIG_BLOCK, hang_up, NULL);
    signal(SIGTTOU, SIG_IGN);
    if (setsid() < 0 || ioctl(terminal, TIOCSCTTY, 0) < 0) return 1;
    pid_t job = fork();
    if (job == 0) {
        // nohup(1) ignores it for all its descendants.
        signal(SIGHUP, SIG_DFL);
        sigprocmask(SIG_UNBLOCK, hang_up, NULL);
        for (;;) pause();
    }
    if (setpgid(job, job) < 0 || tcsetpgrp(terminal, job) < 0) return 2;
    if (write(ready, &job, sizeof job) != sizeof job) return 3;
    int signal;
    sigwait(hang_up, &signal);
    return waitpid(job, NULL, WNOHANG) == 0 ? 0 : 4;
}

// If the master closes, the leader gets SIGHUP. The foreground group gets it when the leader exits.
static void hang_up(void) {
    int own_master, own_slave, ready[2];
    sigset_t hang_up;
    sigemptyset(&hang_up);
    sigaddset(&hang_up, SIGHUP);
    GIVES(openpty(&own_master, &own_slave, NULL, NULL, NULL), 0);
    GIVES(pipe(ready), 0);
    pid_t leader = CHILD({
        close(own_master);
        close(ready[0]);
        _exit(lead(own_slave, ready[1], &hang_up));
    });
    close(own_slave);
    close(ready[1]);
    pid_t job = 0;
    GIVES(read(ready[0], &job, sizeof job), sizeof job);
    close(own_master);
    GIVES(status_of(leader), 0);
    // The job has the other end of the pipe until it dies.
    struct pollfd end = {.fd = ready[0], .events = POLLIN};
    GIVES(poll(&end, 1, 10000), 1);
    CHECK(end.revents == POLLHUP);
    if (end.revents == 0) kill(job, SIGKILL);
    close(ready[0]);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    GIVES(openpty(&master, &slave, NULL, NULL, NULL), 0);
    // qemu has its own table of requests.
    if (!emulated) {
        structures();
        fixed();
        others();
        hang_up();
    }
    return finish("terminals");
}
