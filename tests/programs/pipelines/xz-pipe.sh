#!/bin/dash
head -n 120 /data/words.txt | xz -0 | xz -dc | md5sum
xz -dc /data/words.txt.xz | head -n 1000 | sha256sum
head -c 500 /data/words.txt.xz | xz -dc 2>&1 >/dev/null; echo $?
