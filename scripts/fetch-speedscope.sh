#!/usr/bin/env bash
# Fetches the release of speedscope that the tests open profiles in, unless it is there, and checks what it got:
#   export CUGUARD_SPEEDSCOPE=$(scripts/fetch-speedscope.sh target/speedscope)
# Prints the folder of its page. Exit code 1: it cannot be fetched; the tests then print that they were not run.
set -euo pipefail
version=1.25.0
hash=2831f1e0d26df914b477e522d78b8485511495a6af81a0b88158f8b48f9e0d03
folder=${1:?"usage: scripts/fetch-speedscope.sh FOLDER"}

page=$folder/$version/package/dist/release
if [[ ! -f $page/index.html ]]; then
    archive=$(mktemp)
    trap 'rm -f "$archive"' EXIT
    curl -fsSL --max-time 60 -o "$archive" "https://registry.npmjs.org/speedscope/-/speedscope-$version.tgz" || exit 1
    echo "$hash  $archive" | sha256sum --check --quiet >&2 || exit 1
    mkdir -p "$folder/$version"
    tar -xzf "$archive" -C "$folder/$version"
fi
realpath "$page"
