#!/usr/bin/env bash
# Write debian.lock anew from the signed indexes, with every package that the set-up,
# the tests and the benchmarks name; and the lock files with all that `hartline bench jit`,
# `make test-packages` and `make test-suites` need.
#
#   update-lock.sh [--fresh]
#
# The index is at most a day old, with --fresh at most ten minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/debian.sh"

options=("$@")
new= warned=
trap 'rm -f "$new"' EXIT

# begin LOCK HEADER...: start to write LOCK
begin() {
    lock=$1
    new=$(mktemp "$lock.XXXXXX")
    shift
    printf '# %s\n' "$@" >"$new"
}

# add ARCH [--closure] PACKAGE...: add the lines of the packages
add() {
    local arch=$1 lines lists want got
    local closure=()
    shift
    if [ "$1" = --closure ]; then
        closure=(--closure)
        shift
    fi
    if ! lines=$("$here/debian-index.sh" ${options[@]+"${options[@]}"} \
        ${closure[@]+"${closure[@]}"} "$arch" "$@"); then
        echo "update-lock: ${lock#"$root/"} is unchanged" >&2
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
        [ "$warned" = "$arch" ] ||
            echo "update-lock: $arch: the signed Release file names another index than the one" \
                "used: run make update-lock again when the mirror serves both" >&2
        warned=$arch
    fi
    LC_ALL=C sort -u <<<"$lines" >>"$new"
}

finish() {
    chmod 644 "$new"
    mv "$new" "$lock"
}

packages=$(
    "$here/setup.sh" --packages
    "$here/toolchain.sh" --packages
    "$root/tests/bench/build.sh" --packages
)
begin "$here/debian.lock" \
    "Debian packages that set-up, tests and benchmarks fetch (fetch-debian.sh)." \
    "\`make update-lock\` writes this file." \
    "ARCH PACKAGE VERSION PATH SHA256: PATH is below the base URL of a mirror." \
    "ARCH NAME/depends PACKAGE...: the packages that the metapackage NAME depends on."
for arch in amd64 riscv64; do
    wanted=($(awk -v arch=$arch '$1 == arch { for (i = 2; i <= NF; i++) print $i }' <<<"$packages" |
        LC_ALL=C sort -u))
    [ ${#wanted[@]} -eq 0 ] || add $arch "${wanted[@]}"
done
finish

begin "$root/tests/bench/jit.lock" \
    "Debian packages of \`hartline bench jit\`, and all that they depend on." \
    "\`make update-lock\` writes this file." \
    "ARCH PACKAGE VERSION PATH SHA256: PATH is below the base URL of a mirror."
while read -r arch packages; do
    add "$arch" --closure $packages
done < <("$root/tests/bench/build.sh" --jit-packages)
finish

for list in workloads suites; do
    begin "$root/tests/packages/$list.lock" \
        "Debian packages of $list.txt, and all that they depend on." \
        "\`make update-lock\` writes this file." \
        "ARCH PACKAGE VERSION PATH SHA256: PATH is below the base URL of a mirror."
    add riscv64 --closure $("$root/tests/packages/root.sh" --packages $list)
    finish
done
