// Executing programs: this program in several ways, scripts, and files that cannot be
// executed. Run as `exec FOLDER SELF`, where SELF is this program's file.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self;
static char *environment[] = {"A=1", "B=two words", NULL};

static void end(const char *what, pid_t pid) {
    int status;
    if (waitpid(pid, &status, 0) != pid) abort();
    if (WIFEXITED(status))
        printf("%s: exit %d\n", what, WEXITSTATUS(status));
    else
        printf("%s: signal %d\n", what, WTERMSIG(status));
    fflush(stdout);
}

// The new program: prints its arguments and environment.
static int show(int count, char **arguments) {
    printf("  %d:", count);
    for (int i = 2; i < count; i++) printf(" [%s]", arguments[i]);
    for (char **variable = environ; *variable; variable++) printf(" %s", *variable);
    struct sigaction handled, ignored;
    sigaction(SIGUSR1, NULL, &handled);
    sigaction(SIGUSR2, NULL, &ignored);
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    printf("; handlers %d %d, blocked %d", handled.sa_handler == SIG_DFL,
           ignored.sa_handler == SIG_IGN, sigismember(&mask, SIGHUP));
    printf("; files %d %d\n", fcntl(50, F_GETFD) >= 0, fcntl(51, F_GETFD) >= 0);
    return 6;
}

static void handle(int signal) { (void)signal; }

static void *execute(void *argument) {
    char *arguments[] = {"exec", "show", argument, NULL};
    execve(self, arguments, environment);
    return NULL;
}

static void ways(void) {
    char *arguments[] = {"exec", "show", "first", "", "third one", NULL};
    signal(SIGUSR1, handle);
    signal(SIGUSR2, SIG_IGN);
    dup2(1, 50);
    dup3(1, 51, O_CLOEXEC);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGHUP);
    pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_BLOCK, &mask, NULL);
        execve(self, arguments, environment);
        _exit(1);
    }
    end("fork", pid);
    pid = vfork();
    if (pid == 0) {
        execve(self, arguments, environment);
        _exit(1);
    }
    end("vfork", pid);
    if (posix_spawn(&pid, self, NULL, NULL, arguments, environment) != 0) abort();
    end("posix_spawn", pid);
    pid = fork();
    if (pid == 0) {
        fexecve(open(self, O_RDONLY | O_CLOEXEC), arguments, environment);
        _exit(1);
    }
    end("fexecve", pid);
    pid = fork();
    if (pid == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, execute, "of a thread");
        for (;;) pause();
    }
    end("thread", pid);
    // Twice in one process: the second program does not see memory of the first.
    pid = fork();
    if (pid == 0) {
        char *again[] = {"exec", "again", (char *)self, NULL};
        execve(self, again, environment);
        _exit(1);
    }
    end("again", pid);
}

static void failure(const char *what, const char *path) {
    char *arguments[] = {"exec", "show", NULL};
    execve(path, arguments, environment);
    printf("%s: %s\n", what, strerror(errno));
}

static void write_file(const char *name, const char *text, mode_t mode) {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, mode);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) abort();
    fchmod(fd, mode);
    close(fd);
}

static void copy_file(const char *from, const char *to) {
    static char buffer[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0755);
    ssize_t count;
    while ((count = read(in, buffer, sizeof buffer)) > 0)
        if (write(out, buffer, count) != count) abort();
    close(in);
    close(out);
}

static void files(void) {
    char text[256];
    failure("missing", "nothing");
    failure("missing folder", "nothing/here");
    failure("folder", ".");
    failure("no folder", "plain/x");
    failure("empty name", "");
    failure("bad address", (const char *)8);
    write_file("plain", "text\n", 0755);
    failure("plain text", "plain");
    write_file("forbidden", "text\n", 0644);
    failure("not executable", "forbidden");
    write_file("elf", "\177ELF and no more", 0755);
    failure("broken", "elf");
    write_file("nobody", "#!/nothing/here\n", 0755);
    failure("script of nobody", "nobody");
    write_file("itself", "#! itself\n", 0755);
    failure("script of itself", "itself");

    snprintf(text, sizeof text, "#! %s show \necho no\n", self);
    write_file("script", text, 0755);
    pid_t pid = fork();
    if (pid == 0) {
        execle("./script", "name", "a", "b", NULL, environment);
        _exit(1);
    }
    end("script", pid);
    copy_file(self, "copy");
    pid = fork();
    if (pid == 0) {
        execle("copy", "exec", "show", "copied", NULL, environment);
        _exit(1);
    }
    end("copy", pid);

    // Too many arguments.
    static char *many[200001];
    static char large[200000];
    memset(large, 'x', sizeof large - 1);
    char *one[] = {"exec", large, NULL};
    execve(self, one, environment);
    printf("long argument: %s\n", strerror(errno));
    for (int i = 0; i < 200000; i++) many[i] = "an argument of twenty bytes";
    execve(self, many, environment);
    printf("many arguments: %s\n", strerror(errno));
    execve(self, (char **)8, environment);
    printf("bad list: %s\n", strerror(errno));
    pid = fork();
    if (pid == 0) {
        many[0] = "exec";
        many[1] = "count";
        many[20000] = NULL;
        execve(self, many, environment);
        _exit(1);
    }
    end("many arguments", pid);
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "show") == 0) return show(count, arguments);
    if (count > 1 && strcmp(arguments[1], "count") == 0) return count == 20000 ? 0 : 1;
    if (count > 2 && strcmp(arguments[1], "again") == 0) {
        self = arguments[2];
        execute("twice");
    }
    if (count != 3 || chdir(arguments[1]) != 0) return 2;
    self = arguments[2];
    setvbuf(stdout, NULL, _IONBF, 0);
    ways();
    files();
    return 0;
}
