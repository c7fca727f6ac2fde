#!/bin/sh
# Linker driver for the fuzz targets. libFuzzer brings replacements of memcmp and its
# like, which look for the originals with dlsym: that does not work in a static program.
# With the C library first they are not linked.
exec "$(dirname "$0")/../deploy/setup/cc.sh" -lc "$@"
