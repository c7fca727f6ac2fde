#!/bin/dash
cd /tmp
head -n 60 /data/words.txt >x; sed -e '20d' -e 's/fox/cat/' -e '40i inserted' x >y
diff x y | md5sum; diff -u x y | tail -n +3 | sha256sum; diff -y -W 60 x y | grep -c '[|<>]'
cmp x y; echo $?; diff -q x y; mkdir p q; cp x p/f; cp y q/f; echo only >q/g; diff -r p q | wc -l
