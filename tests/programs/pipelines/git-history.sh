#!/bin/bash
cd /tmp; mkdir r; cd r
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@x
export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000' GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
git init -q -b main .
seq 30 >a; echo b >b; git add .; git commit -q -m first
sed -i 's/^17$/seventeen/' a; git commit -q -am second
git log --stat --format='%H %s'
