#!/bin/bash
for i in 1 2 3 4 5 6 7 8 9 10; do echo $i | cat | tr 0-9 a-j; done | paste -sd' '
while read -r n; do expr $n \* $n; done < <(seq 9) | sort -rn | head -n 3
i=0; until [ $(expr $i % 7) = 6 ]; do i=$(expr $i + 1); done; echo $i
for c in true false 'exit 3'; do sh -c "$c" | cat; echo "${PIPESTATUS[0]}"; done
