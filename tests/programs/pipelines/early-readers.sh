#!/bin/dash
yes | head -n 3; seq 100000 | head -n 1
(seq 100000; echo "seq ended $?" >&2) 2>&1 >/dev/full | tail -n 1 | grep -c ended
yes abc | head -c 5000 | md5sum; yes | tr y n | sed 20q | uniq -c
