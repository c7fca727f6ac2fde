#!/usr/bin/env bash
# Prepare the programs and inputs of `hartline bench compute`.
#
#   build.sh OUT
#
# OUT/native/     x86-64 programs
# OUT/riscv64/    the same programs for riscv64
# OUT/input/      input files
# OUT/qemu-riscv64
#
# busybox and qemu-riscv64 are Debian's own packages. The C programs are compiled
# here for both targets by the same compiler version with the same options: -O2,
# static, and no fused multiply-add, which would round differently where only one of
# the two instruction sets has it. secp256k1 is the C library that the crate secp256k1-sys carries, without
# hand-written assembly for either target.
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: $0 OUT" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
mkdir -p "$out"/{native,riscv64,input}

"$root/deploy/setup/fetch-debian.sh" riscv64 "$root/.debian/riscv64" busybox-static
"$root/deploy/setup/fetch-debian.sh" amd64 "$root/.debian/amd64" busybox-static qemu-user
# Replaced by renaming: a running benchmark keeps its program.
place() {
    cp "$1" "$2.new"
    mv "$2.new" "$2"
}
place "$root/.debian/riscv64/usr/bin/busybox" "$out/riscv64/busybox"
place "$root/.debian/amd64/usr/bin/busybox" "$out/native/busybox"
place "$root/.debian/amd64/usr/bin/qemu-riscv64" "$out/qemu-riscv64"

options=(-O2 -static -Wall -ffp-contract=off)
# compile NAME SOURCE OPTION...
compile() {
    local name=$1
    shift
    gcc "${options[@]}" -o "$out/native/$name.new" "$@"
    riscv64-linux-gnu-gcc "${options[@]}" -o "$out/riscv64/$name.new" "$@"
    mv "$out/native/$name.new" "$out/native/$name"
    mv "$out/riscv64/$name.new" "$out/riscv64/$name"
}

compile kernels "$here"/kernels/*.c -lm

# The sources come the way every dependency does, checked against Cargo.lock.
vendor=$out/vendor
(cd "$here/secp256k1-sources" && cargo vendor --quiet --locked "$vendor" >/dev/null)
secp=$vendor/secp256k1-sys/depend/secp256k1
# The crate puts its version into every symbol.
prefix=$(grep -o 'rustsecp256k1_v[0-9_]*_ecdsa_verify' "$secp/include/secp256k1.h" | head -n 1)
compile secp256k1 -Wno-unused-function -I"$secp" -I"$secp/include" -I"$secp/src" \
    -DPREFIX="${prefix%ecdsa_verify}" \
    -DECMULT_WINDOW_SIZE=15 -DCOMB_BLOCKS=43 -DCOMB_TEETH=6 \
    "$here/secp256k1_verify.c" "$secp/src/secp256k1.c" \
    "$secp/src/precomputed_ecmult.c" "$secp/src/precomputed_ecmult_gen.c"

# Lines as a web server logs them. The generator is awk with a fixed seed, so the
# file is the same everywhere.
# logs LINES FILE
logs() {
    "$out/native/busybox" awk -v lines="$1" -f "$here/logs.awk" >"$2.new"
    mv "$2.new" "$2"
}
[ -e "$out/input/logs.txt" ] || logs 320000 "$out/input/logs.txt"
[ -e "$out/input/logs-quick.txt" ] || logs 20000 "$out/input/logs-quick.txt"
cp "$here/report.awk" "$out/input/report.awk"
