// The program of the daemon's tests. It has no C library, so it is translated quickly. The
// first argument selects the action; without one it prints a greeting.

static long call4(long number, long a, long b, long c, long d) {
    register long a0 __asm__("a0") = a;
    register long a1 __asm__("a1") = b;
    register long a2 __asm__("a2") = c;
    register long a3 __asm__("a3") = d;
    register long a7 __asm__("a7") = number;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a3), "r"(a7) : "memory");
    return a0;
}

static long call(long number, long a, long b, long c) { return call4(number, a, b, c, 0); }

enum { SOCKET = 198, BIND = 200, LISTEN = 201, ACCEPT = 202, CONNECT = 203 };
enum { CLOSE = 57 };
enum { OPENAT = 56, READ = 63, WRITE = 64, EXIT_GROUP = 94, NANOSLEEP = 101, RT_SIGACTION = 134 };

static unsigned long length(const char *text) {
    unsigned long n = 0;
    while (text[n]) n++;
    return n;
}

static int same(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

static void print(const char *text) { call(WRITE, 1, (long)text, length(text)); }

static void copy(void) {
    static char buffer[4096];
    long count;
    while ((count = call(READ, 0, (long)buffer, sizeof buffer)) > 0)
        call(WRITE, 1, (long)buffer, count);
}

enum { WRITE_ONLY = 1, CREATE = 0100, APPEND = 02000 };

// Exits with the error number, if there is an error.
static long checked(long result) {
    if (result < 0) call(EXIT_GROUP, -result, 0, 0);
    return result;
}

static long open(const char *path, int flags) {
    return checked(call4(OPENAT, -100, (long)path, flags, 0644));
}

static void get(const char *path) {
    static char buffer[4096];
    long file = open(path, 0), count;
    while ((count = checked(call(READ, file, (long)buffer, sizeof buffer))) > 0)
        call(WRITE, 1, (long)buffer, count);
}

static void put(const char *path, const char *text) {
    checked(call(WRITE, open(path, WRITE_ONLY | CREATE | APPEND), (long)text, length(text)));
}

// Writes until there is no room left.
static void fill(const char *path) {
    static char buffer[1 << 16];
    long file = open(path, WRITE_ONLY | CREATE | APPEND);
    for (;;) checked(call(WRITE, file, (long)buffer, sizeof buffer));
}

static unsigned long number(const char **text) {
    unsigned long n = 0;
    for (; **text >= '0' && **text <= '9'; ++*text) n = n * 10 + (unsigned long)(**text - '0');
    return n;
}

// Writes mebibytes of output, as fast as it can.
static void gush(const char *text) {
    static char buffer[1 << 16];
    for (unsigned long i = 0; i < sizeof buffer; i++) buffer[i] = i % 64 == 63 ? '\n' : 'x';
    for (unsigned long left = number(&text) * 16; left; left--)
        call(WRITE, 1, (long)buffer, sizeof buffer);
}

// The length of an IPv4 address is less.
struct address {
    unsigned short family, port;
    union {
        unsigned char v4[4];
        struct {
            unsigned flow;
            unsigned char host[16];
            unsigned scope;
        } v6;
    };
};

enum { INET = 2, INET6 = 10, STREAM = 1 };

static int has(const char *text, char wanted) {
    while (*text && *text != wanted) text++;
    return *text != 0;
}

static unsigned group(const char **text) {
    unsigned n = 0;
    for (;; ++*text) {
        if (**text >= '0' && **text <= '9') n = n * 16 + (unsigned)(**text - '0');
        else if (**text >= 'a' && **text <= 'f') n = n * 16 + (unsigned)(**text - 'a' + 10);
        else return n;
    }
}

// Groups of an IPv6 address, with "::" somewhere.
static void parse6(const char *text, unsigned char *host) {
    unsigned groups[8] = {0}, count = 0, gap = 8;
    while (*text && count < 8) {
        if (text[0] == ':' && text[1] == ':') gap = count, text += 2;
        else if (*text == ':') text++;
        else groups[count++] = group(&text);
    }
    for (unsigned i = 0, from = 0; i < 8; i++) {
        unsigned n = i >= gap && i < gap + 8 - count ? 0 : groups[from++];
        host[2 * i] = (unsigned char)(n >> 8), host[2 * i + 1] = (unsigned char)n;
    }
}

static struct address address(const char *host, const char *port) {
    unsigned long n = number(&port);
    struct address address = {INET, (unsigned short)(n << 8 | n >> 8), {{0}}};
    if (has(host, ':')) {
        address.family = INET6;
        parse6(host, address.v6.host);
        return address;
    }
    for (int i = 0; i < 4; i++, host += *host == '.')
        address.v4[i] = (unsigned char)number(&host);
    return address;
}

static long size(const struct address *address) { return address->family == INET ? 16 : 28; }

// Sends its name to every client that connects.
static void serve(const char *host, const char *port, const char *name) {
    struct address own = address(host, port);
    long listener = checked(call(SOCKET, own.family, STREAM, 0));
    checked(call(BIND, listener, (long)&own, size(&own)));
    checked(call(LISTEN, listener, 10, 0));
    print("ready\n");
    for (;;) {
        long peer = checked(call(ACCEPT, listener, 0, 0));
        call(WRITE, peer, (long)name, length(name));
        call(CLOSE, peer, 0, 0);
    }
}

// Prints the data of a server.
static void ask(const char *host, const char *port) {
    static char buffer[4096];
    struct address peer = address(host, port);
    long connection = checked(call(SOCKET, peer.family, STREAM, 0)), count;
    checked(call(CONNECT, connection, (long)&peer, size(&peer)));
    while ((count = checked(call(READ, connection, (long)buffer, sizeof buffer))) > 0)
        call(WRITE, 1, (long)buffer, count);
}

enum { NONBLOCK = 04000, IN_PROGRESS = -115 };

// Opens the given number of connections and keeps them.
static void hold(const char *host, const char *port, const char *count) {
    struct address peer = address(host, port);
    for (unsigned long left = number(&count); left; left--) {
        long connection = checked(call(SOCKET, peer.family, STREAM | NONBLOCK, 0));
        long begun = call(CONNECT, connection, (long)&peer, size(&peer));
        if (begun != IN_PROGRESS) checked(begun);
    }
    print("holding\n");
}

static void rest(long milliseconds) {
    long time[2] = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    call(NANOSLEEP, (long)time, 0, 0);
}

static void leave(int signal) { call(EXIT_GROUP, signal, 0, 0); }

// From here on faults are exact, so the precise variant of the translation is needed.
static void handle_fault(void) {
    struct {
        void (*handler)(int);
        unsigned long flags, mask;
    } action = {leave, 0, 0};
    call4(RT_SIGACTION, 11, (long)&action, 0, 8);
    *(volatile char *)8 = 1;
}

__attribute__((used)) static void begin(long *stack) {
    char **arguments = (char **)(stack + 1);
    char **environment = arguments + stack[0] + 1;
    const char *what = stack[0] > 1 ? arguments[1] : "";
    if (same(what, "exit")) call(EXIT_GROUP, 7, 0, 0);
    if (same(what, "copy")) copy();
    if (same(what, "get")) get(arguments[2]);
    if (same(what, "put")) put(arguments[2], arguments[3]);
    if (same(what, "fill")) fill(arguments[2]);
    if (same(what, "gush")) gush(arguments[2]);
    if (same(what, "serve")) serve("0.0.0.0", arguments[2], arguments[3]);
    if (same(what, "serve6")) serve("::", arguments[2], arguments[3]);
    if (same(what, "ask")) ask(arguments[2], arguments[3]);
    if (same(what, "hold")) {
        hold(arguments[2], arguments[3], arguments[4]);
        what = "idle";
    }
    if (same(what, "fault")) *(volatile char *)8 = 1;
    if (same(what, "handle")) handle_fault();
    if (same(what, "bytes")) call(WRITE, 1, (long)"\xff\xfe", 2);
    if (same(what, "environment"))
        for (; *environment; environment++) print(*environment), print("\n");
    if (same(what, "spin"))
        for (volatile long n = 0;; n++) {}
    for (int n = 0; same(what, "long") && n < 65536; n++)
        print("all work and no play makes jack a dull boy\n");
    while (same(what, "flood")) print("all work and no play makes jack a dull boy\n");
    while (same(what, "tick")) print("tick\n"), rest(50);
    while (same(what, "idle")) rest(1000000);
    if (same(what, "")) print("hello, world\n");
    call(EXIT_GROUP, 0, 0, 0);
}

__attribute__((naked, used)) void _start(void) {
    __asm__ volatile(
        ".option push\n.option norelax\nlla gp, __global_pointer$\n.option pop\n"
        "mv a0, sp\nj begin");
}
