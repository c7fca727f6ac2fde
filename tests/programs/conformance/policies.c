// Memory policies, on a machine with one node.
#define _GNU_SOURCE
#include "check.h"
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

enum { DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL, PREFERRED_MANY };
enum { STATIC = 1 << 15, RELATIVE = 1 << 14 };
enum { OF_NODE = 1, OF_ADDRESS = 2, ALLOWED = 4 };

static long set_policy(int mode, unsigned long nodes) {
    return syscall(SYS_set_mempolicy, mode, &nodes, 64ul);
}

static int mode = -1;
static unsigned long nodes;

static long get_policy(void *address, unsigned long flags) {
    mode = -1, nodes = ~0ul;
    return syscall(SYS_get_mempolicy, &mode, &nodes, 64ul, address, flags);
}

// The policy of the task is this.
#define IS(expected_mode, expected_nodes)  \
    do {                                   \
        GIVES(get_policy(NULL, 0), 0);     \
        GIVES(mode, expected_mode);        \
        GIVES(nodes, expected_nodes);      \
    } while (0)

static void own(void) {
    IS(DEFAULT, 0);
    GIVES(set_policy(BIND, 1), 0);
    IS(BIND, 1);
    // Children and programs keep it.
    CHILD_EXITS(0, {
        if (get_policy(NULL, 0) || mode != BIND || nodes != 1) _exit(1);
        _exit(set_policy(DEFAULT, 0) != 0);
    });
    IS(BIND, 1);
    GIVES(set_policy(BIND, 3), 0);
    IS(BIND, 1);
    GIVES(set_policy(BIND | STATIC, 3), 0);
    IS(BIND | STATIC, 3);
    GIVES(set_policy(BIND | RELATIVE, 2), 0);
    IS(BIND | RELATIVE, 2);
    GIVES(set_policy(PREFERRED, 1), 0);
    IS(PREFERRED, 1);
    GIVES(set_policy(PREFERRED, 0), 0);
    IS(LOCAL, 0);
    GIVES(set_policy(INTERLEAVE, 1), 0);
    IS(INTERLEAVE, 1);
    GIVES(get_policy(NULL, OF_NODE), 0);
    GIVES(mode, 0);
    FAILS(set_policy(BIND, 0), EINVAL);
    FAILS(set_policy(BIND, 2), EINVAL);
    FAILS(set_policy(INTERLEAVE, 0), EINVAL);
    FAILS(set_policy(LOCAL, 1), EINVAL);
    FAILS(set_policy(DEFAULT, 1), EINVAL);
    FAILS(set_policy(PREFERRED | STATIC, 0), EINVAL);
    FAILS(set_policy(BIND | STATIC | RELATIVE, 1), EINVAL);
    FAILS(set_policy(99, 1), EINVAL);
    FAILS(set_policy(-1, 1), EINVAL);
    FAILS(syscall(SYS_set_mempolicy, BIND, (void *)8, 64ul), EFAULT);
    FAILS(syscall(SYS_set_mempolicy, BIND, &nodes, 1ul << 40), EINVAL);
    IS(INTERLEAVE, 1);
    GIVES(syscall(SYS_set_mempolicy, DEFAULT, NULL, 0ul), 0);
    IS(DEFAULT, 0);
    FAILS(get_policy(NULL, OF_NODE), EINVAL);
    FAILS(get_policy(NULL, 99), EINVAL);
    FAILS(get_policy(NULL, ALLOWED | OF_NODE), EINVAL);
    FAILS(get_policy(&mode, 0), EINVAL);
    GIVES(get_policy(NULL, ALLOWED), 0);
    GIVES(nodes, 1);
    GIVES(syscall(SYS_get_mempolicy, NULL, NULL, 0ul, NULL, 0ul), 0);
    FAILS(syscall(SYS_get_mempolicy, NULL, &nodes, 0ul, NULL, 0ul), EINVAL);
    FAILS(syscall(SYS_get_mempolicy, (void *)8, NULL, 0ul, NULL, 0ul), EFAULT);
    // More room than nodes is filled with zeros.
    unsigned long many[4] = {~0ul, ~0ul, ~0ul, ~0ul};
    GIVES(syscall(SYS_get_mempolicy, NULL, many, 192ul, NULL, (long)ALLOWED), 0);
    CHECK(many[0] == 1 && many[1] == 0 && many[2] == 0 && many[3] == ~0ul);
}

static long bind_range(void *start, size_t length, int policy, unsigned long set, unsigned flags) {
    return syscall(SYS_mbind, start, length, policy, &set, 64ul, flags);
}

static void ranges(void) {
    const size_t page = 4096;
    char *memory = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory[0] = 1;
    GIVES(get_policy(memory, OF_ADDRESS), 0);
    GIVES(mode, DEFAULT);
    GIVES(get_policy(memory, OF_ADDRESS | OF_NODE), 0);
    GIVES(mode, 0);
    GIVES(bind_range(memory, 2 * page, BIND, 1, 0), 0);
    GIVES(bind_range(memory, 2 * page, DEFAULT, 0, 2), 0);
    GIVES(bind_range(memory, 0, BIND, 1, 0), 0);
    FAILS(bind_range(memory + 1, page, BIND, 1, 0), EINVAL);
    FAILS(bind_range(memory, page, BIND, 2, 0), EINVAL);
    FAILS(bind_range(memory, page, BIND, 1, 64), EINVAL);
    FAILS(bind_range(memory, -2 * page, BIND, 1, 0), EINVAL);
    // Where pages are, if they are. Pages far apart, because one fault may map several.
    munmap(memory, 8 * page);
    const size_t length = 16 << 20;
    memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory[length - 1] = 1;
    munmap(memory + 8 * page, page);
    void *pages[3] = {memory + length - page, memory, memory + 8 * page};
    int status[3] = {7, 7, 7}, wanted[3] = {0, 0, 0};
    GIVES(syscall(SYS_move_pages, 0, 3ul, pages, NULL, status, 0), 0);
    CHECK(status[0] == 0 && status[1] == -ENOENT && status[2] == -EFAULT);
    GIVES(syscall(SYS_move_pages, 0, 1ul, pages, wanted, status, 2), 0);
    GIVES(status[0], 0);
    wanted[0] = 1;
    FAILS(syscall(SYS_move_pages, 0, 1ul, pages, wanted, status, 2), ENODEV);
    FAILS(syscall(SYS_move_pages, 0, 1ul, pages, NULL, status, 1), EINVAL);
    FAILS(syscall(SYS_move_pages, 0x7ffffff0, 1ul, pages, NULL, status, 0), ESRCH);
    FAILS(bind_range(memory, length, BIND, 1, 0), EFAULT);
    FAILS(get_policy(memory + 8 * page, OF_ADDRESS), EFAULT);
    unsigned long one = 1, other = 2;
    GIVES(syscall(SYS_migrate_pages, 0, 64ul, &one, &one), 0);
    FAILS(syscall(SYS_migrate_pages, 0, 64ul, &one, &other), EINVAL);
    FAILS(syscall(SYS_migrate_pages, 0x7ffffff0, 64ul, &one, &one), ESRCH);
    munmap(memory, length);
}

// Whether this machine has one node; a system without policies has none to check.
static int has_one_node(void) { return get_policy(NULL, ALLOWED) == 0 && nodes == 1; }

int main(int count, char **arguments) {
    struct utsname names;
    enter(count, arguments);
    if (!has_one_node()) {
        CHECK(uname(&names) == 0 && !strstr(names.release, "hartline"));
        return finish("policies");
    }
    own();
    ranges();
    return finish("policies");
}
