#!/bin/sh
# Linker driver for the fuzz targets. libFuzzer has replacements of memcmp and similar
# functions, which find the originals with dlsym. This does not work in a static program.
# If the C library comes first, the replacements are not linked.
exec "$(dirname "$0")/../deploy/setup/cc.sh" -lc "$@"
