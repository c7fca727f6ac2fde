#!/bin/bash
for i in 5 6 7; do (exit $i) & done
for i in 1 2 3; do wait -n; codes+=($?); done
printf '%s\n' "${codes[@]}" | sort | paste -sd' '
wait -n; echo $?
# Not -n: it does not know a process that has ended before.
(exit 9) & p=$!; wait -p which $p; echo $? $((which == p))
