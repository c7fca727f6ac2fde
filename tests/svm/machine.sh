# Emulated machines with Debian's cloud kernel. The scripts beside it source it, with bash.

amd64=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.debian/amd64" && pwd)
kernel=$(ls "$amd64"/boot/vmlinuz-*-cloud-amd64 | sort -V | tail -n 1)
modules=$amd64/usr/lib/modules/${kernel##*/vmlinuz-}/kernel
# Modules that KVM needs on AMD CPUs.
svm_modules="virt/lib/irqbypass drivers/crypto/ccp/ccp arch/x86/kvm/kvm arch/x86/kvm/kvm-amd drivers/net/tun"

# make_initramfs FILE INIT ROOT MODULE…: make an initramfs with busybox, INIT as first process, the
# modules in load order, and the contents of the folder ROOT.
make_initramfs() {
    local file=$1 init=$2 root=$3 module number=0
    shift 3
    mkdir -p "$root"/{bin,modules}
    cp "$init" "$root/init"
    cp "$amd64/usr/bin/busybox" "$root/bin/busybox"
    for module; do
        # Some kernels have the module built in, or do not need it.
        [ -e "$modules/$module.ko.xz" ] || continue
        xz -dc "$modules/$module.ko.xz" >"$root/modules/$number-${module##*/}.ko"
        number=$((number + 1))
    done
    chmod 755 "$root/init" "$root/bin/"*
    (cd "$root" && find . | cpio --quiet -o -H newc) >"$file"
}

# run_svm INITRAMFS KERNEL-ARGUMENTS OPTION…: run an AMD CPU with SVM and nested paging, emulated by
# QEMU. Its console is standard output. QEMU 7.2's cmpxchg16b sometimes leaves wrong flags, and the
# kernel's memory allocator crashes: clearcpuid=cx16 avoids the instruction. no_timer_check skips a
# check of the timer's rate, which fails on a busy machine.
run_svm() {
    local initramfs=$1 arguments=$2
    shift 2
    timeout "${EMULATED_SECONDS:-270}" qemu-system-x86_64 -machine q35 -accel tcg,thread=single -cpu EPYC,+svm,+npt \
        -smp 2 -m 3G -kernel "$kernel" -initrd "$initramfs" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off clearcpuid=cx16 no_timer_check $arguments" \
        -display none -monitor none -serial stdio -no-reboot "$@" </dev/null
}
