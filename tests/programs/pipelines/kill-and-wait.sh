#!/bin/bash
for s in TERM KILL HUP USR1; do
    sleep 600 & pid=$!
    kill -$s $pid; wait $pid 2>/dev/null; echo "$s $?"
done 2>/dev/null
(sh -c 'kill -SEGV $$'; exit $?) 2>/dev/null; echo $?
kill -l 15 $((128 + 9)); kill -0 $$ && echo alive
sleep 600 & sleep 600 & kill $(jobs -p); wait; echo none left
