#!/usr/bin/env bash
# Builds the target allocation_sequence for many runs: AddressSanitizer as with cargo-fuzz, but one
# counter a function instead of one for each edge.
#
#     fuzz/build-fast.sh      # target/fast/x86_64-unknown-linux-gnu/release/allocation_sequence
set -euo pipefail
cd "$(dirname "$0")"

case "${1:-}" in
-h | --help)
    sed -n '2,5s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
"") ;;
*)
    echo "fuzz/build-fast.sh: takes no arguments but --help, got '$1'" >&2
    exit 2
    ;;
esac

coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=1"
coverage+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
coverage+=" -Cllvm-args=-sanitizer-coverage-pc-table"
export RUSTFLAGS="$coverage -Zsanitizer=address --cfg fuzzing -Cdebug-assertions -Coverflow-checks"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target/fast}
cargo +nightly build --release --target x86_64-unknown-linux-gnu --bin allocation_sequence
