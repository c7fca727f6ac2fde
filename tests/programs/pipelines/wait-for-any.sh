#!/bin/bash
for i in 5 6 7; do (exit $i) & done
# 127 is no end of a job here: bash says it too if the last one ends while it looks.
until [ ${#codes[@]} = 3 ]; do wait -n; code=$?; [ $code = 127 ] || codes+=($code); done
printf '%s\n' "${codes[@]}" | sort | paste -sd' '
wait -n; echo $?
# Not -n: it does not know a process that has ended before.
(exit 9) & p=$!; wait -p which $p; echo $? $((which == p))
