#!/usr/bin/env bash
# Makes docs/gallery (finished pages) and docs/pictures (two of them, for the README).
# Needs cargo and chromium. Pages of real runs: gallery.sh FILE.html... uses these instead; the first two are pictured.
set -euo pipefail
cd "$(dirname "$0")/.."

browser=$(command -v chromium || command -v google-chrome) || {
    echo "scripts/gallery.sh: needs chromium for the pictures (Debian: apt-get install chromium)" >&2
    exit 1
}
mkdir -p docs/gallery docs/pictures
if [ $# -gt 0 ]; then
    cp -- "$@" docs/gallery/
    pages=("$@")
else
    cargo run --quiet -p cuguard-view --example gallery -- docs/gallery
    pages=(training.html fragmentation.html)
fi

profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
# picture NAME PAGE HEIGHT WHAT: the part of the address behind # says what is shown.
picture() {
    "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$profile" --window-size="1200,$3" \
        --virtual-time-budget=5000 --screenshot="docs/pictures/$1" "file://$PWD/docs/gallery/$(basename "$2")#$4" 2>/dev/null
    echo "docs/pictures/$1: $(wc -c <"docs/pictures/$1") bytes"
}
picture page.png "${pages[0]}" 1100 "scheme=light"
picture map.png "${pages[1]:-${pages[0]}}" 560 "scheme=dark&view=map&at=oom&only=moment"
picture flame.png "${pages[0]}" 400 "scheme=light&view=flame&only=moment"
