#!/bin/bash
cd /tmp
mkfifo p q
while read -r n; do echo $((n * n)); done <p >q &
seq 50 >p &
paste -sd+ <q | tee sum | md5sum; wait; cut -c 1-20 sum
exec 5<>p; echo kept >&5; read -r line <&5; echo "$line"
