#!/bin/bash
cd /tmp
cat >Makefile <<'END'
parts := $(foreach n,1 2 3 4,part.$(n))
all: sum
sum: $(parts)
	cat $^ | sort -n | md5sum >$@; cat $@
part.%:
	@seq $* 4 80 >$@
fail:
	@false
.PHONY: all fail
END
make -j 3; make; touch -d 2001-01-01 sum; make --no-print-directory -s sum; make -s fail 2>&1; echo $?
