// Jump tables that programs do not change are changed here: a table that is read-only after
// relocation, and a table of offsets in constants. In between, jumps go through them.
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#define PAGE 4096

// Each table has a separate page. `pick_` functions return 10, 20, 30 for 0, 1, 2, else 0.
__asm__(
    ".section .data.rel.ro,\"aw\"\n.balign 4096\n"
    "places: .dword 1f, 2f, 3f\n.balign 4096\n"
    ".section .rodata\n.balign 4096\n"
    "distances: .word 4f - distances, 5f - distances, 6f - distances\n.balign 4096\n"
    ".text\n"
    ".type pick_place, @function\npick_place:\n"
    "li a5, 2\nbgtu a0, a5, 7f\n"
    "lla a4, places\nslli a0, a0, 3\nadd a0, a0, a4\nld a0, 0(a0)\njr a0\n"
    "1: li a0, 10\nret\n2: li a0, 20\nret\n3: li a0, 30\nret\n7: li a0, 0\nret\n"
    ".size pick_place, . - pick_place\n"
    ".type pick_distance, @function\npick_distance:\n"
    "li a5, 2\nbgtu a0, a5, 7f\n"
    "lla a4, distances\nslli a0, a0, 2\nadd a0, a0, a4\nlw a0, 0(a0)\nadd a0, a0, a4\njr a0\n"
    "4: li a0, 10\nret\n5: li a0, 20\nret\n6: li a0, 30\nret\n7: li a0, 0\nret\n"
    ".size pick_distance, . - pick_distance\n");
int64_t pick_place(uint64_t number);
int64_t pick_distance(uint64_t number);
extern uint64_t places[];
extern int32_t distances[];

static void show(const char *when) {
    printf("%s:", when);
    for (uint64_t number = 0; number < 4; number++)
        printf(" %ld %ld", (long)pick_place(number), (long)pick_distance(number));
    puts("");
}

// The compiler must not see that this is the address of a table.
__attribute__((noipa)) static void *page(void *table) { return table; }

static void protect(void *table, int protection) {
    if (mprotect(page(table), PAGE, protection)) puts("mprotect failed");
}

static void turn_places(void) {
    uint64_t *place = page(places);
    uint64_t first = place[0];
    protect(place, PROT_READ | PROT_WRITE);
    place[0] = place[1], place[1] = place[2], place[2] = first;
}

static void turn_distances(void) {
    int32_t *distance = page(distances);
    int32_t first = distance[0];
    protect(distance, PROT_READ | PROT_WRITE);
    distance[0] = distance[1], distance[1] = distance[2], distance[2] = first;
}

int main(void) {
    show("as linked");
    show("again");
    turn_places();
    show("turned");
    protect(places, PROT_READ);
    show("read-only");
    turn_places();
    turn_places();
    show("back");
    turn_distances();
    show("other turned");
    protect(distances, PROT_READ | PROT_EXEC);
    show("executable");
    turn_distances();
    turn_distances();
    show("back");
    return 0;
}
