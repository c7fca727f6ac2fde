#!/usr/bin/env bash
# Run cases on hardware KVM that QEMU emulates: an AMD processor with SVM and nested
# paging, Debian's cloud kernel, an initramfs of ours.
#
#   run.sh HARTLINE CASES
#
# HARTLINE is the static binary. CASES is a folder with the file `list`, a line per
# case "NAME CODE ARGUMENTS…" (of hartline), NAME.expected with its standard output or
# NAME.contains with pieces of it, one per line, and whatever else the arguments name as /cases/FILE. The machine's console goes to
# standard output: "svm: passed NAME" or "svm: FAILED NAME: why", then "svm: done".
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
hartline=$1 cases=$2
amd64=$(cd "$here/../../.debian/amd64" && pwd)
kernel=$(ls "$amd64"/boot/vmlinuz-*-cloud-amd64 | sort -V | tail -n 1)
modules=$amd64/usr/lib/modules/${kernel##*/vmlinuz-}/kernel

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,modules,cases,cache}
cp "$here/init" "$root/init"
cp "$amd64/usr/bin/busybox" "$root/bin/busybox"
strip -o "$root/bin/hartline" "$hartline"
cp -r "$cases/." "$root/cases"
[ -d "$cases/cache" ] && cp -r "$cases/cache/." "$root/cache"
number=0
for module in virt/lib/irqbypass drivers/crypto/ccp/ccp arch/x86/kvm/kvm arch/x86/kvm/kvm-amd; do
    # Some kernels have one built in, or do without.
    [ -e "$modules/$module.ko.xz" ] || continue
    xz -dc "$modules/$module.ko.xz" >"$root/modules/$number-${module##*/}.ko"
    number=$((number + 1))
done
chmod 755 "$root/init" "$root/bin/"*
(cd "$root" && find . | cpio --quiet -o -H newc) >"$work/initramfs"

timeout 270 qemu-system-x86_64 -machine q35 -accel tcg,thread=single -cpu EPYC,+svm,+npt \
    -smp 2 -m 3G -kernel "$kernel" -initrd "$work/initramfs" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off rdinit=/init" \
    -display none -monitor none -serial stdio -no-reboot </dev/null
