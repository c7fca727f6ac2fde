#!/usr/bin/env bash
# Look Debian packages up in the signed index of one architecture.
#
#   debian-index.sh [--fresh] [--closure] ARCH PACKAGE...
#
# Print a line of debian.lock for each PACKAGE. PACKAGE may be NAME/depends for the
# packages that the metapackage NAME depends on; their lines follow its own. With
# --closure, print lines for everything that apt installs for the packages, without
# recommended packages.
# The index is fetched if it is older than a day, with --fresh if it is older than
# ten minutes. apt checks its signature.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"

minutes=1440 closure=
while :; do
    case ${1:-} in
    --fresh) minutes=10 ;;
    --closure) closure=1 ;;
    *) break ;;
    esac
    shift
done
if [ $# -lt 2 ]; then
    echo "usage: $0 [--fresh] [--closure] ARCH PACKAGE..." >&2
    exit 2
fi
arch=$1
shift
root=$cache/apt-$suite-$arch
mkdir -p "$root"/{state/lists/partial,cache/archives/partial,etc}
exec 8>"$root/index.lock"
flock 8

mirror=$("$here/mirror.sh")
entry="deb [arch=$arch signed-by=$keyring] $mirror $suite main"
# The lists of another mirror do not count.
if [ "$entry" != "$(cat "$root/etc/sources.list" 2>/dev/null)" ]; then
    rm -f "$root/lists-fetched"
    echo "$entry" >"$root/etc/sources.list"
fi
: >"$root/state/status"
cat >"$root/apt.conf" <<CONF
APT::Architecture "$arch";
APT::Architectures { "$arch"; };
APT::Update::Error-Mode "any";
Dir::State "$root/state";
Dir::State::status "$root/state/status";
Dir::Cache "$root/cache";
Dir::Etc::sourcelist "$root/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Languages "none";
CONF
export APT_CONFIG=$root/apt.conf LC_ALL=C

if [ -z "$(find "$root/lists-fetched" -mmin "-$minutes" 2>/dev/null)" ]; then
    attempt=1
    until output=$(apt-get -qq "${apt_options[@]}" update 2>&1); do
        if [ "$attempt" -eq "$attempts" ]; then
            echo "index of $suite $arch: $(apt_reason "$output");" \
                "$attempts attempts; $another_mirror" >&2
            exit 1
        fi
        sleep "${delays[attempt - 1]}"
        attempt=$((attempt + 1))
    done
    touch "$root/lists-fetched"
fi

if [ -n "$closure" ]; then
    if ! output=$(apt-get -q -y --no-install-recommends --print-uris install "$@" 2>&1); then
        echo "index of $suite $arch: $(apt_reason "$output")" >&2
        exit 1
    fi
    set -- $(sed -n "s/^'[^']*' \\([^_]*\\)_.*/\\1/p" <<<"$output")
fi
names=()
for package in "$@"; do
    case $package in
    */depends)
        members=($(apt-cache depends --important "${package%/depends}" 2>/dev/null |
            sed -n 's/^ *Depends: //p'))
        # Without members the metapackage itself is reported as missing below.
        if [ ${#members[@]} -eq 0 ]; then
            names+=("$package")
        else
            echo "$arch $package ${members[*]}"
            names+=("${members[@]}")
        fi
        ;;
    *) names+=("$package") ;;
    esac
done
# One call of apt-cache for all packages: each call reads the whole index.
lines=$(apt-cache show --no-all-versions "${names[@]}" 2>/dev/null |
    awk -v arch="$arch" '
        $1 == "Package:" { name = $2 }
        $1 == "Version:" { version = $2 }
        $1 == "Filename:" { path = $2 }
        $1 == "SHA256:" { sha = $2 }
        $1 == "" && name != "" { print arch, name, version, path, sha; name = "" }
        END { if (name != "") print arch, name, version, path, sha }' || true)
missing=$(printf '%s\n' "${names[@]}" | awk '
    NR == FNR { known[$2] = 1; next }
    !($1 in known) { print $1 }' <(echo "$lines") - | tr '\n' ' ')
if [ -n "$missing" ]; then
    echo "index of $suite $arch: no package ${missing% }; check the name" >&2
    exit 1
fi
echo "$lines"
