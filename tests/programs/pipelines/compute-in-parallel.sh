#!/bin/dash
cd /tmp
for i in 1 2 3; do
    { seq $((i * 40)) | mawk '{ s += $1 * $1 } END { print s }' >r.$i; seq $((i * 30)) | md5sum >m.$i; } &
done
wait; cat r.* m.*
cat r.1 r.2 r.3 | paste -sd+ | bc
