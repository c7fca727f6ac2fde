#!/usr/bin/env bash
# Prepare the programs and inputs of `hartline bench`.
#
#   build.sh OUT [PART...]
#   build.sh --packages
#   build.sh --jit-packages
#
# PART is one of kernels, threads, parallel, syscalls, debug, disk, snapshot, secp256k1, busybox, debian, network, service and
# jit; without any, all of them but jit. --packages prints "ARCH PACKAGE..." of everything
# that fetch-debian.sh fetches here by debian.lock, for update-lock.sh; --jit-packages what
# the part jit needs, for jit.lock.
#
# OUT/native/     x86-64 programs, statically linked
# OUT/riscv64/    the same programs for riscv64
# OUT/roots/amd64/NAME/, OUT/roots/riscv64/NAME/
#                 root directories with one of Debian's programs and its libraries,
#                 with the program of `hartline bench syscalls`, or (jit) with node, java,
#                 luajit and pypy3
# OUT/roots/riscv64/jit.erofs
#                 the same for riscv64 as an image
# OUT/input/      input files
# OUT/versions/   versions of Debian's packages for both architectures
# OUT/qemu-riscv64
#
# The C programs are compiled here for both targets by the same compiler version with
# the same options: -O2, static, and no fused multiply-add, which would round differently
# where only one of the two instruction sets has it. secp256k1 is the C library that the
# crate secp256k1-sys carries, without hand-written assembly for either target. All else
# are Debian's own packages, of the same upstream version for both. OUT/versions/PART.json
# has their versions, and `hartline bench` names those that differ. Packages of different
# upstream versions are refused unless HARTLINE_BENCH_MIXED=1.
set -euo pipefail

# Packages of Debian's programs, with their libraries.
packages=(
    libc6 bc bzip2 libbz2-1.0 libcrypt1 libexpat1 liblua5.4-0 liblz4-1 liblzma5 libxxhash0
    libpython3.13-minimal libreadline8t64 libsqlite3-0 libssl3t64 libtinfo6 lua5.4 openssl
    libzstd1 perl-base python3.13-minimal sqlite3 xz-utils zlib1g zstd
    redis-server redis-tools libjemalloc2 liblzf1 libhiredis1.1.0 libsystemd0
    libatomic1 libstdc++6 libgcc-s1 libcap2
    gawk libgmp10 libmpfr6 libsigsegv2
    git libpcre2-8-0 cpp-14-riscv64-linux-gnu libisl23 libmpc3
)
# The servers of `hartline bench io`, and for this machine their clients.
network_libraries=(libc6 libcrypt1 libpcre2-8-0 libssl3t64 libzstd1 zlib1g)
network_packages=(libevent-2.1-7t64 libsasl2-2 libsctp1 memcached netperf nginx)
client_packages=(
    libmemcached-tools libmemcached11t64 libhashkit2t64 libmemcachedutil2t64 libstdc++6
    libgcc-s1 libluajit-5.1-2 wrk
)
if [ "${1:-}" = --packages ]; then
    for arch in amd64 riscv64; do
        echo "$arch busybox-static base-files ${packages[*]}" \
            "${network_libraries[*]} ${network_packages[*]}"
    done
    echo "amd64 qemu-user ${client_packages[*]}"
    exit
fi

# Programs that make code at run time, and for this machine a compiler for Java.
jit_packages=(base-files libc6 luajit nodejs openjdk-21-jre-headless pypy3)
if [ "${1:-}" = --jit-packages ]; then
    echo "amd64 ${jit_packages[*]} ecj"
    echo "riscv64 ${jit_packages[*]}"
    exit
fi

if [ $# -lt 1 ]; then
    echo "usage: $0 OUT [kernels|threads|parallel|syscalls|debug|disk|snapshot|secp256k1|busybox|debian|network|service|jit]..." >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
mkdir -p "$out"/{native,riscv64,input,versions}
fetch=$root/deploy/setup/fetch-debian.sh

# Everything is replaced by renaming: a running benchmark keeps its program.
place() {
    cp "$1" "$2.new"
    mv "$2.new" "$2"
}

options=(-O2 -static -Wall -ffp-contract=off)
# compile NAME SOURCE OPTION...
compile() {
    local name=$1
    shift
    gcc "${options[@]}" -o "$out/native/$name.new" "$@"
    riscv64-linux-gnu-gcc "${options[@]}" -o "$out/riscv64/$name.new" "$@"
    mv "$out/native/$name.new" "$out/native/$name"
    mv "$out/riscv64/$name.new" "$out/riscv64/$name"
}

# version_of TREE PACKAGE: the version that fetch-debian.sh has unpacked.
version_of() {
    local stamp
    # A tree that an older fetch-debian.sh has made may have more stamps.
    stamp=$(ls -t "$1/.unpacked/$2"_* | head -n 1)
    stamp=${stamp##*/"$2"_}
    echo "${stamp//%3a/:}"
}

# upstream_of VERSION: without the Debian revision.
upstream_of() {
    case $1 in
    *-*) echo "${1%-*}" ;;
    *) echo "${1%%+deb[0-9]*}" ;;
    esac
}

# compare_versions PART TREES PACKAGE...: write OUT/versions/PART.json with the versions
# in TREES/amd64 and TREES/riscv64.
compare_versions() {
    local part=$1 trees=$2 package native riscv64 lines=() refused=0
    shift 2
    for package in "$@"; do
        native=$(version_of "$trees/amd64" "$package")
        riscv64=$(version_of "$trees/riscv64" "$package")
        lines+=("{\"package\":\"$package\",\"native\":\"$native\",\"riscv64\":\"$riscv64\"}")
        # A rebuild has the same sources.
        [ "${native%+b[0-9]*}" = "${riscv64%+b[0-9]*}" ] && continue
        echo "$0: warning: $package is $native for amd64 and $riscv64 for riscv64" >&2
        [ "$(upstream_of "$native")" = "$(upstream_of "$riscv64")" ] || refused=1
    done
    if [ $refused -eq 1 ] && [ "${HARTLINE_BENCH_MIXED:-}" != 1 ]; then
        echo "$0: $part: the upstream versions differ: try again when Debian has the same for both," \
            "or compare them nevertheless with HARTLINE_BENCH_MIXED=1" >&2
        exit 1
    fi
    (
        IFS=,
        echo "[${lines[*]}]"
    ) >"$out/versions/$part.json.new"
    mv "$out/versions/$part.json.new" "$out/versions/$part.json"
}

# generate FILE SCRIPT LINES: the output of an awk program, unless FILE is there and
# newer. The scripts contain a random number generator, so the files are the same everywhere.
generate() {
    [ "$out/input/$1" -nt "$here/$2" ] && return
    "$out/native/busybox" awk -v lines="$3" -f "$here/$2" >"$out/input/$1.new"
    mv "$out/input/$1.new" "$out/input/$1"
}

make_kernels() {
    compile kernels "$here"/kernels/*.c -lm
}

# Make a root directory for each architecture, in which the program runs.
make_threads() {
    compile threads "$here/threads.c" -pthread
}

make_parallel() {
    compile parallel -I"$root/guest-runtime/sdk" "$here/parallel.c" -pthread -fopenmp
}

make_syscalls() {
    local arch
    compile syscalls "$here/syscalls.c"
    for arch in amd64 riscv64; do
        mkdir -p "$out/roots/$arch/syscalls"
        head -c 1048576 /dev/zero >"$out/roots/$arch/syscalls/data"
    done
    place "$out/native/syscalls" "$out/roots/amd64/syscalls/syscalls"
    place "$out/riscv64/syscalls" "$out/roots/riscv64/syscalls/syscalls"
}

# A dynamically linked program, and the same statically linked, with symbols.
make_debug() {
    local dest=$out/roots/riscv64/debug file
    mkdir -p "$dest/lib"
    for file in libc.so.6 ld-linux-riscv64-lp64d.so.1; do
        place "$(riscv64-linux-gnu-gcc -print-file-name=$file)" "$dest/lib/$file"
    done
    riscv64-linux-gnu-gcc -O2 -g -Wall -pthread -o "$dest/steady.new" "$here/steady.c"
    mv "$dest/steady.new" "$dest/steady"
    riscv64-linux-gnu-gcc "${options[@]}" -g -pthread -o "$dest/steady-static.new" "$here/steady.c"
    mv "$dest/steady-static.new" "$dest/steady-static"
    place "$here/workloads/steady.py" "$out/input/steady.py"
}

make_disk() {
    compile disk "$here/disk.c" -pthread
}

make_snapshot() {
    compile snapshot -I"$root/guest-runtime/sdk" "$here/snapshot.c" -pthread
}

make_secp256k1() {
    # cargo fetches the sources like every dependency and checks them against Cargo.lock.
    local vendor=$out/vendor secp prefix
    (cd "$here/secp256k1-sources" && cargo vendor --quiet --locked "$vendor" >/dev/null)
    secp=$vendor/secp256k1-sys/depend/secp256k1
    # The crate puts its version into every symbol.
    prefix=$(grep -o 'rustsecp256k1_v[0-9_]*_ecdsa_verify' "$secp/include/secp256k1.h" | head -n 1)
    compile secp256k1 -Wno-unused-function -I"$secp" -I"$secp/include" -I"$secp/src" \
        -DPREFIX="${prefix%ecdsa_verify}" \
        -DECMULT_WINDOW_SIZE=15 -DCOMB_BLOCKS=43 -DCOMB_TEETH=6 \
        "$here/secp256k1_verify.c" "$secp/src/secp256k1.c" \
        "$secp/src/precomputed_ecmult.c" "$secp/src/precomputed_ecmult_gen.c"
    # The compiler's input.
    riscv64-linux-gnu-gcc -E -P -I"$secp" -I"$secp/include" -I"$secp/src" \
        "$secp/src/secp256k1.c" >"$out/input/library.i.new"
    mv "$out/input/library.i.new" "$out/input/library.i"
}

make_busybox() {
    "$fetch" riscv64 "$root/.debian/riscv64" busybox-static
    "$fetch" amd64 "$root/.debian/amd64" busybox-static
    compare_versions busybox "$root/.debian" busybox-static
    place "$root/.debian/riscv64/usr/bin/busybox" "$out/riscv64/busybox"
    place "$root/.debian/amd64/usr/bin/busybox" "$out/native/busybox"
    generate logs.txt logs.awk 320000
    generate logs-quick.txt logs.awk 20000
    place "$here/workloads/report.awk" "$out/input/report.awk"
}

# make_root ARCH PROGRAM [PATH...]: a separate root directory for usr/bin/PROGRAM, which the
# packages may have in usr/sbin or gcc's folder, with the loader, the libraries that it needs and PATHs of the
# packages. It is small because Hartline reads all of it whenever the program starts.
make_root() {
    local arch=$1 program=$2 tree=$root/.debian/bench/$1 dest=$out/roots/$1/$2
    local file library loader todo
    shift 2
    case $arch in
    amd64) libraries=usr/lib/x86_64-linux-gnu loader=usr/lib64/ld-linux-x86-64.so.2 ;;
    riscv64) libraries=usr/lib/riscv64-linux-gnu loader=usr/lib/ld-linux-riscv64-lp64d.so.1 ;;
    esac
    rm -rf "$dest.new"
    mkdir -p "$dest.new/$libraries" "$dest.new/${loader%/*}" "$dest.new/usr/bin"
    cp -a "$tree"/{bin,lib} "$dest.new"
    [ -h "$tree/lib64" ] && cp -a "$tree/lib64" "$dest.new"
    cp -L "$tree/$loader" "$dest.new/$loader"
    file=$tree/usr/bin/$program
    [ -e "$file" ] || file=$tree/usr/sbin/$program
    # gcc is a cross compiler for one architecture only.
    [ -e "$file" ] || file=$(echo "$tree"/usr/libexec/gcc*/riscv64-linux-gnu/14/"$program")
    cp -L "$file" "$dest.new/usr/bin/$program"
    for file in "$@"; do
        (cd "$tree" && cp -a --parents "$file" "$dest.new")
    done
    todo=("$dest.new/usr/bin/$program")
    while [ ${#todo[@]} -gt 0 ]; do
        file=${todo[0]}
        todo=("${todo[@]:1}")
        for library in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
            [ "$library" = "${loader##*/}" ] && continue
            [ -e "$dest.new/$libraries/$library" ] && continue
            cp -L "$tree/$libraries/$library" "$dest.new/$libraries/$library"
            todo+=("$dest.new/$libraries/$library")
        done
    done
    rm -rf "$dest"
    mv "$dest.new" "$dest"
}

# make_script_root ARCH NAME PROGRAM...: a root directory for a script that runs these
# programs, with busybox for its shell.
make_script_root() {
    local arch=$1 name=$2 dest=$out/roots/$1/$2 program
    shift 2
    rm -rf "$dest"
    for program in "$@"; do
        make_root "$arch" "$program"
        mkdir -p "$dest"
        cp -a "$out/roots/$arch/$program/." "$dest"
        rm -rf "$out/roots/$arch/$program"
    done
    mkdir -p "$dest/tmp"
    case $arch in
    amd64) cp "$out/native/busybox" "$dest/usr/bin/busybox" ;;
    riscv64) cp "$out/riscv64/busybox" "$dest/usr/bin/busybox" ;;
    esac
}

make_debian() {
    local arch tool
    make_busybox
    for arch in amd64 riscv64; do
        "$fetch" $arch "$root/.debian/bench/$arch" base-files "${packages[@]}"
    done
    compare_versions debian "$root/.debian/bench" "${packages[@]}"
    for arch in amd64 riscv64; do
        for tool in bc bzip2 cc1 gawk git lua5.4 openssl perl sqlite3 xz zstd; do
            make_root $arch $tool
        done
        make_root $arch python3.13 usr/lib/python3.13
        make_script_root $arch redis redis-server redis-benchmark redis-cli
    done
    for file in "$here"/workloads/*; do
        place "$file" "$out/input/${file##*/}"
    done
    generate corpus.txt corpus.awk 60000
    compress xz -T1 -6 -c
    compress zstd -q --single-thread -9 -c
    compress bzip2 -9 -c
    make_history
}

# A repository for git, made anew if its script is newer.
make_history() {
    local history=$out/input/history.git
    [ "$history/HEAD" -nt "$here/history.awk" ] && return
    rm -rf "$history" "$history.new"
    native git init --quiet --bare --initial-branch=main "$history.new"
    "$out/native/busybox" awk -v commits=1500 -f "$here/history.awk" |
        native git -C "$history.new" fast-import --quiet
    mv "$history.new" "$history"
}

# The servers of `hartline bench io`, and for this machine their clients.
make_network() {
    local arch program packages=("${network_libraries[@]}" "${network_packages[@]}")
    for arch in amd64 riscv64; do
        "$fetch" $arch "$root/.debian/bench/$arch" base-files "${packages[@]}"
    done
    compare_versions network "$root/.debian/bench" "${packages[@]}"
    for arch in amd64 riscv64; do
        make_root $arch netserver
        make_root $arch memcached
        make_root $arch nginx
        mkdir -p "$out/roots/$arch"/{memcached,nginx}/etc "$out/roots/$arch/nginx/srv/html"
        place "$here/workloads/nginx.conf" "$out/roots/$arch/nginx/srv/nginx.conf"
        head -c 4096 /dev/zero | tr '\0' x >"$out/roots/$arch/nginx/srv/html/page"
        for program in memcached nginx; do
            echo root:x:0:0::/:/bin/sh >"$out/roots/$arch/$program/etc/passwd"
            echo root:x:0: >"$out/roots/$arch/$program/etc/group"
        done
    done
    "$fetch" amd64 "$root/.debian/bench/amd64" "${client_packages[@]}"
    make_root amd64 netperf
    make_root amd64 memcaslap
    make_root amd64 wrk
}

# The program of `hartline bench service`. It has no C library, so that only the daemon and the
# VMM are measured.
make_service() {
    riscv64-linux-gnu-gcc -O1 -static -nostdlib -ffreestanding \
        -o "$out/riscv64/service.new" "$here/../programs/service/service.c"
    mv "$out/riscv64/service.new" "$out/riscv64/service"
}

# Root directories that programs are started in, because they look for files at absolute paths.
make_jit() {
    local arch tree dest
    place "$here/enter.sh" "$out/enter.sh"
    for arch in amd64 riscv64; do
        tree=$root/.debian/bench-jit/$arch dest=$out/roots/$arch/jit
        HARTLINE_LOCK=$here/jit.lock "$fetch" $arch "$tree" \
            $(awk -v arch=$arch '$1 == arch { print $2 }' "$here/jit.lock")
        rm -rf "$dest"
        mkdir -p "$dest"
        cp -a "$tree"/{bin,etc,lib*,sbin,usr} "$dest"
        rm -rf "$dest"/usr/share/{doc,man,locale}
        mkdir -p "$dest"/{proc,dev,tmp,bench}
        cp "$here"/jit/*.{js,lua,py} "$dest/bench"
        ln -sf "../lib/jvm/java-21-openjdk-$arch/bin/java" "$dest/usr/bin/java"
    done
    compare_versions jit "$root/.debian/bench-jit" "${jit_packages[@]}"
    compile_java "$out/roots/amd64/jit"
    cp "$out"/roots/amd64/jit/bench/*.class "$out/roots/riscv64/jit/bench"
    place "$out/qemu-riscv64" "$out/roots/riscv64/jit/qemu-riscv64"
    mkfs.erofs --quiet "$out/roots/riscv64/jit.erofs.new" "$out/roots/riscv64/jit"
    mv "$out/roots/riscv64/jit.erofs.new" "$out/roots/riscv64/jit.erofs"
}

# compile_java ROOT: compile into ROOT/bench; the class files serve both architectures.
compile_java() {
    local path=
    cp "$here"/jit/*.java "$1/bench"
    path=$(cd "$1" && printf '/%s:' usr/share/java/*.jar)
    "$here/enter.sh" "$1" /usr/bin/java -cp "$path" \
        org.eclipse.jdt.internal.compiler.batch.Main -17 -nowarn -d /bench \
        $(cd "$1" && printf '/%s ' bench/*.java)
}

# native TOOL ARGUMENT...: run a tool of the root directories on this machine.
native() {
    local tree=$out/roots/amd64/$1
    "$tree/lib64/ld-linux-x86-64.so.2" --inhibit-cache \
        --library-path "$tree/usr/lib/x86_64-linux-gnu" "$tree/usr/bin/$1" "${@:2}"
}

# compress TOOL OPTION...: corpus.txt with the native tool, for decompression.
compress() {
    local file=$out/input/corpus.$1
    [ "$file" -nt "$out/input/corpus.txt" ] && return
    native "$@" "$out/input/corpus.txt" >"$file.new"
    mv "$file.new" "$file"
}

"$fetch" amd64 "$root/.debian/amd64" qemu-user
place "$root/.debian/amd64/usr/bin/qemu-riscv64" "$out/qemu-riscv64"
if [ $# -eq 0 ]; then
    set -- kernels threads parallel syscalls debug disk snapshot secp256k1 busybox debian network service
fi
for part in "$@"; do
    case $part in
    kernels | threads | parallel | syscalls | debug | disk | snapshot | secp256k1 | busybox | debian | network | service | jit) make_$part ;;
    *)
        echo "$0: $part: no such part" >&2
        exit 2
        ;;
    esac
done
