#!/bin/dash
head -n 400 /data/words.txt | tr '[:lower:]' '[:upper:]' | tr -d 'AEIOU' | tr -s ' L' | cksum
head -c 3000 /data/binary.bin | tr -cd '[:print:]' | fold -w 40 | head -n 3
head -n 100 /data/words.txt | tr ' ' '\n' | tr 'a-y' 'b-z' | sort | uniq -c | sort -rn -k1,1 -k2 | head -n 4
