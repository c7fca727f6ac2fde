#!/usr/bin/env bash
# Run cases under emulated hardware KVM, with Debian's cloud kernel and our initramfs.
#
#   run.sh svm|ept HARTLINE CASES
#
# svm is an AMD CPU with SVM and nested paging, emulated by QEMU; ept an Intel CPU with VT-x and
# extended page tables, emulated by bochs. HARTLINE is the static binary. CASES is a folder with the
# file `list`, which has a line "NAME CODE ARGUMENTS…" per case: the arguments of hartline, or the
# path of another program and its arguments. NAME.expected has a case's standard output, or
# NAME.contains has parts of it, one per line. The arguments name other files of the folder as
# /cases/FILE. The machine's console goes to standard output: "svm: passed NAME" or
# "svm: FAILED NAME: why", then "svm: done".
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
machine=$1 hartline=$2 cases=$3
. "$here/machine.sh"
case $machine in
svm) kvm=$svm_modules ;;
ept) kvm="virt/lib/irqbypass arch/x86/kvm/kvm arch/x86/kvm/kvm-intel drivers/net/tun" ;;
*) echo "$0: svm or ept, not $machine" >&2 && exit 2 ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,cases,cache}
strip -o "$root/bin/hartline" "$hartline"
cp -r "$cases/." "$root/cases"
[ -d "$cases/cache" ] && cp -r "$cases/cache/." "$root/cache"
# shellcheck disable=SC2086 # a list of words
make_initramfs "$work/initramfs" "$here/init" "$root" $kvm

if [ "$machine" = svm ]; then
    run_svm "$work/initramfs" rdinit=/init
    exit
fi

iso=$work/iso
mkdir -p "$iso/boot/grub"
cp "$kernel" "$iso/boot/vmlinuz"
cp "$work/initramfs" "$iso/boot/initramfs"
cat >"$iso/boot/grub/grub.cfg" <<'CFG'
set timeout=0
menuentry hartline {
    linux /boot/vmlinuz console=ttyS0 earlyprintk=serial,ttyS0,115200 quiet panic=-1 mitigations=off no_timer_check rdinit=/init
    initrd /boot/initramfs
}
CFG
grub-mkrescue -o "$work/machine.iso" "$iso" >"$work/grub.log" 2>&1 || {
    cat "$work/grub.log" >&2
    exit 1
}
cat >"$work/bochsrc" <<RC
megs: 1536
cpu: model=broadwell_ult, count=1, ips=50000000, reset_on_triple_fault=0
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path=$work/machine.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$work/serial
display_library: term
clock: sync=none
log: $work/bochs.log
RC
# Some builds have a debugger, which waits for its first command.
echo c >"$work/commands"
: >"$work/serial"
# The display needs a terminal. Builds with a debugger keep that one for the debugger and open
# another one for the screen. It must be read: a full one would stop the machine. The machine cannot
# switch itself off, so the loop below ends at its last line.
TERM=xterm setsid timeout "${EMULATED_SECONDS:-1500}" script -qefc \
    "bochs -q -f '$work/bochsrc' -rc '$work/commands'" /dev/null >"$work/terminal" 2>&1 </dev/null &
bochs=$!
# The machine may have ended by itself.
trap 'kill -- -"$bochs" 2>/dev/null || true; rm -rf "$work"' EXIT
screen=
while kill -0 "$bochs" 2>/dev/null && ! grep -q '^svm: done' "$work/serial"; do
    sleep 1
    [ -z "$screen" ] || continue
    screen=$(sed -n 's/.*connected to screen "\([^"]*\)".*/\1/p' "$work/terminal")
    # `cat` ends with the machine.
    [ -z "$screen" ] || cat "$screen" >/dev/null 2>&1 &
done
tr -d '\r' <"$work/serial"
grep -q '^svm: done' "$work/serial" || tail -n 20 "$work/bochs.log" >&2
