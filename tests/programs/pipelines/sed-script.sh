#!/bin/dash
cd /tmp
cat >s.sed <<'END'
1!G
h
$!d
END
seq 60 | sed -f s.sed | paste -sd,
head -n 60 /data/words.txt | sed -n '/fox/{s/fox/[&]/gp}' | sed 's/ .*//' | sort | uniq -c
printf 'a b\nc d\n' | sed 'N;s/\n/ + /;P;D'
