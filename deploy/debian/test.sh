#!/usr/bin/env bash
# Install, upgrade, remove, install again and purge the package in a chroot of Debian
# trixie, and check the files and settings after each step. As root.
#
#   test.sh FILE.deb
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
package=$(realpath "$1")

[ "$(id -u)" -eq 0 ] || { echo "test-deb: a chroot needs root" >&2; exit 1; }
work=$(mktemp -d)
chroot=$work/chroot
finish() {
    ! mountpoint -q "$chroot/proc" || umount "$chroot/proc"
    rm -rf --one-file-system "$work"
}
trap finish EXIT
"$here/chroot.sh" "$chroot"
mount -t proc proc "$chroot/proc"

inside() { LC_ALL=C DEBIAN_FRONTEND=noninteractive chroot "$chroot" "$@"; }
say() { echo "test-deb: $*"; }
fail() { echo "test-deb: FAILED: $*" >&2; exit 1; }
# The target of a symbolic link exists inside the chroot only, so the link itself
# counts.
is_there() { [ -e "$chroot$1" ] || [ -L "$chroot$1" ]; }
there() { for file; do is_there "$file" || fail "$file is not there"; done; }
gone() { for file; do ! is_there "$file" || fail "$file is there"; done; }
# List every file of the chroot except logs and the state of dpkg and systemd.
list() {
    (cd "$chroot" && find . -xdev -path ./var/lib/dpkg -prune -o -path ./var/log -prune -o \
        -path ./run/systemd -prune -o \
        -path ./var/cache -prune -o -print | sort)
}
enabled=/etc/systemd/system/multi-user.target.wants/hartlined.service
config=/etc/hartline/hartlined.toml
version=$(dpkg-deb -f "$package" Version)

# The same package with a higher version and a changed default configuration.
upgrade=$work/upgrade
dpkg-deb -R "$package" "$upgrade"
sed -i "s/^Version: .*/Version: $version+upgrade/" "$upgrade/DEBIAN/control"
echo "# another default" >>"$upgrade$config"
dpkg-deb -Znone --root-owner-group -b "$upgrade" "$work/upgrade.deb" >/dev/null
cp "$package" "$chroot/package.deb"
cp "$work/upgrade.deb" "$chroot/upgrade.deb"
list >"$work/before"

install() { inside dpkg --force-confold -i "$1" >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -i $1"; }; }

say "install $version"
install /package.deb
# Where systemd runs, the package does this itself.
inside systemd-tmpfiles --create hartline.conf
there /usr/bin/hartline /usr/sbin/hartlined $config $enabled /var/lib/hartline /run/hartline \
    /usr/lib/systemd/system/hartlined-spawner.service /usr/lib/systemd/system/hartlined-spawner.socket \
    /usr/share/bash-completion/completions/hartline /usr/share/doc/hartline/copyright \
    /usr/share/doc/hartline/copyright.xterm.js \
    /usr/share/man/man1/hartline-run.1.gz /usr/share/man/man5/hartlined.toml.5.gz \
    /usr/share/man/man8/hartlined.8.gz
[ "$(stat -c %a "$chroot/var/lib/hartline")" = 700 ] || fail "others may look at the data"
inside getent passwd hartline >/dev/null || fail "there is no user hartline"
inside getent passwd hartline-service >/dev/null || fail "there is no user hartline-service"
inside hartline --version >/dev/null || fail "hartline does not start"
inside hartlined --help >/dev/null || fail "hartlined does not start"
inside bash -c '. /usr/share/bash-completion/completions/hartline; complete -p hartline' \
    >/dev/null || fail "no completions"
inside systemd-analyze verify hartlined.service hartlined-spawner.service hartlined-spawner.socket ||
    fail "a unit is wrong"
# The exposure of the process that clients reach, at most 3.0 of 10.
inside systemd-analyze security --offline=yes --no-pager --threshold=30 \
    /usr/lib/systemd/system/hartlined.service >"$work/log" || { cat "$work/log"; fail "the unit is too open"; }

say "upgrade"
echo 'pool = 7' >>"$chroot$config"
touch "$chroot/var/lib/hartline/kept"
install /upgrade.deb
[ "$(inside dpkg-query -f '${Version} ${Status}' -W hartline)" = \
    "$version+upgrade install ok installed" ] || fail "not upgraded"
grep -qx 'pool = 7' "$chroot$config" || fail "the configuration was replaced"
there /var/lib/hartline/kept $enabled
[ -z "$(inside dpkg --verify hartline | grep -v " c $config")" ] || fail "files differ"

say "remove"
inside dpkg -r hartline >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -r"; }
there $config /var/lib/hartline/kept
gone /usr/bin/hartline /usr/sbin/hartlined /usr/lib/systemd/system/hartlined.service \
    /usr/lib/systemd/system/hartlined-spawner.service /usr/lib/systemd/system/hartlined-spawner.socket

say "install again and purge"
install /upgrade.deb
inside dpkg -P hartline >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -P"; }
gone $config /etc/hartline /var/lib/hartline /run/hartline $enabled
! inside getent passwd hartline || fail "the user hartline is there"
! inside getent passwd hartline-service || fail "the user hartline-service is there"
list >"$work/after"
diff "$work/before" "$work/after" || fail "the purge left what is shown above"
say "passed"
