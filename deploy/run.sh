#!/usr/bin/env bash
# Start hartlined on this machine, run a riscv64 program through its API, print the
# program's output and the run's cost, and end the daemon.
#
#   run.sh BIN PROGRAM ARGUMENT...
#
# BIN is the folder of hartline and hartlined, PROGRAM a riscv64 ELF file. The daemon must
# be started by root, since it gives each virtual machine a separate user and namespaces:
# sudo is used if needed. All other commands run as the calling user, with an API key, over
# TCP on a loopback address.
#
# KEEP=1 leaves the daemon running and prints how to connect to it. LISTEN is its address
# (127.0.0.1:0, a free port). DATA is its data directory, which is kept for the next time.
set -euo pipefail

bin=$(cd "$1" && pwd) program=$2
shift 2
data=${DATA:-${XDG_CACHE_HOME:-$HOME/.cache}/hartline-run}
listen=${LISTEN:-127.0.0.1:0}

sudo=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "run: hartlined must be started by root, and there is no sudo here" >&2
        exit 1
    fi
    echo "run: hartlined must be started by root: using sudo"
    sudo=(sudo)
    sudo -v
fi
if [ ! -e /dev/kvm ]; then
    echo "run: there is no /dev/kvm here; $bin/hartline doctor says more" >&2
    exit 1
fi

# No other user can make files there, and the socket is for root only.
mkdir -p "$data"
chmod 700 "$data"
log=$data/log socket=$data/hartlined.sock
pid=
# Root needs no key at the Unix socket.
as_root() { ${sudo[@]+"${sudo[@]}"} env HARTLINE_HOST="unix://$socket" "$@"; }

finish() {
    local status=$?
    [ "$status" -eq 0 ] || tail -n 5 "$log" >&2
    [ -n "$pid" ] || return 0
    as_root kill "$pid" 2>/dev/null || true
    # The daemon answers the last requests first.
    while [ -e "/proc/$pid" ]; do sleep 0.05; done
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# In a separate session, so that the daemon can outlive this one.
: >"$log"
pid=$(as_root sh -c 'log=$1; shift; setsid "$@" </dev/null >/dev/null 2>>"$log" & echo $!' sh \
    "$log" "$bin/hartlined" --data-dir "$data/data" --socket "$socket" --listen "$listen")

address=
for _ in $(seq 300); do
    address=$(sed -n 's/.* ready .*tcp="\([^"]*\)".*/\1/p' "$log")
    [ -n "$address" ] && break
    [ -e "/proc/$pid" ] || { pid=; exit 1; }
    sleep 0.1
done
[ -n "$address" ] || { echo "run: the daemon is not ready" >&2; exit 1; }

key=$(as_root "$bin/hartline" key --scope write --label run.sh)
export HARTLINE_HOST=http://$address HARTLINE_KEY=$key
echo "run: hartlined listens at $HARTLINE_HOST"
echo "run: uploading and translating $program (once for each program)"
id=$("$bin/hartline" push "$program")
echo "run: program $id"
echo "run: $(basename "$program") $*"
"$bin/hartline" submit --stats "$id" "$@"

if [ "${KEEP:-0}" = 1 ]; then
    cat <<TEXT

The daemon goes on. To talk to it:

    export PATH=$bin:\$PATH
    export HARTLINE_HOST=$HARTLINE_HOST
    export HARTLINE_KEY=$key

    hartline submit $id $*
    machine=\$(hartline create --start $id sleep 100)
    hartline ps; hartline top
    curl -H "Authorization: Bearer \$HARTLINE_KEY" \$HARTLINE_HOST/v1/machines
    curl \$HARTLINE_HOST/openapi.json

In a browser, with the key: $HARTLINE_HOST/ui/

As root without a key, tenants and keys too:

    HARTLINE_HOST=unix://$socket

Its log is $log. To end it: ${sudo[*]+sudo }kill $pid
TEXT
    pid=
fi
