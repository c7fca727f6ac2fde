#!/bin/sh
# Tests of the cross-built program, inside the root file system.
. /files/report.sh

# The histogram has as many bytes as the input.
sums() {
    head -c "$1" /usr/bin/sqlite3 >/tmp/input
    size=$(wc -c </tmp/input)
    /files/histogram </tmp/input | mawk -v size="$size" '
        $1 != "checksum" { sum += $2 } END { exit sum != size }'
}

# The counts are those of other programs.
agrees() {
    head -c "$1" /usr/bin/sqlite3 | od -An -v -tu1 | tr -s ' ' '\n' | sed '/^$/d' |
        sort -n | uniq -c | mawk '{ print $2, $1 }' >/tmp/expected
    head -c "$1" /usr/bin/sqlite3 | /files/histogram | grep -v checksum >/tmp/found
    cmp /tmp/expected /tmp/found
}

known() { [ "$(printf %s "$1" | /files/histogram | tail -n 1)" = "checksum $2" ]; }
unreadable() { ! /files/histogram </tmp; }

for size in 0 1 255 4096 65535 65536 65537 1000000; do check "size-$size" sums $size; done
for size in 1 1000 20000 100000; do check "counts-$size" agrees $size; done
check known-empty known '' 811c9dc5
check known-a known a e40c292c
check known-foobar known foobar bf9cf968
check unreadable unreadable
finish histogram /results/program.xml
