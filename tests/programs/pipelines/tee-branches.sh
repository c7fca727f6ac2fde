#!/bin/bash
cd /tmp
seq 200 | tee >(wc -l >lines) >(md5sum >sum) >(tail -n 1 >last) | grep -c 7
# The branches end after tee.
for f in lines sum last; do until [ -s $f ]; do sleep 0.01; done; cat $f; done
seq 5 | tee a b | tail -n 1; paste a b
