#!/usr/bin/env bash
# Prepare a Debian machine for building and testing Hartline. Installs only missing
# packages, so a second run takes a second.
#
#   setup.sh           requirements of building and running
#   setup.sh test      also requirements of the tests
#   setup.sh emulated  additional requirements of make test-emulated
#   setup.sh --packages
#                      print "ARCH PACKAGE..." of everything that fetch-debian.sh fetches
#                      here, for update-lock.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
minimum_rust=1.95
# Of the program in Rust that tests run in VMs.
guest_target=riscv64gc-unknown-linux-gnu

# command-or-file:package, one per line.
build_needs="
cc:gcc
ld.lld:lld
make:make
xz:xz-utils
strip:binutils
/usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring
/usr/include/stdio.h:libc6-dev
"
test_needs="
riscv64-linux-gnu-gcc:gcc-riscv64-linux-gnu
riscv64-linux-gnu-g++:g++-riscv64-linux-gnu
riscv64-linux-gnu-objdump:binutils-riscv64-linux-gnu
/usr/riscv64-linux-gnu/lib/libc.a:libc6-dev-riscv64-cross
bzip2:bzip2
cpio:cpio
dwz:dwz
gdb-multiarch:gdb-multiarch
gpg:gpg
gpg-agent:gpg-agent
ip:iproute2
lldb-19:lldb-19
mkfs.erofs:erofs-utils
nft:nftables
openssl:openssl
qemu-system-x86_64:qemu-system-x86
/usr/share/doc/python3-venv:python3-venv
"

emulated_needs="
bochs:bochs
/usr/share/bochs/BIOS-bochs-latest:bochsbios
/usr/share/doc/bochs-term:bochs-term
/usr/share/vgabios:vgabios
grub-mkrescue:grub-common
/usr/lib/grub/i386-pc:grub-pc-bin
xorriso:xorriso
mformat:mtools
"

# Debian's programs that the tests run, with their libraries.
riscv64_packages=(
    busybox-static libc6 coreutils dash libacl1 libattr1 libgmp10 libselinux1 libpcre2-8-0
    libcap2 libssl3t64 zlib1g libzstd1
    xz-utils liblzma5 bzip2 libbz2-1.0 gzip bc libreadline8t64 libtinfo6
    gdbserver strace sqlite3 libsqlite3-0 lua5.4 perl-base libcrypt1
    bash redis-server redis-tools memcached netperf nginx openssl
    liblzf1 libjemalloc2 liblua5.1-0 lua-cjson lua-bitop libsystemd0 libatomic1
    procps libproc2-0 ncurses-base
    libhiredis1.1.0 libevent-2.1-7t64 libsasl2-2 libsctp1 libstdc++6 libgcc-s1
    python3.13-minimal libpython3.13-minimal libpython3.13-stdlib libpython3.13-testsuite
    libexpat1
    sed grep gawk mawk findutils diffutils debianutils tar m4 make git ripgrep
    jq libjq1 libonig5 libmpfr6 libsigsegv2
    bsdutils bsdextrautils util-linux libsmartcols1 libmount1 libblkid1 libuuid1 libudev1
)
# A root file system in which gdb runs, and traces other programs of the VM.
gdb_packages=(
    gdb libatomic1 libbabeltrace1 libbrotli1 libbz2-1.0 libc6 libcom-err2 libcurl3t64-gnutls
    libdebuginfod1t64 libdw1t64 libelf1t64 libexpat1 libffi8 libgcc-s1 libglib2.0-0t64 libgmp10
    libgnutls30t64 libgssapi-krb5-2 libhogweed6t64 libidn2-0 libjson-c5 libk5crypto3 libkeyutils1
    libkrb5-3 libkrb5support0 libldap2 liblzma5 libmpfr6 libncursesw6 libnettle8t64 libnghttp2-14
    libnghttp3-9 libngtcp2-16 libngtcp2-crypto-gnutls8 libp11-kit0 libpcre2-8-0 libpsl5t64
    libpython3.13 libpython3.13-minimal libpython3.13-stdlib libreadline8t64 librtmp1 libsasl2-2
    libsource-highlight4t64 libssh2-1t64 libssl3t64 libstdc++6 libtasn1-6 libtinfo6 libunistring5
    libuuid1 libxxhash0 libzstd1 zlib1g
)
# Natively for comparison, qemu-riscv64, and a kernel for nested machines.
amd64_packages=(
    busybox-static qemu-user linux-image-cloud-amd64/depends
    coreutils dash libacl1 libattr1 libgmp10 libselinux1 libpcre2-8-0 libcap2 libssl3t64
    zlib1g libzstd1 libc6
)
# Checks the metrics, alert rules and dashboard of the daemon.
monitoring_packages=(prometheus promtool)
# Opens the daemon's page: Chromium without a window, the libraries that it is linked with, and
# fonts. base-files has the directories of a root file system, which this folder becomes.
browser_packages=(
    base-files chromium-headless-shell chromium-common
    fontconfig-config fonts-dejavu-core fonts-dejavu-mono
    libasound2t64 libasyncns0 libatk1.0-0t64 libatomic1 libatspi2.0-0t64 libblkid1 libbrotli1
    libbz2-1.0 libc6 libcap2 libdav1d7 libdbus-1-3 libdouble-conversion3 libdrm2 libexpat1
    libffi8 libflac14 libfontconfig1 libfreetype6 libgbm1 libgcc-s1 libglib2.0-0t64
    libgraphite2-3 libharfbuzz-subset0 libharfbuzz0b libjpeg62-turbo liblcms2-2 libminizip1t64
    libmount1 libmp3lame0 libmpg123-0t64 libnspr4 libnss3 libogg0 libopenh264-8 libopenjp2-7
    libopus0 libpcre2-8-0 libpng16-16t64 libpulse0 libselinux1 libsndfile1 libsqlite3-0
    libstdc++6 libsystemd0 libudev1 libvorbis0a libvorbisenc2 libx11-6 libx11-xcb1 libxau6
    libxcb1 libxcomposite1 libxdamage1 libxdmcp6 libxext6 libxfixes3 libxi6 libxkbcommon0
    libxnvctrl0 libxrandr2 libxrender1 libzstd1 zlib1g
)
if [ "${1:-}" = --packages ]; then
    echo "riscv64 ${riscv64_packages[*]} ${gdb_packages[*]}"
    echo "amd64 ${amd64_packages[*]} ${monitoring_packages[*]} ${browser_packages[*]}"
    exit
fi

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

install_missing() {
    local need package missing=()
    for need in $1; do
        package=${need##*:}
        need=${need%:*}
        case $need in
        /*) [ -e "$need" ] || missing+=("$package") ;;
        *) command -v "$need" >/dev/null || missing+=("$package") ;;
        esac
    done
    [ ${#missing[@]} -eq 0 ] && return
    echo "setup: installing ${missing[*]}"
    as_root apt-get -qq -o Acquire::Retries=3 update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
        -o Acquire::Retries=3 install --no-install-recommends "${missing[@]}" >/dev/null
}

# True if cargo is there and at least $minimum_rust.
rust_is_new_enough() {
    local have
    have=$(cargo --version 2>/dev/null | awk '{ print $2 }')
    [ -n "$have" ] && printf '%s\n%s\n' "$minimum_rust" "$have" | sort --check=quiet --version-sort
}

ensure_rust() {
    rust_is_new_enough && return
    if command -v rustup >/dev/null; then
        echo "setup: installing the current stable Rust with rustup"
        rustup toolchain install stable --profile minimal --component rustfmt,clippy
        rustup default stable
        rust_is_new_enough && return
    fi
    echo "setup: Rust $minimum_rust or later is needed, found: $(cargo --version 2>&1 || true)." \
        "Install it with rustup (https://rustup.rs, or Debian 13's package rustup) and try again." >&2
    exit 1
}

# Rust's standard library for programs in VMs.
ensure_rust_for_guests() {
    [ -d "$(rustc --print sysroot)/lib/rustlib/$guest_target/lib" ] && return
    if ! command -v rustup >/dev/null; then
        echo "setup: Rust's library for $guest_target is missing. Install Rust with rustup" \
            "(https://rustup.rs, or Debian 13's package rustup) and try again." >&2
        exit 1
    fi
    echo "setup: installing Rust's library for $guest_target with rustup"
    rustup target add "$guest_target"
}

# Downloads fail now and then: three attempts.
retry() {
    local attempt
    for attempt in 1 2 3; do
        "$@" && return
        echo "setup: attempt $attempt of 3 failed: $*" >&2
        sleep $((attempt * 5))
    done
    return 1
}

install_missing "$build_needs"
ensure_rust
"$here/toolchain.sh"
if [ "${1:-}" = test ]; then
    install_missing "$test_needs"
    retry ensure_rust_for_guests
    retry "$here/schemathesis.sh"
    retry "$here/python-sdk.sh"
    "$here/fetch-debian.sh" riscv64 "$root/.debian/riscv64" "${riscv64_packages[@]}"
    "$here/fetch-debian.sh" riscv64 "$root/.debian/gdb" "${gdb_packages[@]}"
    "$here/fetch-debian.sh" amd64 "$root/.debian/amd64" "${amd64_packages[@]}"
    "$here/fetch-debian.sh" amd64 "$root/.debian/monitoring" "${monitoring_packages[@]}" ||
        echo "setup: without prometheus: the tests that need it are skipped"
    "$here/fetch-debian.sh" amd64 "$root/.debian/browser" "${browser_packages[@]}" ||
        echo "setup: without Chromium: the test that needs it is skipped"
fi
if [ "${1:-}" = emulated ]; then
    install_missing "$emulated_needs"
fi
