#!/bin/bash
for i in 5 6 7; do (exit $i) & done
# 127 is not a job's status here: bash also returns it if the last job ends during the check.
until [ ${#codes[@]} = 3 ]; do wait -n; code=$?; [ $code = 127 ] || codes+=($code); done
printf '%s\n' "${codes[@]}" | sort | paste -sd' '
wait -n; echo $?
# Not -n: it does not report a process that has already ended.
(exit 9) & p=$!; wait -p which $p; echo $? $((which == p))
