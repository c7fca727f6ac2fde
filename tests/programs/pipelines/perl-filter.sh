#!/bin/dash
head -n 150 /data/words.txt |
    perl -ne 'while (/(\w+)/g) { $n{lc $1}++ } END { print "$_ $n{$_}\n" for sort keys %n }' |
    sort -k2nr -k1 | head -n 5
seq 40 | perl -pe 's/(\d)(\d)/$2$1/; $_ = reverse($_) . "\n" if /3/; chomp; $_ .= ";"'; echo
