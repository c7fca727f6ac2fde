#!/bin/bash
cd /tmp
# Two processes answer each other with signals.
bash -c 'trap "echo ping >>log; n=\$((n + 1))" USR1; echo $$ >pid.tmp; mv pid.tmp pid
    while [ ${n:-0} -lt 3 ]; do sleep 0.02; done; exit 8' & child=$!
until [ -e pid ]; do sleep 0.01; done
for i in 1 2 3; do kill -USR1 $child; until [ "$(wc -l 2>/dev/null <log)" = $i ]; do sleep 0.01; done; done 2>/dev/null
wait $child; echo $?; cat log
