#!/bin/dash
cd /tmp
head -n 400 /data/words.txt >w
split -l 90 w part-; wc -l part-*; cat part-* | cmp - w && echo same
md5sum part-* >sums; md5sum -c sums; echo x >>part-aa; md5sum -c --quiet sums 2>&1; echo $?
split -n l/3 --filter='sha256sum' w; cat w | split -b 4K --filter='wc -c'
