// Addresses of labels: absolute, as differences of every width, handed to other
// functions and back, changed while the program runs.
#include <stdint.h>
#include <stdio.h>

static const uint8_t text[] = "aab+cz-b*q/..!aabbcc++zz--q";

// Differences that fit 16 bits.
__attribute__((noinline)) static unsigned differences16(unsigned rounds) {
    static const int16_t steps[] = {&&add - &&add, &&twist - &&add, &&count - &&add,
                                    &&mix - &&add, &&stop - &&add};
    unsigned value = 1, seen = 0;
next:
    if (rounds == 0) goto stop;
    rounds--;
    goto *(&&add + steps[(value >> 3) % 4]);
add:
    value += rounds * 3;
    goto next;
twist:
    value = value * 5 + 1;
    goto next;
count:
    seen++;
    value ^= seen << 4;
    goto next;
mix:
    value = value >> 3 | value << 29;
    goto next;
stop:
    return value * 31 + seen;
}

// Differences of 32 bits, and a table in memory that changes as it runs.
__attribute__((noinline)) static unsigned changing(unsigned rounds) {
    int32_t steps[] = {&&first - &&first, &&second - &&first, &&third - &&first};
    unsigned value = 7;
    for (unsigned i = 0; i < rounds; i++) {
        goto *(&&first + steps[value % 3]);
    first:
        value = value * 3 + i;
        continue;
    second:
        value += 11;
        int32_t kept = steps[0];
        steps[0] = steps[2];
        steps[2] = kept;
        continue;
    third:
        value ^= i << 2;
        value += 1;
    }
    return value;
}

// Labels passed to a driver, which selects one of them.
static void *choose(void *const *labels, unsigned value) { return labels[value * 7 % 5]; }
static void *(*volatile chooser)(void *const *, unsigned) = choose;

__attribute__((noinline)) static unsigned driven(unsigned rounds) {
    void *const labels[] = {&&a, &&b, &&c, &&d, &&e};
    unsigned value = 3;
    void *where = labels[0];
again:
    if (rounds-- == 0) return value;
    goto *where;
a: value += 1; where = chooser(labels, value); goto again;
b: value *= 3; where = chooser(labels, value); goto again;
c: value ^= 0x55; where = chooser(labels, value + rounds); goto again;
d: value -= rounds; where = labels[4]; goto again;
e: value = (value << 1) | (value >> 31); where = chooser(labels, rounds); goto again;
}

// One label per byte value: a state machine over text.
__attribute__((noinline)) static unsigned scan(void) {
    static const void *const table[256] = {
        [0 ... 255] = &&other, ['a'] = &&letter, ['b'] = &&letter, ['c'] = &&letter,
        ['+'] = &&sign, ['-'] = &&sign, ['*'] = &&star, ['!'] = &&bang, [0] = &&end,
    };
    const uint8_t *p = text;
    unsigned letters = 0, signs = 0, others = 0, order = 0;
#define NEXT goto *table[*p++]
    NEXT;
letter: letters++; order = order * 3 + 1; NEXT;
sign: signs++; order = order * 5 + 2; NEXT;
star: order += letters; NEXT;
bang: order ^= signs << 8; NEXT;
other: others++; NEXT;
end: return order + letters * 1000 + signs * 100 + others;
}

int main(void) {
    printf("%u %u %u\n", differences16(1), differences16(100), differences16(54321));
    printf("%u %u\n", changing(10), changing(12345));
    printf("%u %u\n", driven(10), driven(23456));
    printf("%u\n", scan());
    return 0;
}
