#!/usr/bin/env bash
# Download Debian packages of one architecture and unpack them into a folder,
# without installing anything on this machine.
#
#   fetch-debian.sh ARCH DEST PACKAGE...
#
# PACKAGE may be NAME, or NAME/depends for what the metapackage NAME depends on.
# The suite is trixie, whatever this machine runs: its packages are the inputs
# that the tests and benchmarks are written against. The mirror and the keyring
# are the ones that this machine's own apt is configured with. Dependencies are
# not followed: name every package wanted.
set -euo pipefail

suite=trixie

if [ $# -lt 3 ]; then
    echo "usage: $0 ARCH DEST PACKAGE..." >&2
    exit 2
fi
arch=$1 dest=$2
shift 2

mirror=$("$(dirname "$0")/mirror.sh")

cache=${HARTLINE_DEBS:-${XDG_CACHE_HOME:-$HOME/.cache}/hartline-debs}
root=$cache/apt-$suite-$arch
mkdir -p "$root"/{state/lists/partial,cache/archives/partial,etc,debs}
mkdir -p "$dest"
exec 9>"$root/lock"
flock 9

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [arch=$arch signed-by=$keyring] $mirror $suite main" >"$root/etc/sources.list"
: >"$root/state/status"
cat >"$root/apt.conf" <<CONF
APT::Architecture "$arch";
APT::Architectures { "$arch"; };
APT::Sandbox::User "root";
Dir::State "$root/state";
Dir::State::status "$root/state/status";
Dir::Cache "$root/cache";
Dir::Etc::sourcelist "$root/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Acquire::Languages "none";
Acquire::Retries "3";
CONF
export APT_CONFIG=$root/apt.conf

# The lists are fetched once a day at most.
if [ -z "$(find "$root/lists-fetched" -mmin -1440 2>/dev/null)" ]; then
    apt-get -qq update
    touch "$root/lists-fetched"
fi

# "NAME VERSION" of every package wanted; asking apt once is much quicker than
# once per package.
wanted=()
for package in "$@"; do
    case $package in
    */depends)
        wanted+=($(apt-cache depends --important "${package%/depends}" |
            sed -n 's/^ *Depends: //p')) ;;
    *) wanted+=("$package") ;;
    esac
done
versions=$(apt-cache show --no-all-versions "${wanted[@]}" |
    awk '$1 == "Package:" { name = $2 } $1 == "Version:" { print name, $2 }')

while read -r package version; do
    deb=$root/debs/${package}_${version//:/%3a}.deb
    stamp=$dest/.unpacked/${package}_${version//:/%3a}
    [ -e "$stamp" ] && continue
    if [ ! -e "$deb" ]; then
        tmp=$(mktemp -d "$root/debs/tmp.XXXXXX")
        (cd "$tmp" && apt-get -qq download "$package")
        mv "$tmp"/*.deb "$deb"
        rmdir "$tmp"
    fi
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$dest" --no-same-owner \
        --keep-directory-symlink
    mkdir -p "$dest/.unpacked"
    touch "$stamp"
done <<<"$versions"
