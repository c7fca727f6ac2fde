#!/bin/bash
# The pipeline whose sums were wrong on a busy machine.
for i in 1 2 3; do
    seq 1200 | sed -E 's/([0-9])([0-9])/\2\1/g; /7$/d; y/123/abc/' | md5sum
done
