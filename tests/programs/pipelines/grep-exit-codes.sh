#!/bin/bash
set -o pipefail
head -n 500 /data/words.txt | grep -c fox
head -n 500 /data/words.txt | grep -oE '[A-Z][a-z]+|[0-9]+' | sort | uniq -c
seq 100 | grep -vE '[1-8]' | paste -sd' '
seq 10 | grep 11 | cat; echo "${PIPESTATUS[*]}"
grep -rl user /data/table.csv /data/old.txt; echo $?
grep -n -B1 -A1 gamma /data/old.txt /data/new.txt
