#!/usr/bin/env bash
# Checks the manual pages and completions that the command writes with the programs that read them.
#
# Usage: scripts/check-manual.sh            needs cargo, groff, bash, zsh and fish
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cargo build --quiet --locked -p cuguard-cli
cuguard=${CARGO_TARGET_DIR:-target}/debug/cuguard

"$cuguard" man "$scratch/man1"
for page in "$scratch"/man1/*.1; do
    groff -man -ww -Tutf8 "$page" >"$scratch/text" 2>"$scratch/warnings"
    if [[ -s $scratch/warnings || ! -s $scratch/text ]]; then
        echo "scripts/check-manual.sh: $(basename "$page"):" >&2
        cat "$scratch/warnings" >&2
        exit 1
    fi
done
for shell in bash zsh fish; do
    "$cuguard" completions "$shell" >"$scratch/completions.$shell"
    "$shell" -n "$scratch/completions.$shell"
done
echo "$(find "$scratch/man1" -name '*.1' | wc -l) manual pages, completions of 3 shells"
