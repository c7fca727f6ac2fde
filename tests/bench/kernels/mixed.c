// Mixed work of a small controller: sorted lists, integer matrices, a state machine
// that reads numbers, bit fields, and a cyclic redundancy check over all results.
#include "kernels.h"

enum { ITEMS = 200, SIDE = 24, TEXT = 4096 };

static NOINLINE uint32_t crc(uint32_t value, uint32_t sum) {
    for (int bit = 0; bit < 32; bit++) {
        uint32_t low = (sum ^ value) & 1;
        sum >>= 1, value >>= 1;
        if (low)
            sum ^= 0xedb88320u;
    }
    return sum;
}

// --- Lists ---

struct item {
    struct item *next;
    int16_t key, rank;
};

typedef int order(const struct item *, const struct item *);
static int by_key(const struct item *a, const struct item *b) { return a->key - b->key; }
static int by_rank(const struct item *a, const struct item *b) { return a->rank - b->rank; }

static NOINLINE struct item *insert(struct item *list, struct item *item, order *compare) {
    struct item **place = &list;
    while (*place && compare(*place, item) < 0)
        place = &(*place)->next;
    item->next = *place;
    *place = item;
    return list;
}

static struct item *sort(struct item *list, order *compare) {
    struct item *sorted = NULL;
    while (list) {
        struct item *next = list->next;
        sorted = insert(sorted, list, compare);
        list = next;
    }
    return sorted;
}

static NOINLINE struct item *reverse(struct item *list) {
    struct item *reversed = NULL;
    while (list) {
        struct item *next = list->next;
        list->next = reversed;
        reversed = list;
        list = next;
    }
    return reversed;
}

static NOINLINE uint32_t lists(uint32_t *random, uint32_t sum) {
    static struct item items[ITEMS];
    struct item *list = NULL;
    for (int i = 0; i < ITEMS; i++) {
        items[i] = (struct item){list, next_random(random) & 0x3fff, i};
        list = &items[i];
    }
    list = sort(list, by_key);
    for (const struct item *item = list; item; item = item->next)
        sum = sum * 5 + item->rank;
    list = reverse(sort(reverse(list), by_rank));
    for (const struct item *item = list; item; item = item->next)
        sum = sum * 5 + item->key;
    return crc(sum, sum >> 16);
}

// --- Matrices ---

static NOINLINE uint32_t matrices(uint32_t *random, uint32_t sum) {
    static int16_t a[SIDE][SIDE], b[SIDE][SIDE];
    static int32_t product[SIDE][SIDE];
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            a[i][j] = next_random(random) & 0xff, b[i][j] = a[i][j] ^ (i * j);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            int32_t value = 0;
            for (int k = 0; k < SIDE; k++)
                value += a[i][k] * b[k][j];
            product[i][j] = value;
        }
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++) {
            uint32_t value = product[i][j];
            // Two bit fields of the value, as a controller extracts them from a register.
            sum += ((value >> 2) & 0xf) * ((value >> 5) & 0x7f);
        }
    return crc(sum, ~sum);
}

// --- A state machine ---

enum state { START, SIGN, INTEGER, POINT, FRACTION, EXPONENT, DIGITS, INVALID, STATES };

static enum state step(enum state state, char c) {
    int digit = c >= '0' && c <= '9';
    switch (state) {
    case START:
        return digit ? INTEGER : c == '+' || c == '-' ? SIGN : c == '.' ? POINT : INVALID;
    case SIGN: return digit ? INTEGER : c == '.' ? POINT : INVALID;
    case INTEGER:
        return digit ? INTEGER : c == '.' ? FRACTION : c == 'e' ? EXPONENT : INVALID;
    case POINT: return digit ? FRACTION : INVALID;
    case FRACTION: return digit ? FRACTION : c == 'e' ? EXPONENT : INVALID;
    case EXPONENT: return digit || c == '-' ? DIGITS : INVALID;
    case DIGITS: return digit ? DIGITS : INVALID;
    default: return INVALID;
    }
}

static void write_numbers(char *text, uint32_t *random) {
    static const char characters[] = "0123456789012345678901234567890123.e-+,,,,x";
    for (int i = 0; i < TEXT - 1; i++)
        text[i] = characters[next_random(random) % (sizeof characters - 1)];
    text[TEXT - 1] = 0;
}

static NOINLINE uint32_t states(uint32_t *random, uint32_t sum) {
    static char text[TEXT];
    uint32_t ends[STATES] = {0}, steps = 0;
    write_numbers(text, random);
    for (const char *c = text; *c;) {
        enum state state = START;
        for (; *c && *c != ','; c++, steps++)
            if (state != INVALID)
                state = step(state, *c);
        ends[state]++;
        if (*c)
            c++;
    }
    for (int i = 0; i < STATES; i++)
        sum = crc(ends[i], sum);
    return crc(steps, sum);
}

void mixed(unsigned rounds) {
    uint32_t random = 19, sum = 0;
    for (unsigned round = 0; round < rounds; round++) {
        sum = lists(&random, sum);
        for (int i = 0; i < 4; i++)
            sum = matrices(&random, sum);
        sum = states(&random, sum);
    }
    printf("mixed %08x\n", sum);
}
