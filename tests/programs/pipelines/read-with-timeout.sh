#!/bin/bash
read -t 0.1 x < <(sleep 600 & echo $! >/tmp/pid; wait); echo $?
until [ -s /tmp/pid ]; do sleep 0.01; done; kill $(cat /tmp/pid)
read -t 600 x < <(echo soon); echo "$? $x"
IFS=: read -r a b c <<<'1:2:3:4'; echo "$c $b $a"; read -n 3 x <<<abcdef; echo $x
printf 'a\0b\0' | while read -r -d '' x; do echo "<$x>"; done
