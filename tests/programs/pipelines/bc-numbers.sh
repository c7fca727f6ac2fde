#!/bin/dash
seq -s' + ' 1 60 | bc
printf 'scale = 20\n4 * a(1)\ne(1)\n' | bc -l
for i in 10 20 30; do echo "2 ^ $i % 1009"; done | bc | paste -sd' '
echo 'obase = 16; 2 ^ 100' | bc | rev
