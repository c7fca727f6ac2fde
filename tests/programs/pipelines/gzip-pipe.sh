#!/bin/dash
cd /tmp
head -n 200 /data/words.txt | gzip -9n | tee w.gz | gunzip | md5sum
wc -c <w.gz; zcat w.gz | head -n 1; gzip -l w.gz | tail -n 1; gzip -t w.gz && echo good
head -c 1000 w.gz | gunzip 2>&1 | tail -n 1
