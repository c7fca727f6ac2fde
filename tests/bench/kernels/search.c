// Search in text, byte by byte: Horspool's algorithm, a finite automaton for several
// words at once, and plain comparison at every position.
#include "kernels.h"

enum { LENGTH = 1 << 20, STATES = 64, WORDS = 6 };

static const char *const words[WORDS] = {"interrupt", "translate", "register",
                                         "terminal",  "instance",  "rest"};

static void make_text(char *text, uint32_t *random) {
    static const char letters[] = "eeeetttaaoiinnsssrrhldcumfpgwyb   ";
    for (size_t i = 0; i < LENGTH;) {
        if (next_random(random) % 50 == 0) {
            const char *word = words[next_random(random) % WORDS];
            while (*word && i < LENGTH)
                text[i++] = *word++;
        } else {
            text[i++] = letters[next_random(random) % (sizeof letters - 1)];
        }
    }
}

static NOINLINE uint64_t horspool(const unsigned char *text, const char *word) {
    size_t length = strlen(word), shift[256];
    for (int c = 0; c < 256; c++)
        shift[c] = length;
    for (size_t i = 0; i + 1 < length; i++)
        shift[(unsigned char)word[i]] = length - 1 - i;
    uint64_t found = 0;
    for (size_t at = 0; at + length <= LENGTH; at += shift[text[at + length - 1]]) {
        size_t i = length;
        while (i > 0 && text[at + i - 1] == (unsigned char)word[i - 1])
            i--;
        if (i == 0)
            found = found * 31 + at;
    }
    return found;
}

struct automaton {
    unsigned char next[STATES][256], output[STATES];
};

// Aho and Corasick's automaton: a trie whose missing edges follow the longest proper
// suffix.
static void build(struct automaton *automaton) {
    unsigned char failure[STATES] = {0}, queue[STATES];
    unsigned states = 1, head = 0, tail = 0;
    memset(automaton, 0, sizeof *automaton);
    for (int word = 0; word < WORDS; word++) {
        unsigned state = 0;
        for (const char *c = words[word]; *c; c++) {
            unsigned char *edge = &automaton->next[state][(unsigned char)*c];
            if (*edge == 0)
                *edge = states++;
            state = *edge;
        }
        automaton->output[state] |= 1 << word;
    }
    for (int c = 0; c < 256; c++)
        if (automaton->next[0][c])
            queue[tail++] = automaton->next[0][c];
    while (head < tail) {
        unsigned state = queue[head++];
        automaton->output[state] |= automaton->output[failure[state]];
        for (int c = 0; c < 256; c++) {
            unsigned char *edge = &automaton->next[state][c];
            unsigned char fallback = automaton->next[failure[state]][c];
            if (*edge) {
                failure[*edge] = fallback;
                queue[tail++] = *edge;
            } else {
                *edge = fallback;
            }
        }
    }
}

static NOINLINE uint64_t scan(const struct automaton *automaton, const unsigned char *text) {
    uint64_t found = 0;
    unsigned state = 0;
    for (size_t i = 0; i < LENGTH; i++) {
        state = automaton->next[state][text[i]];
        if (automaton->output[state])
            found = found * 31 + automaton->output[state] + i;
    }
    return found;
}

static NOINLINE uint64_t plain(const char *text, const char *word) {
    uint64_t found = 0;
    for (size_t at = 0; at < LENGTH; at++) {
        size_t i = 0;
        while (word[i] && at + i < LENGTH && text[at + i] == word[i])
            i++;
        found += !word[i];
    }
    return found;
}

void search(unsigned rounds) {
    char *text = allocate(LENGTH, 1);
    static struct automaton automaton;
    build(&automaton);
    uint32_t random = 13;
    uint64_t sum = 0;
    for (unsigned round = 0; round < rounds; round++) {
        make_text(text, &random);
        for (int word = 0; word < WORDS; word++) {
            sum = sum * 3 + horspool((unsigned char *)text, words[word]);
            sum = sum * 3 + plain(text, words[word]);
        }
        sum = sum * 3 + scan(&automaton, (unsigned char *)text);
    }
    printf("search %llu\n", (unsigned long long)sum);
    free(text);
}
