#!/usr/bin/env bash
# Prints what CHANGELOG.md says about a version.
#
# Usage: scripts/changelog.sh VERSION
set -euo pipefail
usage() {
    sed -n '2,4s/^# \{0,1\}//p' "$0"
}
case "${1:-}" in
-h | --help)
    usage
    exit 0
    ;;
esac
if [[ $# -ne 1 || $1 == -* ]]; then
    usage >&2
    exit 2
fi
version=$1
cd "$(dirname "$0")/.."
text=$(awk -v heading="## [$version]" '/^## / { shown = index($0, heading) == 1; next } shown' CHANGELOG.md)
[[ -n $text ]] || {
    echo "scripts/changelog.sh: CHANGELOG.md has no version $version" >&2
    exit 1
}
printf '%s\n' "$text"
