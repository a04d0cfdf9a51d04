#!/usr/bin/env bash
# Builds the crate's documentation anew, without that of its dependencies, and looks for broken links. rustdoc
# prints a link into a crate that it did not document as `[text]`, or as a link to a missing file, and
# does not warn.
#
# Usage: scripts/check-docs.sh            needs cargo and python3
set -euo pipefail
cd "$(dirname "$0")/.."

# Pages of other crates would hide broken links.
folder=${CARGO_TARGET_DIR:-target}/doc
rm -rf "$folder"
cargo doc --quiet --no-deps -p cuguard --features nvrtc,sim

if grep -rnoE --include='*.html' '\[<code>[^]]*</code>\]' "$folder/cuguard"; then
    echo "scripts/check-docs.sh: these links were not resolved" >&2
    exit 1
fi
forward() {
    printf '<!DOCTYPE html>\n<title>cuguard</title>\n<meta http-equiv="refresh" content="0; url=%s">\n<a href="%s">cuguard</a>\n' "$1" "$1"
}
# rustdoc's pages lead to these two kinds of files and do not have them: the first page of all crates, and the list of all
# items in modules that are crates of their own.
forward cuguard/index.html >"$folder/index.html"
grep -rl --include=index.html 'href="all.html"' "$folder/cuguard" | while read -r page; do
    list=$(dirname "$page")/all.html
    [[ -e $list ]] || forward "$(realpath --relative-to="$(dirname "$page")" "$folder/cuguard")/all.html" >"$list"
done
scripts/check-links.py "$folder"
