#!/bin/dash
head -n 30 /data/words.txt | fmt -w 40 | nl -ba | expand | md5sum
head -n 5 /data/old.txt | rev | tac | pr -t -2 -w 30; head -n 40 /data/words.txt | fold -sw 20 | unexpand -a | cksum
seq 12 | column -c 20; head -n 4 /data/table.csv | column -s, -t
seq 6 | xargs -n 2 printf '%03d|%-4s|\n'; seq 5 | numfmt --to=iec --from-unit=1000
