#!/bin/dash
cd /tmp
for i in 3 1 4 2; do (n=0; while [ $n -lt $((i * 60)) ]; do n=$((n + 1)); done; echo "$i $n" >job.$i; exit $i) & pids="$pids $!"; done
for pid in $pids; do wait $pid; echo $?; done
cat job.*
