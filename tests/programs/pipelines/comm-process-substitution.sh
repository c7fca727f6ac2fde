#!/bin/bash
comm -12 <(seq 1 3 600 | sort) <(seq 1 7 600 | sort) | sort -n | paste -sd' '
comm -3 <(seq 1 40) <(seq 20 60) --nocheck-order | tr -d '\t' | sort -n | sha256sum
diff <(seq 1 30) <(seq 1 30 | sed 's/^17$/x/')
echo "diff ended $?"
