#!/bin/dash
seq 200 | python3.13 -S -c '
import sys
n = [int(line) for line in sys.stdin]
print(sum(n), sum(x * x for x in n), max(n) ** 40)
print(*[x for x in n if x % 17 == 0], file=sys.stderr)' 2>&1 | sort | md5sum
