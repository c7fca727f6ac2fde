#!/bin/bash
# The shell prints the process numbers of killed processes.
exec 2>/dev/null
timeout 0.2 sleep 60; echo $?
timeout -s KILL 0.2 sleep 60; echo $?
timeout 600 sh -c 'exit 7'; echo $?
timeout -s CONT -k 0.2 0.2 sleep 60; echo $?
(timeout 0.3 yes || echo ended $?) | tail -n 1
