#!/bin/dash
seq 400 | cat | cat | sort -r | cat | sort -n | cat | tail -n 100 | cat | md5sum
seq 20 | (while read n; do echo $n; [ $n = 9 ] && break; done; cat) | wc -l
x=0; while [ $x -lt 8 ]; do echo $x | tr 0-9 a-j; x=$((x + 1)); done | cat | paste -sd' '
