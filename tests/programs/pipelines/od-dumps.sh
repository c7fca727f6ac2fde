#!/bin/dash
head -c 2000 /data/binary.bin | od -An -tx1 -v | tr -d ' \n' | fold -w 64 | md5sum
printf 'abc\0\377\n' | od -c; seq 30 | od -An -tu4 | head -n 3
head -c 64 /data/binary.bin | od -An -td8 | sort -n | tail -n 1
