#!/usr/bin/env bash
# Makes the pages of docs/gallery. With a folder of recordings, which crates/audit/card/recordings/record.py makes on a
# machine with a GPU, also those of real runs, and from them docs/pictures, which the README shows:
#
#     scripts/gallery.sh [FOLDER]
#
# Needs cargo, and chromium for the pictures.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
-h | --help)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
mkdir -p docs/gallery docs/pictures
cargo run --quiet -p cuguard-view --example gallery -- docs/gallery
[ $# -gt 0 ] || exit 0

browser=$(command -v chromium || command -v google-chrome) || {
    echo "scripts/gallery.sh: needs chromium for the pictures (Debian: apt-get install chromium)" >&2
    exit 1
}
report() {
    local page=$1
    shift
    cargo run --quiet --release -p cuguard-cli -- report "$@" --html "docs/gallery/$page" >/dev/null
}
report h200-training.html "$1/train-no-cache.cgr"
report h200-fragmentation.html "$1/fragmentation.cgr"
report h200-ranks.html "$1/rank-0.cgr" "$1/rank-1.cgr"

profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT
# picture NAME PAGE HEIGHT WHAT: the part of the address behind # says what is shown.
picture() {
    "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$profile" --window-size="1200,$3" \
        --virtual-time-budget=5000 --screenshot="docs/pictures/$1" "file://$PWD/docs/gallery/$2#$4" 2>/dev/null
    echo "docs/pictures/$1: $(wc -c <"docs/pictures/$1") bytes"
}
picture page.png h200-training.html 1120 "scheme=light"
picture map.png h200-fragmentation.html 560 "scheme=dark&view=map&at=oom&only=moment"
picture flame.png h200-training.html 640 "scheme=light&view=flame&only=moment"
