#!/usr/bin/env bash
# Make the root directory of the scripts in LIST.txt, with Debian's riscv64 packages.
#
#   root.sh OUT LIST
#   root.sh --packages LIST
#
# LIST is `workloads` or `suites`.
# OUT/root/      the packages, unpacked, and what their maintainer scripts would have
#                made, as far as the workloads need it
# OUT/root.erofs the same as an EROFS image
#
# --packages prints the packages that the scripts name, for update-lock.sh. LIST.lock beside
# this file has them and all that they depend on.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
fetch=$here/../../deploy/setup/fetch-debian.sh

if [ $# -ne 2 ]; then
    echo "usage: $0 OUT|--packages workloads|suites" >&2
    exit 2
fi
out=$1 list=$here/$2.txt lock=$here/$2.lock
if [ "$out" = --packages ]; then
    awk '$1 == "===" { for (i = 2; i <= NF; i++) print $i }' "$list" | LC_ALL=C sort -u
    exit
fi
mkdir -p "$out/root"
HARTLINE_LOCK=$lock "$fetch" riscv64 "$out/root" \
    $(awk '$1 == "riscv64" { print $2 }' "$lock")
ready=$out/ready
if [ "$ready" -nt "$lock" ] && [ "$ready" -nt "$0" ] && [ -e "$out/root.erofs" ]; then
    exit
fi
cd "$out/root"

# base-passwd, libc-bin, libpam-runtime, openssh-server
cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group
sed 's/:.*/:*:20000:0:99999:7:::/' etc/passwd >etc/shadow
sed 's/:.*/:*::/' etc/group >etc/gshadow
chmod 640 etc/shadow etc/gshadow
cp usr/share/libc-bin/nsswitch.conf etc/nsswitch.conf
printf '127.0.0.1 localhost\n::1 localhost\n' >etc/hosts
echo hartline >etc/hostname
touch etc/resolv.conf
for kind in auth account password session session-noninteractive; do
    echo "${kind%%-*} sufficient pam_permit.so" >"etc/pam.d/common-$kind"
done
mkdir -p tmp run var/tmp var/log root dev proc sys
chmod 1777 tmp var/tmp

# Alternatives: link TARGET NAME
link() {
    [ -e "$2" ] || [ -h "$2" ] || ln -s "$1" "$2"
}
java=../lib/jvm/java-21-openjdk-riscv64/bin
for pair in aclocal:aclocal-1.17 automake:automake-1.17 awk:gawk cc:gcc compare:compare-im7.q16 \
    convert:convert-im7.q16 emacs:emacs-nox fakeroot:fakeroot-sysv faked:faked-sysv \
    gnuplot:gnuplot-nox guile:guile-3.0 identify:identify-im7.q16 java:$java/java \
    keytool:$java/keytool lua:lua5.4 luajit:luajit-2.1 lzma:xz magick:magick-im7.q16 \
    nc:nc.openbsd php:php8.4 pinentry:pinentry-curses unlzma:unxz which:which.debianutils; do
    link "${pair#*:}" "usr/bin/${pair%%:*}"
done
libraries=usr/lib/riscv64-linux-gnu
link blas/libblas.so.3 $libraries/libblas.so.3
link lapack/liblapack.so.3 $libraries/liblapack.so.3

mkfs.erofs --quiet -d0 --preserve-mtime ../root.erofs.new .
mv ../root.erofs.new ../root.erofs
touch ../ready
