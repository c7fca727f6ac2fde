#!/usr/bin/env bash
# Build the Debian package out of programs that are built already.
#
#   build.sh BIN OUT
#
# BIN is cargo's folder with hartline and hartlined. OUT gets hartline_VERSION_amd64.deb
# and nothing else. cargo-deb is built into target/tools if this machine has none.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(cd "$1" && pwd)
rm -rf "$2"
mkdir -p "$2"
out=$(cd "$2" && pwd)
cargo_deb_version=3.8.0

export PATH=$root/target/tools/bin:$PATH
if ! command -v cargo-deb >/dev/null; then
    echo "deb: building cargo-deb $cargo_deb_version"
    # Not from here: the flags of .cargo/config.toml are for the host programs only.
    (cd / && cargo install --quiet --locked --version "$cargo_deb_version" \
        --root "$root/target/tools" cargo-deb)
fi

mkdir -p "$bin/completions"
"$bin/hartline" completions bash >"$bin/completions/hartline.bash"
"$bin/hartline" completions zsh >"$bin/completions/_hartline"
"$bin/hartline" completions fish >"$bin/completions/hartline.fish"
rm -rf "$bin/man"
"$bin/hartline" man "$bin/man/man1"
"$bin/hartlined" man "$bin/man/man8"
mkdir "$bin/man/man5"
mv "$bin/man/man8"/*.5 "$bin/man/man5/"
gzip -9n "$bin"/man/man?/*
cd "$root"
cargo deb --quiet --locked --no-build --strip --fast --target x86_64-unknown-linux-gnu -p hartline \
    --output "$out/"
