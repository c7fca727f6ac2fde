# Writes the compressors' input: prose of an invented language with some frequent words, a
# table of numbers, and program text, in turn. A built-in linear congruential generator
# keeps the file independent of the awk that runs it.
function random(limit) {
    state = (state * 1103515245 + 12345) % 2147483648
    return int(state / 65536) % limit
}
function invent(   length_, word, i) {
    length_ = 1 + random(3) + random(2)
    for (i = 0; i < length_; i++)
        word = word substr("bcdfghklmnprstvw", random(16) + 1, 1) substr("aeiou", random(5) + 1, 1)
    return word substr("nrst", random(9) + 1, 1)
}
# The first words are much more frequent than the last ones.
function word(   at) {
    at = random(vocabulary)
    return words[int(at * at * at / (vocabulary * vocabulary))]
}
function prose(   i, line) {
    for (i = 0; i < 11; i++)
        line = line word() (random(9) ? " " : ", ")
    print line word() "."
}
function numbers(   i) {
    for (i = 0; i < 8; i++)
        printf "%d.%03d;", level[i] += random(21) - 10, random(1000)
    printf "%08x\n", state
}
function code(   name) {
    name = word()
    printf "    if (%s->count > %d) {\n        %s_%s(%s, &table[%d]);\n    }\n", \
        name, random(64), name, substr("initrestfreecopy", 4 * random(4) + 1, 4), name, random(900)
}
BEGIN {
    state = 20250401
    vocabulary = 3000
    for (i = 0; i < vocabulary; i++)
        words[i] = invent()
    while (lines-- > 0) {
        kind = int(lines / 500) % 4
        if (kind < 2) prose()
        else if (kind == 2) numbers()
        else code()
    }
}
