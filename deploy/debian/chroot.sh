#!/usr/bin/env bash
# Make a chroot of Debian trixie with systemd. As root; debootstrap is installed if it is
# missing. The chroot is kept as a tar file for the next time.
#
#   chroot.sh DIRECTORY
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
directory=$1
cache=${HARTLINE_DEBS:-${XDG_CACHE_HOME:-$HOME/.cache}/hartline-debs}
base=$cache/chroot-trixie.tar

if [ ! -e "$base" ]; then
    if ! command -v debootstrap >/dev/null; then
        apt-get -qq update
        DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends debootstrap
    fi
    echo "chroot: making one of Debian trixie" >&2
    mkdir -p "$cache"
    new=$(mktemp -d)
    trap 'rm -rf "$new"' EXIT
    debootstrap --variant=minbase --include=systemd trixie "$new/root" \
        "$("$here/../setup/mirror.sh")" >"$new/log" 2>&1 || {
        tail -n 20 "$new/log" >&2
        exit 1
    }
    tar -C "$new/root" -cf "$base.new" .
    mv "$base.new" "$base"
fi
mkdir "$directory"
tar -C "$directory" -xf "$base"
