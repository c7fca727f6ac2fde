# Emulated machines with Debian's cloud kernel: sourced by the scripts beside it, with bash.

amd64=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.debian/amd64" && pwd)
kernel=$(ls "$amd64"/boot/vmlinuz-*-cloud-amd64 | sort -V | tail -n 1)
modules=$amd64/usr/lib/modules/${kernel##*/vmlinuz-}/kernel
# What AMD processors need for KVM.
svm_modules="virt/lib/irqbypass drivers/crypto/ccp/ccp arch/x86/kvm/kvm arch/x86/kvm/kvm-amd drivers/net/tun"

# make_initramfs FILE INIT ROOT MODULE…: a file system with busybox, INIT as first process, modules
# in the order in which they are to be loaded, and what is in the folder ROOT already.
make_initramfs() {
    local file=$1 init=$2 root=$3 module number=0
    shift 3
    mkdir -p "$root"/{bin,modules}
    cp "$init" "$root/init"
    cp "$amd64/usr/bin/busybox" "$root/bin/busybox"
    for module; do
        # Some kernels have one built in, or do without.
        [ -e "$modules/$module.ko.xz" ] || continue
        xz -dc "$modules/$module.ko.xz" >"$root/modules/$number-${module##*/}.ko"
        number=$((number + 1))
    done
    chmod 755 "$root/init" "$root/bin/"*
    (cd "$root" && find . | cpio --quiet -o -H newc) >"$file"
}

# run_svm INITRAMFS KERNEL-ARGUMENTS OPTION…: an AMD processor with SVM and nested paging, as QEMU
# emulates it. Its console is standard output. QEMU 7.2's cmpxchg16b now and then leaves wrong
# flags, of which the kernel dies in its memory allocator: it is told to do without. Nor does it look
# whether the timer is in time, which it is not on a busy machine.
run_svm() {
    local initramfs=$1 arguments=$2
    shift 2
    timeout "${EMULATED_SECONDS:-270}" qemu-system-x86_64 -machine q35 -accel tcg,thread=single -cpu EPYC,+svm,+npt \
        -smp 2 -m 3G -kernel "$kernel" -initrd "$initramfs" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off clearcpuid=cx16 no_timer_check $arguments" \
        -display none -monitor none -serial stdio -no-reboot "$@" </dev/null
}
