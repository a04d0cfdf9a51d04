#!/usr/bin/env bash
# Runs the tests of the workspace N times beside busy loops, one per core, and prints failures by name:
#
#     scripts/soak.sh 10                                          # all tests
#     scripts/soak.sh 200 -p cuguard-audit --test all ends::      # arguments of `cargo test` select some
#
# The output of each round is in target/soak/N.log. Exit status 0 if no test failed in any round.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
-h | --help)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
'' | *[!0-9]* | 0*)
    echo "scripts/soak.sh: the first argument is how many rounds to run, a number from 1; got '${1:-}'" >&2
    exit 2
    ;;
esac
rounds=$1
shift
[ $# -gt 0 ] || set -- --workspace

# Built before anything is busy.
cargo test "$@" --no-run --quiet

logs=target/soak
rm -rf "$logs"
mkdir -p "$logs"
busy=()
for _ in $(seq "$(nproc)"); do
    (while :; do :; done) &
    busy+=($!)
done
trap 'kill "${busy[@]}" 2>/dev/null' EXIT

failed=0
for round in $(seq "$rounds"); do
    log=$logs/$round.log
    begin=$SECONDS
    if cargo test "$@" --no-fail-fast >"$log" 2>&1; then
        result=passed
    else
        result=FAILED
        failed=$((failed + 1))
    fi
    printf 'round %d: %s, %d s, %s\n' "$round" "$result" $((SECONDS - begin)) "$log"
    grep -q '^test .* \.\.\. ' "$log" || {
        echo "scripts/soak.sh: no test is selected by: $*" >&2
        exit 2
    }
done

if [ "$failed" -gt 0 ]; then
    printf '\nfailures, with how often:\n'
    # A test that fails has a section `---- NAME stdout ----`; a process that ends otherwise has none.
    sed -nE 's/^---- (.*) stdout ----$/\1/p; s/^---- (.*) ----$/\1/p; s/^FAILED (module .*)$/\1/p' "$logs"/*.log |
        sed 's/ stdout$//' | sort | uniq -c | sort -rn
fi
printf '%d of %d rounds passed\n' $((rounds - failed)) "$rounds"
[ "$failed" -eq 0 ]
