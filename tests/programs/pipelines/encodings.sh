#!/bin/dash
head -c 600 /data/binary.bin | base64 -w 60 | tee /tmp/e | base64 -d | md5sum; tail -n 1 /tmp/e
head -c 100 /data/binary.bin | base32 | base32 -d | sha1sum; printf hartline | basenc --base16
head -c 4000 /data/words.txt | sha512sum; head -c 4000 /data/words.txt | b2sum -l 128
echo 'x y' | od -An -to1 | tr -d ' \n' | sha224sum | cut -c 1-10
