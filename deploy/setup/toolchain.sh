#!/usr/bin/env bash
# Unpack the build's own toolchain into .toolchain/: LLVM 22 as static archives and the
# C and C++ libraries they were built against. The host programs link only against
# these, statically, so that one binary runs on every x86-64 Linux and starts without a
# dynamic loader. Also xterm.js, the terminal of the daemon's page.
#
#   toolchain.sh             fetch and unpack
#   toolchain.sh --packages  print "ARCH PACKAGE..." of the packages, for update-lock.sh
set -euo pipefail
packages=(
    base-files llvm-22-dev
    libc6-dev libc6 libstdc++-14-dev libgcc-14-dev linux-libc-dev
    zlib1g-dev libzstd-dev libffi-dev
    libjs-xterm
)
if [ "${1:-}" = --packages ]; then
    echo "amd64 ${packages[*]}"
    exit
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
"$here/fetch-debian.sh" amd64 "$root/.toolchain" "${packages[@]}"
# Keep only archives: a shared library would make the program dynamic.
find "$root/.toolchain/usr/lib/x86_64-linux-gnu" "$root/.toolchain/usr/lib/gcc" \
    -name "*.so" -delete
