#!/bin/dash
cd /tmp
head -n 300 /data/words.txt | tr -cs 'A-Za-z' '\n' | sort | uniq -c | sort -k1,1nr -k2
head -n 300 /data/words.txt | sort -u | sort -r | md5sum
