#!/usr/bin/env bash
# Build the shared library for C hosts.
#
#   build.sh OUT
#
# OUT gets libhartline.so.VERSION, the links libhartline.so.0 and libhartline.so, and the header. The library needs
# the C library of this machine or a newer one (2.36 or later), libgcc_s, and nothing else: LLVM and the C++ library are
# in it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
target=x86_64-unknown-linux-gnu
toolchain=$root/.toolchain/usr/lib
built=${CARGO_TARGET_DIR:-$root/target}/shared

# Only these of the toolchain's libraries: the C library is the machine's.
archives=$built/archives
mkdir -p "$archives"
ln -sf "$toolchain/gcc/x86_64-linux-gnu/14/libstdc++.a" "$archives/"
ln -sf "$toolchain/x86_64-linux-gnu"/{libz.a,libzstd.a} "$archives/"
ln -sf "$toolchain/x86_64-linux-gnu/libffi_pic.a" "$archives/libffi.a"

cd "$root"
# In place of the flags in .cargo/config.toml, which are for statically linked programs.
export RUSTFLAGS="-Crelocation-model=pic -Clink-arg=-fuse-ld=lld -Lnative=$archives"
cargo rustc --quiet --release --locked --target "$target" --target-dir "$built" -p hartline-embed-c \
    --features shared-library --crate-type cdylib -- \
    -Clink-arg=-Wl,-soname,libhartline.so.0 -Clink-arg=-Wl,-z,nodelete -Clink-arg=-Wl,-z,defs \
    -Clink-arg=-Wl,--wrap=__cxa_atexit

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
file=$out/libhartline.so.$version
strip --strip-unneeded -o "$file.new" "$built/$target/release/libhartline_host.so"
mv "$file.new" "$file"
ln -sf "libhartline.so.$version" "$out/libhartline.so.0"
ln -sf libhartline.so.0 "$out/libhartline.so"
cp "$here/hartline_host.h" "$out/"
