#!/usr/bin/env bash
# Build the shared library for C hosts.
#
#   build.sh OUT [ARCHIVE]
#
# OUT gets libhartline.so.VERSION, the links libhartline.so.0 and libhartline.so, and the header. The library needs
# the C library of this machine or a newer one (2.36 or later), libgcc_s, and nothing else: LLVM and the C++ library are
# in it. ARCHIVE is the static library of hartline-embed-c, which is built if it is not given.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
archive=${2:-}
toolchain=$root/.toolchain/usr/lib

if [ -z "$archive" ]; then
    # Cargo reads the flags in .cargo/config.toml only from here.
    (cd "$root" && cargo build --quiet --release --locked --lib -p hartline-embed-c)
    archive=${CARGO_TARGET_DIR:-$root/target}/x86_64-unknown-linux-gnu/release/libhartline_host.a
fi

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -1)
file=$out/libhartline.so.$version
# Only the functions of the header are exported.
functions=$(grep -oE '\bhartline_[a-z_]+\(' "$here/hartline_host.h" | tr '(' ';' | sort -u)
printf '{ global: %s local: *; };\n' "$functions" >"$out/exports.map"
# Only these of the toolchain's libraries: the C library is the machine's.
cc -shared -fuse-ld=lld -o "$file.new" -Wl,-soname,libhartline.so.0 -Wl,--version-script,"$out/exports.map" \
    -Wl,-z,nodelete -Wl,-z,defs -Wl,-z,now -Wl,--gc-sections -Wl,--strip-all -Wl,--wrap=__cxa_atexit \
    "$here/shared_library.S" -Wl,--whole-archive "$archive" -Wl,--no-whole-archive \
    -Wl,--start-group "$toolchain"/llvm-22/lib/libLLVM*.a -Wl,--end-group \
    "$toolchain/gcc/x86_64-linux-gnu/14/libstdc++.a" "$toolchain"/x86_64-linux-gnu/{libz.a,libzstd.a,libffi_pic.a} \
    -lpthread -ldl -lm
rm "$out/exports.map"
mv "$file.new" "$file"
ln -sf "libhartline.so.$version" "$out/libhartline.so.0"
ln -sf libhartline.so.0 "$out/libhartline.so"
cp "$here/hartline_host.h" "$out/"
