#!/bin/dash
cd /tmp
seq 300 | shuf --random-source=/data/binary.bin | tee s | md5sum
sort -n s | cmp - s >/dev/null || echo shuffled
sort -n s | md5sum; seq 300 | md5sum
shuf -n 5 -e a b c d e f g --random-source=/data/other.bin | paste -sd' '
sort -R --random-source=/data/binary.bin s | tail -n 2
