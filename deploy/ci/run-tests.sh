#!/bin/sh
# Run a test command for riscv64 in CI: in a virtual machine of Hartline, or, if this runner has no
# usable /dev/kvm, under qemu-user, which is slower.
#
#   run-tests.sh ROOTFS.tar FILES RESULTS COMMAND [ARGUMENT]...
#
# The command runs in the root file system ROOTFS.tar. It finds the directory FILES as /files,
# read-only, and writes its results to /results, which is the directory RESULTS. COMMAND is the path of an ELF file there, for example
# /bin/sh with a script as its argument. The exit code is
# the command's: 124 if it took too long, 125 if it could not be run, 128 + N after signal N.
#
#   TEST_SECONDS    longest time (default 900)
#   TEST_EMULATOR   hartline, qemu, or auto (the default): qemu only without KVM
set -eu
[ $# -ge 4 ] || { echo "usage: run-tests.sh ROOTFS.tar FILES RESULTS COMMAND [ARGUMENT]..." >&2; exit 2; }
rootfs=$1 files=$2 results=$3
shift 3
seconds=${TEST_SECONDS:-900}
emulator=${TEST_EMULATOR:-auto}

if [ "$emulator" = auto ]; then
    if [ -r /dev/kvm ] && [ -w /dev/kvm ]; then
        emulator=hartline
    else
        echo "run-tests: this user cannot use /dev/kvm: the tests run under qemu-user" >&2
        emulator=qemu
    fi
fi

in_hartline() {
    hartline run --timeout "$seconds" --cpus "$(nproc)" --mem 2G --rootfs "$rootfs" \
        --volume "$files:/files:ro" --volume "$results:/results" --workdir /files "$@"
}

# A chroot, in which the kernel starts riscv64 programs with qemu-user (binfmt_misc).
in_qemu() {
    root=$(mktemp -d)
    as_root=
    [ "$(id -u)" -eq 0 ] || as_root=sudo
    trap '$as_root rm -rf "$root"' EXIT
    $as_root tar -C "$root" --no-same-owner --exclude './dev/*' -xf "$rootfs" || return 125
    $as_root mkdir -p "$root/files" "$root/results" && $as_root cp -R "$files/." "$root/files" ||
        return 125
    if ! $as_root chroot "$root" /bin/true; then
        echo "run-tests: this runner starts no riscv64 programs: install qemu-user-static on it" >&2
        return 125
    fi
    code=0
    # shellcheck disable=SC2016 # expanded inside the chroot
    $as_root timeout "$seconds" chroot "$root" /bin/sh -c 'cd /files && exec "$@"' sh "$@" || code=$?
    $as_root cp -R "$root/results/." "$results"
    return "$code"
}

mkdir -p "$results"
code=0
case $emulator in
    hartline) in_hartline "$@" </dev/null || code=$? ;;
    qemu) in_qemu "$@" </dev/null || code=$? ;;
    *) echo "run-tests: TEST_EMULATOR=$emulator: must be hartline, qemu or auto" >&2; exit 2 ;;
esac
case $code in
    0) ;;
    124) echo "run-tests: the tests were ended after $seconds s" >&2 ;;
    125) echo "run-tests: the tests could not be run: this is no failure of a test" >&2 ;;
    *) echo "run-tests: the tests failed with exit code $code" >&2 ;;
esac
exit "$code"
