#!/bin/dash
cd /tmp
head -n 80 /data/words.txt | bzip2 -1 | tee b.bz2 | bzip2 -dc | md5sum
wc -c <b.bz2; bzip2 -t b.bz2 && echo good
head -c 200 b.bz2 | bzip2 -dc >part 2>/dev/null; echo $?
