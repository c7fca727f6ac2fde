#!/usr/bin/env bash
# Write debian.lock anew from the signed indexes, with every package that the set-up,
# the tests and the benchmarks name.
#
#   update-lock.sh [--fresh]
#
# The index is at most a day old, with --fresh at most ten minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/debian.sh"

lock=$here/debian.lock
new=$(mktemp "$lock.XXXXXX")
trap 'rm -f "$new"' EXIT

packages=$(
    "$here/setup.sh" --packages
    "$here/toolchain.sh" --packages
    "$root/tests/bench/build.sh" --packages
)
cat >"$new" <<'HEAD'
# Debian packages that set-up, tests and benchmarks fetch (fetch-debian.sh).
# `make update-lock` writes this file.
# ARCH PACKAGE VERSION PATH SHA256: PATH is below the base URL of a mirror.
# ARCH NAME/depends PACKAGE...: the packages that the metapackage NAME depends on.
HEAD
for arch in amd64 riscv64; do
    wanted=($(awk -v arch=$arch '$1 == arch { for (i = 2; i <= NF; i++) print $i }' <<<"$packages" |
        LC_ALL=C sort -u))
    [ ${#wanted[@]} -gt 0 ] || continue
    if ! lines=$("$here/debian-index.sh" "$@" $arch "${wanted[@]}"); then
        echo "update-lock: debian.lock is unchanged" >&2
        exit 1
    fi
    # apt has compared both when it fetched them. Lists that were copied there by hand
    # are named in the lock, for its reviewers.
    lists=$cache/apt-$suite-$arch/state/lists
    want=$(awk -v path="main/binary-$arch/Packages" '$3 == path && length($1) == 64 { print $1 }' \
        "$lists"/*_InRelease)
    got=$(/usr/lib/apt/apt-helper cat-file "$lists"/*_main_binary-"$arch"_Packages* | sha256sum)
    if [ "$want" != "${got%% *}" ]; then
        echo "# $arch: unsigned: the Release file names another index than the one used." >>"$new"
        echo "update-lock: $arch: the signed Release file names another index than the one used:" \
            "run make update-lock again when the mirror serves both" >&2
    fi
    LC_ALL=C sort -u <<<"$lines" >>"$new"
done
chmod 644 "$new"
mv "$new" "$lock"
