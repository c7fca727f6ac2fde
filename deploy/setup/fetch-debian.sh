#!/usr/bin/env bash
# Download Debian packages of one architecture and unpack them into a folder,
# without installing anything on this machine.
#
#   fetch-debian.sh ARCH DEST PACKAGE...
#
# PACKAGE may be NAME, or NAME/depends for the packages that the metapackage NAME
# depends on. Other dependencies are not followed: name every package wanted.
#
# debian.lock has the version, path and SHA-256 of each package, so no index is
# needed. Only a package that is not in the lock, or that the archive no longer has,
# is looked up in the signed index (debian-index.sh). The SHA-256 of every package is
# checked before it is unpacked. debian.sh lists the environment variables.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"

if [ $# -lt 3 ]; then
    echo "usage: $0 ARCH DEST PACKAGE..." >&2
    exit 2
fi
arch=$1 dest=$2
shift 2
root=$cache/apt-$suite-$arch
lock=${HARTLINE_LOCK:-$here/debian.lock}

note() {
    echo "fetch-debian: $arch $*" >&2
}

fail() {
    note "$@"
    exit 1
}

# Lines of the lock by package name: "VERSION PATH SHA256", or the members of NAME/depends.
declare -A locked=()
while read -r line_arch name rest; do
    [ "$line_arch" = "$arch" ] && locked[$name]=$rest
done < <(grep -v '^#' "$lock")

# Packages to take as the lock has them, and packages to look up in the index.
wanted=() look_up=()
declare -A member_of=()
for package in "$@"; do
    if [ -z "${locked[$package]:-}" ]; then
        note "$package is not in debian.lock; make update-lock adds what the scripts name"
        look_up+=("$package")
        continue
    fi
    case $package in
    */depends)
        for name in ${locked[$package]}; do
            wanted+=("$name")
            member_of[$name]=$package
        done
        ;;
    *) wanted+=("$package") ;;
    esac
done

all_unpacked() {
    local name version
    [ ${#look_up[@]} -eq 0 ] || return 1
    for name in "${wanted[@]}"; do
        read -r version _ <<<"${locked[$name]}"
        [ -e "$dest/.unpacked/${name}_${version//:/%3a}" ] || return 1
    done
}
all_unpacked && exit

mkdir -p "$root"/{debs,gone} "$dest/.unpacked"
exec 9>"$root/lock"
flock 9
mirror=$("$here/mirror.sh")
mirror=${mirror%/}

# download WHAT PATH SHA256 FILE: 1 if the mirror does not have PATH.
download() {
    local what=$1 path=$2 sha=$3 file=$4 part=$4.part attempt=1 output got reason
    local options=(-q "${apt_options[@]}")
    while :; do
        rm -f "$part"
        if output=$(LC_ALL=C /usr/lib/apt/apt-helper "${options[@]}" \
            download-file "$mirror/$path" "$part" 2>&1); then
            # For a file: mirror, apt-helper makes a symbolic link.
            if [ -h "$part" ]; then
                cp -L "$part" "$part.copy" && mv "$part.copy" "$part" ||
                    fail "$what: cannot copy $path to $part"
            fi
            got=$(sha256sum <"$part")
            if [ "${got%% *}" = "$sha" ]; then
                mv "$part" "$file" || fail "$what: cannot rename $part"
                return 0
            fi
            reason="wrong SHA-256 ${got%% *}, expected $sha; nothing was unpacked"
            # The next attempt bypasses the caches of proxies.
            options+=(-o Acquire::http::No-Cache=true -o Acquire::https::No-Cache=true)
        else
            case $output in
            *" 404 "* | *" 410 "* | *"File not found - "* | *"Failed to stat - "*)
                rm -f "$part"
                return 1
                ;;
            esac
            reason=$(apt_reason "$output")
        fi
        rm -f "$part"
        [ "$attempt" -lt "$attempts" ] || fail \
            "$what: cannot download $path: $reason; $attempts attempts; $another_mirror"
        sleep "${delays[attempt - 1]}"
        attempt=$((attempt + 1))
    done
}

# take SOURCE NAME VERSION PATH SHA256: download and unpack a package as SOURCE
# describes it. 1 if the mirror does not have PATH.
take() {
    local source=$1 name=$2 version=$3 path=$4 sha=$5 stamp deb got
    stamp=$dest/.unpacked/${name}_${version//:/%3a}
    [ -e "$stamp" ] && return 0
    deb=$root/debs/${stamp##*/}.deb
    if [ -e "$deb" ]; then
        got=$(sha256sum <"$deb")
        if [ "${got%% *}" != "$sha" ]; then
            note "$name $version: the cached file has SHA-256 ${got%% *}, $source has $sha;" \
                "downloading it again"
            rm "$deb" || fail "$name $version: cannot delete $deb"
        fi
    fi
    [ -e "$deb" ] || download "$name $version ($source)" "$path" "$sha" "$deb" || return 1
    rm -f "$dest/.unpacked/${name}"_*
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$dest" --no-same-owner \
        --keep-directory-symlink ||
        fail "$name $version: cannot unpack $deb into $dest"
    touch "$stamp" || fail "$name $version: cannot create $stamp"
}

# A package that the archive has replaced is not asked for again for a day.
declare -A gone=()
for name in ${wanted[@]+"${wanted[@]}"}; do
    read -r version path sha <<<"${locked[$name]}"
    marker=$root/gone/${name}_${version//:/%3a}
    [ -z "$(find "$marker" -mmin -1440 2>/dev/null)" ] &&
        take debian.lock "$name" "$version" "$path" "$sha" && continue
    gone[$name]=$version
    look_up+=("${member_of[$name]:-$name}")
done

# The index of up to a day ago may name files that are gone too: then a fresh one.
requests=($(printf '%s\n' ${look_up[@]+"${look_up[@]}"} | sort -u))
missing=
for fresh in "" --fresh; do
    [ ${#requests[@]} -eq 0 ] && break
    if ! lines=$("$here/debian-index.sh" $fresh "$arch" "${requests[@]}" 2>"$root/index-error"); then
        what=${requests[*]} why="not in debian.lock"
        for name in ${gone[@]+"${!gone[@]}"}; do
            read -r version path _ <<<"${locked[$name]}"
            what="$name $version (debian.lock)" why="the mirror does not have $path (404)"
        done
        fail "$what: $why; $(cat "$root/index-error")"
    fi
    missing=
    while read -r _ name version path sha; do
        case $name in */depends) continue ;; esac
        if [ -n "${gone[$name]:-}" ] && [ "${gone[$name]}" != "$version" ]; then
            note "$name: the archive has $version instead of ${gone[$name]} (debian.lock);" \
                "make update-lock records it"
        fi
        take "index of $suite" "$name" "$version" "$path" "$sha" ||
            missing="$name $version (index of $suite): the mirror does not have $path (404)"
    done <<<"$lines"
    [ -n "$missing" ] || break
done
[ -z "$missing" ] || fail "$missing; $another_mirror"
for name in ${gone[@]+"${!gone[@]}"}; do
    touch "$root/gone/${name}_${gone[$name]//:/%3a}"
done
