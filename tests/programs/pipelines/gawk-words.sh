#!/bin/bash
head -n 200 /data/words.txt |
    gawk '{ for (i = 1; i <= NF; i++) n[tolower($i)]++ }
          END { PROCINFO["sorted_in"] = "@val_num_desc"; for (w in n) print n[w], w }' |
    sort -k1,1nr -k2 | head -n 6
seq 100 | gawk '{ print $1 * 7 % 13 | "sort -n | uniq -c | head -n 4" }'
gawk 'BEGIN { "echo inner; echo lines" | getline x; print x; while (("seq 5" | getline y) > 0) s += y; print s }'
