#!/bin/dash
cd /tmp
head -n 300 /data/table.csv >t
cut -d, -f1 t >a; cut -d, -f3 t >b; cut -d, -f4 t >c
paste -d: c a b | sort | sha256sum
paste -s -d'+\n' a | head -n 2
cut -c 2-5 t | sort | uniq -d | head -n 5
