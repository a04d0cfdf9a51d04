#!/usr/bin/env bash
# Builds fuzz targets with AddressSanitizer and coverage counters, with any toolchain.
#
#     fuzz/build.sh [TARGET...]      # all; target/fuzz/x86_64-unknown-linux-gnu/release/TARGET
#
# FUZZ_LEVEL=1 counts functions instead of edges: less feedback, and more executions a second.
set -euo pipefail
cd "$(dirname "$0")"

case "${1:-}" in
-h | --help)
    sed -n '2,6s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac

targets=()
for target in "$@"; do
    if [[ ! -f fuzz_targets/$target.rs ]]; then
        echo "fuzz/build.sh: no target is called '$target'; see fuzz/fuzz_targets" >&2
        exit 2
    fi
    targets+=(--bin "$target")
done
if [[ ${#targets[@]} -eq 0 ]]; then
    targets=(--bins)
fi

level=${FUZZ_LEVEL:-3}
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=$level"
flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
# The sanitizer is an unstable option of the compiler, which a stable one accepts with this variable.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="$flags -Zsanitizer=address --cfg fuzzing -Cdebug-assertions -Coverflow-checks"
folder=fuzz
if [[ $level -ne 3 ]]; then
    folder=fuzz-level-$level
fi
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target/$folder}
cargo build --release --target x86_64-unknown-linux-gnu "${targets[@]}"
