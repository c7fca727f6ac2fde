#!/bin/bash
coproc UP { while read -r line; do echo "${line^^}"; done; }
for word in one two three; do echo $word >&${UP[1]}; read -r answer <&${UP[0]}; echo "$answer"; done
in=${UP[1]} pid=$UP_PID; exec {in}>&-; wait $pid; echo $?
