#!/bin/sh
# Start a program in a root directory, with this machine's /proc and /dev.
#
#   enter.sh ROOT PROGRAM [ARGUMENT...]
#
# The mounts are in a namespace that ends with the program. Without root's rights it is
# also in a user namespace, which the kernel must allow.
set -eu
# The locale of this machine need not be there.
export LC_ALL=C
map=
[ "$(id -u)" -eq 0 ] || map=--map-root-user
exec unshare --mount $map sh -c '
    mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"' "$@"
