#!/usr/bin/env bash
# Mutation tests: applies each patch in tests/mutations to a copy of the repository and expects the
# tests to fail, so that every invariant of the design has a test that checks it.
#
#     scripts/check-mutations.sh            # all of them
#     scripts/check-mutations.sh NAME...    # some, by the name of the patch without .patch
#
# The first lines of a patch say what it breaks and, after `tests:`, which tests run. The copy is in
# the target folder, so that a second run builds little. Exits 1 if the tests pass with a patch.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
-h | --help)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
-*)
    echo "scripts/check-mutations.sh: takes names of patches and --help, got '$1'" >&2
    exit 2
    ;;
esac

for tool in cargo git patch tar; do
    command -v "$tool" >/dev/null || {
        echo "scripts/check-mutations.sh: needs $tool on the PATH" >&2
        exit 1
    }
done

root=$PWD
base=${CARGO_TARGET_DIR:-$root/target}/mutations
copy=$base/copy
log=$base/log
# Random programs with the default seed, on the simulated GPU.
export CARGO_TARGET_DIR=$base/target CUGUARD_DRIVER=sim RUST_BACKTRACE=0
unset CUGUARD_TORTURE_SEED CUGUARD_TORTURE_STEPS LEAK_REPORT
mkdir -p "$copy"

# The working tree, committed or not. Files keep their times, so that little is rebuilt; sources, which
# the last patch may have changed, get new ones.
fresh() {
    find "$copy" -mindepth 1 -delete
    git ls-files -z --cached --others --exclude-standard |
        tar --null --files-from=- --ignore-failed-read -cf - 2>/dev/null | tar -xf - -C "$copy"
    find "$copy/src" "$copy/crates" -name '*.rs' -exec touch {} +
}

# Runs each `-p PACKAGE --test NAME` of the list. Cargo's exit status, with the output in the log.
run() {
    local words=$1 tests
    IFS=';' read -ra tests <<<"$words"
    for one in "${tests[@]}"; do
        # shellcheck disable=SC2086
        (cd "$copy" && timeout 600 cargo test --quiet $one) >>"$log" 2>&1 || return 1
    done
}

build() {
    local tests
    IFS=';' read -ra tests <<<"$1"
    for one in "${tests[@]}"; do
        # shellcheck disable=SC2086
        (cd "$copy" && cargo test --quiet --no-run $one) >>"$log" 2>&1 || return 1
    done
}

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for patch in tests/mutations/*.patch; do
        names+=("$(basename "$patch" .patch)")
    done
fi

unnoticed=0
for name in "${names[@]}"; do
    patch=$root/tests/mutations/$name.patch
    [ -f "$patch" ] || {
        echo "scripts/check-mutations.sh: there is no $patch" >&2
        exit 2
    }
    tests=$(sed -n 's/^tests: *//p' "$patch")
    : >"$log"
    fresh
    # Tests that fail without the patch show nothing.
    run "$tests" || {
        echo "NOT RUN  $name: its tests fail without it; see $log" >&2
        exit 1
    }
    : >"$log"
    (cd "$copy" && patch --quiet --forward -p1 <"$patch") || {
        echo "NOT RUN  $name: the patch does not apply" >&2
        exit 1
    }
    build "$tests" || {
        echo "NOT RUN  $name: it does not compile; see $log" >&2
        exit 1
    }
    if run "$tests"; then
        echo "MISSED   $name: all tests passed"
        unnoticed=1
    else
        reason=$(grep -m1 -E 'panicked at|FAILED|SIG|AddressSanitizer|cuguard-sim:' "$log" || true)
        echo "caught   $name  (${reason:-see $log})"
    fi
done
exit "$unnoticed"
