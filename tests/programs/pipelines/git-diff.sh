#!/bin/bash
cd /tmp; mkdir r; cd r
export GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
git init -q -b main .
seq 40 >a; git add a; seq 40 | sed 's/^2/x/; /^35$/d' >a; echo new >b
git diff --stat; git diff | tee ../p | md5sum
git status --short; git checkout -q a; git apply ../p; git diff --numstat; git hash-object a b
