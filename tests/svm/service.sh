#!/usr/bin/env bash
# Install the package in Debian with systemd, on an AMD CPU with SVM and nested paging emulated
# by QEMU, and test its service there. As root.
#
#   service.sh FILE.deb PROGRAM
#
# PROGRAM is the program of tests/programs/service. The machine's console goes to standard
# output: "svm: passed NAME" or "svm: FAILED NAME: why", then "svm: done".
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
package=$1 program=$2
. "$here/machine.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/debian
"$here/../../deploy/debian/chroot.sh" "$root"
cp "$package" "$root/package.deb"
cp "$program" "$root/service"
cp "$here/service-cases" "$root/cases"
chmod 755 "$root/cases" "$root/service"
: >"$root/etc/machine-id"
cat >"$root/etc/systemd/system/cases.service" <<'UNIT'
[Service]
ExecStart=/bin/bash -c 'exec /cases >/dev/ttyS0 2>&1'
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../cases.service "$root/etc/systemd/system/multi-user.target.wants/cases.service"

truncate -s 3G "$work/disk"
mkfs.ext4 -q -d "$root" "$work/disk"
# shellcheck disable=SC2086 # a list of words
make_initramfs "$work/initramfs" "$here/service-init" "$work/root" drivers/block/virtio_blk $svm_modules
run_svm "$work/initramfs" "systemd.show_status=0 systemd.getty_auto=0 systemd.firstboot=0" \
    -drive "file=$work/disk,format=raw,if=virtio,cache=unsafe"
