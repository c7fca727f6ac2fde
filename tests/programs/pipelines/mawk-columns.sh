#!/bin/dash
head -n 400 /data/table.csv |
    mawk -F, 'NR > 1 { sum[$4] += $3; n[$4]++ } END { for (c in sum) printf "%s %.2f %d\n", c, sum[c], n[c] }' |
    sort | mawk '{ total += $2; print } END { printf "total %.2f\n", total }'
