#!/usr/bin/env bash
# Prints what CHANGELOG.md says about a version.
#
# Usage: scripts/changelog.sh VERSION
set -euo pipefail
version=${1:?"usage: scripts/changelog.sh VERSION"}
cd "$(dirname "$0")/.."
text=$(awk -v heading="## [$version]" '/^## / { shown = index($0, heading) == 1; next } shown' CHANGELOG.md)
[[ -n $text ]] || {
    echo "scripts/changelog.sh: CHANGELOG.md has no version $version" >&2
    exit 1
}
printf '%s\n' "$text"
