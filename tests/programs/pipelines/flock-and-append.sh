#!/bin/dash
cd /tmp
for i in 1 2 3 4; do (for j in 1 2 3 4 5; do echo "$i $j" >>log; done) & done; wait
wc -l <log; sort log | md5sum
for i in 1 2 3; do dd if=/data/binary.bin of=image bs=100 count=1 skip=$i seek=$i conv=notrunc status=none & done; wait
tail -c 300 image | md5sum; head -c 400 /data/binary.bin | tail -c 300 | md5sum
