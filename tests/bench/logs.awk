# Writes `lines` lines in the form of a web server's log. A built-in linear
# congruential generator keeps the text independent of the awk that runs it.
function random(limit) {
    state = (state * 1103515245 + 12345) % 2147483648
    return int(state / 65536) % limit
}
BEGIN {
    state = 20240229
    split("GET GET GET GET POST PUT DELETE HEAD", methods, " ")
    split("200 200 200 200 200 304 404 500", codes, " ")
    words = split("index catalog product basket order account search image style " \
        "script help contact archive report export invoice session metrics", names, " ")
    for (line = 0; line < lines; line++) {
        address = random(223) + 1 "." random(256) "." random(256) "." random(256)
        time = sprintf("%02d:%02d:%02d", int(line / 3600) % 24, int(line / 60) % 60, line % 60)
        path = "/" names[random(words) + 1] "/" names[random(words) + 1] "/" random(5000)
        printf "%s - - [17/Mar/2025:%s +0000] \"%s %s HTTP/1.1\" %s %d \"-\" \"client/%d.%d\"\n", \
            address, time, methods[random(8) + 1], path, codes[random(8) + 1], \
            random(20000), random(9), random(30)
    }
}
