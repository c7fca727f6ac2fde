#!/bin/bash
x=$(printf 'a\n\n\n'); echo "[$x]"; y=`echo one; echo \`echo two\``; echo $y
n=0; for f in $(seq 60 | grep 3); do n=$((n + f)); done; echo $n
echo "$(</data/old.txt)" | paste -sd,; z=$(exit 5); echo $?
declare -A m; while IFS=, read -r id name amount city; do m[$city]=$((${m[$city]} + 1)); done < <(head -n 80 /data/table.csv | tail -n +2)
for c in "${!m[@]}"; do echo "$c ${m[$c]}"; done | sort
mapfile -t lines < <(seq 10 -1 1); echo "${lines[@]:3:3}"
