#!/bin/dash
cd /tmp
mkdir s; for i in 1 2 3 4; do tail -n +$((i * 40)) /data/words.txt | head -n 40 >s/$i.txt; done
rg -j 2 --no-filename -o '[A-Z]\w+' s | sort | uniq -c
head -n 100 /data/words.txt | rg -N 'lazy (dog|fox)' -r '<$1>' | sort -u | head -n 3
