#!/usr/bin/env bash
# Builds the fuzz targets with the stable toolchain and runs each for some seconds from
# its corpus, in parallel on all CPUs:
#
#     fuzz/run.sh [SECONDS [TARGET…]]
#
# New inputs go to fuzz/work/TARGET, failing inputs to fuzz/artifacts. The exit code is
# not 0 if a target failed.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${1:-60}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(recovery translation baseline decoder image pieces dwarf tree kept erofs archive
    copy gdb nat wire virtqueue racing tap mailbox volume protocol spawner snapshot)

# The flags of cargo-fuzz, except those that need a nightly compiler. They are added to
# the flags of .cargo/config.toml and do not replace them.
flags=''
for flag in -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg=fuzzing; do
    flags+="\"$flag\","
done
target_dir=${CARGO_TARGET_DIR:-../target}/fuzz
cargo build --release --locked --target-dir "$target_dir" \
    --config "target.x86_64-unknown-linux-gnu.linker=\"$PWD/cc.sh\"" \
    --config "target.x86_64-unknown-linux-gnu.rustflags=[$flags]"

# fuzz TARGET
fuzz() {
    local target=$1 longest=65536 log=work/$1.log
    case $target in
    decoder | baseline | image | pieces | kept | nat | wire | virtqueue | racing | tap | mailbox | volume | protocol | spawner | snapshot) longest=4096 ;;
    translation) longest=401 ;;
    esac
    # The target's images become memory of a VM.
    if [ "$target" = mailbox ] && [ ! -e /dev/kvm ]; then
        echo "fuzz: mailbox: no /dev/kvm, skipped"
        return
    fi
    mkdir -p "work/$target" artifacts
    if ! "$target_dir/x86_64-unknown-linux-gnu/release/$target" \
        -max_total_time="$seconds" -timeout=120 -rss_limit_mb=2048 -max_len="$longest" \
        -print_final_stats=1 "-artifact_prefix=artifacts/$target-" \
        "work/$target" "corpus/$target" >"$log" 2>&1; then
        tail -n 40 "$log"
        echo "fuzz: $target FAILED; the input is in fuzz/artifacts"
        return 1
    fi
    echo "fuzz: $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s"
}
export -f fuzz
# Freed and new memory is filled with non-zero bytes, so that reading it has an effect.
export GLIBC_TUNABLES=glibc.malloc.perturb=165
export target_dir seconds
printf '%s\n' "${targets[@]}" | xargs -n 1 -P "$(nproc)" bash -c 'fuzz "$1"' fuzz
