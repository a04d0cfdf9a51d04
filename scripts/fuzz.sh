#!/usr/bin/env bash
# Fuzzes targets of fuzz/ with AddressSanitizer, each with its seeds, and prints one line for each.
#
#     scripts/fuzz.sh TARGET|all [RUNS]     # 10,000,000 executions of each by default
#
# The corpus is kept in fuzz/corpus/TARGET, an input that fails in fuzz/artifacts/TARGET, the output in fuzz/corpus/TARGET.log.
# Exit code 1: a target crashed, took more than 10 s for one input, or more than its bound or 1 GiB of memory.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

usage() {
    sed -n '2,7s/^# \{0,1\}//p' "../scripts/fuzz.sh"
}

# The longest input in bytes: what keeps ten thousand executions a second within reach.
longest() {
    case $1 in
    allocation_sequence) echo 100 ;;
    cubin | fatbin | recording_file) echo 1024 ;;
    elf_variables | python_frames) echo 1100 ;;
    live_request) echo 80 ;;
    pool_sequence) echo 40 ;;
    ptx) echo 512 ;;
    recording_flips) echo 64 ;;
    report_json) echo 256 ;;
    *) echo 100 ;;
    esac
}

case "${1:-}" in
-h | --help) usage; exit 0 ;;
"") usage >&2; exit 2 ;;
esac
runs=${2:-10000000}
targets=("$1")
if [[ $1 == all ]]; then
    mapfile -t targets < <(basename -s .rs -a fuzz_targets/*.rs)
fi
for target in "${targets[@]}"; do
    if [[ ! -f fuzz_targets/$target.rs ]]; then
        echo "scripts/fuzz.sh: no target is called '$target'; see fuzz/fuzz_targets" >&2
        exit 2
    fi
done
if [[ ! $runs =~ ^[0-9]+$ ]]; then
    echo "scripts/fuzz.sh: '$runs' is not a number of executions" >&2
    exit 2
fi

./build.sh "${targets[@]}"
# Leaks: programs forget guards on purpose, and memory that the driver may still use is leaked by design.
# A small quarantine without stack traces: three times as many executions a second.
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0:malloc_context_size=0:quarantine_size_mb=4:max_malloc_fill_size=0
# Without weights and counts of edges, which take longer than most bodies.
failed=0
for target in "${targets[@]}"; do
    corpus=corpus/$target
    mkdir -p "$corpus" "artifacts/$target"
    if "target/fuzz/x86_64-unknown-linux-gnu/release/$target" -runs="$runs" -max_len="$(longest "$target")" \
        -entropic=0 -use_counters=0 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=512 -detect_leaks=0 -print_funcs=0 -print_final_stats=1 \
        -artifact_prefix="artifacts/$target/" "$corpus" "seeds/$target" >"$corpus.log" 2>&1; then
        state=passed
    else
        state=FAILED
        failed=1
    fi
    stat() { sed -n "s/^stat::$1: *//p" "$corpus.log"; }
    echo "$target: $state, $(stat number_of_executed_units) executions, $(stat average_exec_per_sec) a second, $(stat peak_rss_mb) MiB"
    if [[ $state == FAILED ]]; then
        grep -m 3 -E "panicked|ERROR|SUMMARY" -A 1 "$corpus.log" || tail -n 5 "$corpus.log"
    fi
done
exit $failed
