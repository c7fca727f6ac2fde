// Locks on files: of processes, of open file descriptions, of whole files.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

static int fd;

static struct flock range(short type, off_t start, off_t length) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
}

static int set(int where, int command, short type, off_t start, off_t length) {
    struct flock lock = range(type, start, length);
    return fcntl(where, command, &lock);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    struct flock lock;
    fd = open("locked", O_CREAT | O_RDWR, 0600);
    int other = open("locked", O_RDWR), reader = open("locked", O_RDONLY);
    GIVES(set(fd, F_SETLK, F_WRLCK, 0, 10), 0);
    GIVES(set(other, F_SETLK, F_WRLCK, 5, 10), 0);
    lock = range(F_WRLCK, 0, 100);
    GIVES(fcntl(fd, F_GETLK, &lock), 0);
    GIVES(lock.l_type, F_UNLCK);
    pid_t parent = getpid();
    CHILD_EXITS(0, lock = range(F_RDLCK, 0, 100); fcntl(fd, F_GETLK, &lock);
                _exit(!(lock.l_type == F_WRLCK && lock.l_pid == parent && lock.l_start == 0 &&
                        lock.l_len == 15)));
    CHILD_EXITS(0, _exit(!(set(fd, F_SETLK, F_RDLCK, 3, 1) == -1 &&
                           (errno == EAGAIN || errno == EACCES))));
    CHILD_EXITS(0, _exit(set(fd, F_SETLK, F_WRLCK, 15, 0)));
    GIVES(set(fd, F_SETLK, F_UNLCK, 4, 2), 0);
    CHILD_EXITS(0, _exit(set(fd, F_SETLK, F_WRLCK, 4, 2)));
    CHILD_EXITS(0, _exit(!(set(fd, F_SETLK, F_WRLCK, 3, 2) == -1)));
    GIVES(set(fd, F_SETLK, F_RDLCK, 0, 4), 0);
    CHILD_EXITS(0, _exit(set(fd, F_SETLK, F_RDLCK, 0, 4)));
    CHILD_EXITS(0, _exit(!(set(fd, F_SETLK, F_WRLCK, 0, 1) == -1)));
    FAILS(set(reader, F_SETLK, F_WRLCK, 50, 1), EBADF);
    // The first of several locks in the way is reported, whatever their order was.
    GIVES(set(fd, F_SETLK, F_UNLCK, 0, 0), 0);
    GIVES(set(fd, F_SETLK, F_WRLCK, 40, 10), 0);
    GIVES(set(fd, F_SETLK, F_WRLCK, 20, 10), 0);
    GIVES(set(fd, F_SETLK, F_RDLCK, 5, 10), 0);
    CHILD_EXITS(0, lock = range(F_WRLCK, 0, 0); fcntl(fd, F_GETLK, &lock);
                _exit(!(lock.l_type == F_RDLCK && lock.l_start == 5 && lock.l_len == 10)));
    CHILD_EXITS(0, lock = range(F_RDLCK, 0, 0); fcntl(fd, F_GETLK, &lock);
                _exit(!(lock.l_type == F_WRLCK && lock.l_start == 20 && lock.l_len == 10)));
    GIVES(set(fd, F_SETLK, F_UNLCK, 0, 0), 0);
    FAILS(set(fd, F_SETLK, 99, 0, 1), EINVAL);
    FAILS(set(fd, F_SETLK, F_RDLCK, -1, 1), EINVAL);
    FAILS(fcntl(fd, F_SETLK, (void *)8), EFAULT);
    FAILS(set(9999, F_SETLK, F_RDLCK, 0, 1), EBADF);
    // Closing any descriptor of the file releases the process's locks.
    GIVES(close(dup(fd)), 0);
    CHILD_EXITS(0, _exit(set(fd, F_SETLK, F_WRLCK, 0, 0)));
    // The waiting process gets the lock when it is free.
    GIVES(set(fd, F_SETLK, F_WRLCK, 0, 0), 0);
    pid_t child = CHILD(_exit(set(fd, F_SETLKW, F_WRLCK, 0, 0)));
    usleep(20000);
    int status;
    GIVES(waitpid(child, &status, WNOHANG), 0);
    GIVES(set(fd, F_SETLK, F_UNLCK, 0, 0), 0);
    GIVES(status_of(child), 0);
    // A deadlock is refused.
    GIVES(set(fd, F_SETLK, F_WRLCK, 0, 1), 0);
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    child = CHILD(set(fd, F_SETLK, F_WRLCK, 1, 1); (void)!write(ready[1], "r", 1);
                  _exit(set(fd, F_SETLKW, F_WRLCK, 0, 1) != 0));
    GIVES(read(ready[0], &byte, 1), 1);
    wait_until_asleep(child);
    FAILS(set(fd, F_SETLKW, F_WRLCK, 1, 1), EDEADLK);
    GIVES(set(fd, F_SETLK, F_UNLCK, 0, 0), 0);
    GIVES(status_of(child), 0);
    // Locks of open file descriptions.
    GIVES(set(fd, F_OFD_SETLK, F_WRLCK, 0, 10), 0);
    FAILS(set(other, F_OFD_SETLK, F_WRLCK, 5, 1), EAGAIN);
    FAILS(set(other, F_OFD_SETLK, F_RDLCK, 5, 1), EAGAIN);
    lock = range(F_WRLCK, 0, 1);
    GIVES(fcntl(other, F_OFD_GETLK, &lock), 0);
    CHECK(lock.l_type == F_WRLCK && lock.l_pid == -1);
    GIVES(set(fd, F_OFD_SETLK, F_UNLCK, 0, 0), 0);
    GIVES(set(other, F_OFD_SETLK, F_WRLCK, 5, 1), 0);
    GIVES(set(other, F_OFD_SETLK, F_UNLCK, 0, 0), 0);
    lock = range(F_WRLCK, 0, 1);
    lock.l_pid = 1;
    FAILS(fcntl(fd, F_OFD_SETLK, &lock), EINVAL);
    // Locks of whole files.
    GIVES(flock(fd, LOCK_EX), 0);
    FAILS(flock(other, LOCK_SH | LOCK_NB), EAGAIN);
    GIVES(flock(fd, LOCK_SH), 0);
    GIVES(flock(other, LOCK_SH | LOCK_NB), 0);
    FAILS(flock(other, LOCK_EX | LOCK_NB), EAGAIN);
    GIVES(flock(fd, LOCK_UN), 0);
    GIVES(flock(other, LOCK_UN), 0);
    FAILS(flock(fd, 0), EINVAL);
    FAILS(flock(9999, LOCK_EX), EBADF);
    GIVES(flock(dup(fd), LOCK_EX), 0);
    GIVES(flock(fd, LOCK_EX | LOCK_NB), 0);
    close(fd);
    FAILS(flock(other, LOCK_EX | LOCK_NB), EAGAIN);
    return finish("locks");
}
