#!/usr/bin/env bash
# Run a script in a root directory under qemu-riscv64, as root. Programs that it starts run
# under qemu-riscv64 too: a user namespace has its own binfmt_misc since Linux 6.7.
#
#   reference.sh QEMU CPU ROOT SCRIPT
#
# ROOT stays as it is: what the script writes is in memory.
set -euo pipefail
if [ "${1:-}" != --inside ]; then
    read_end=$(mktemp -u)
    mkfifo "$read_end"
    unshare --user "$0" --inside "$read_end" "$@" <&0 &
    child=$!
    while [ "$(readlink "/proc/$child/ns/user")" = "$(readlink /proc/self/ns/user)" ]; do
        sleep 0.01
    done
    # All users and groups are the same inside.
    echo 0 0 4294967295 >"/proc/$child/uid_map"
    echo 0 0 4294967295 >"/proc/$child/gid_map"
    echo >"$read_end"
    rm "$read_end"
    status=0
    wait "$child" || status=$?
    exit "$status"
fi
read -r _ <"$2"
shift 2
# If the script is killed, for instance after a deadline, all that it has started ends too. The
# signal cannot be set earlier: a change of the user namespace resets it.
exec setpriv --pdeathsig KILL \
    unshare --mount --pid --fork --kill-child --ipc --net --uts --mount-proc bash -euc '
    qemu=$1 cpu=$2 root=$3 script=$4
    ip link set lo up
    work=$(mktemp -d)
    mount -t tmpfs none "$work"
    cd "$work"
    mkdir upper work root
    mount -t overlay -o lowerdir="$root",upperdir=upper,workdir=work none root
    mount -t tmpfs -o mode=1777 none root/tmp
    mount --rbind /proc root/proc
    mount -t sysfs none root/sys
    mount -t tmpfs none root/dev
    for device in null zero full random urandom tty; do
        touch root/dev/$device
        mount --bind /dev/$device root/dev/$device
    done
    ln -s /proc/self/fd root/dev/fd
    ln -s fd/0 root/dev/stdin
    ln -s fd/1 root/dev/stdout
    ln -s fd/2 root/dev/stderr
    mkdir root/dev/pts root/dev/shm
    ln -s pts/ptmx root/dev/ptmx
    mount -t devpts -o ptmxmode=666,newinstance none root/dev/pts
    mount -t tmpfs -o mode=1777 none root/dev/shm
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    magic="\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xf3\x00"
    mask="\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
    # O, C, P, F: with the open file, its set-ID bits, its argv[0], and qemu opened here.
    echo ":riscv64:M::$magic:$mask:$qemu:OCPF" >/proc/sys/fs/binfmt_misc/register
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TZ=UTC \
        QEMU_CPU="$cpu" chroot root /bin/sh -c "cd /tmp
$script"
' reference "$@"
