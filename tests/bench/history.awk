# Writes a history for git fast-import: commits that each change some lines of some files. A
# built-in linear congruential generator keeps it independent of the awk that runs it.
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
function line(   i, text) {
    for (i = 0; i < 8; i++)
        text = text words[random(vocabulary)] " "
    return text
}
function data(text) {
    printf "data %d\n%s\n", length(text), text
}
# Changes up to four lines of a file and prints it.
function change(file,   i, text) {
    for (i = random(4); i >= 0; i--)
        lines[file, random(80)] = line()
    for (i = 0; i < 80; i++)
        text = text lines[file, i] "\n"
    printf "M 100644 inline src/%s/%s.c\n", words[file % 12], words[100 + file]
    data(text)
}
BEGIN {
    state = 20251127
    vocabulary = 1500
    files = 120
    for (i = 0; i < vocabulary; i++)
        words[i] = invent()
    for (file = 0; file < files; file++)
        for (i = 0; i < 80; i++)
            lines[file, i] = line()
    for (commit = 0; commit < commits; commit++) {
        printf "commit refs/heads/main\nmark :%d\n", commit + 1
        printf "committer %s <%s@example.org> %d +0000\n", words[commit % 9], words[commit % 9], 1700000000 + 3600 * commit
        data(line() "\n\n" line())
        if (commit)
            printf "from :%d\n", commit
        for (i = random(3); i >= 0; i--)
            change(random(files))
        print ""
    }
}
