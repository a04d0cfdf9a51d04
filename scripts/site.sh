#!/usr/bin/env bash
# Builds the documentation as a site: the documents in docs by mdBook, with search, and the API by rustdoc. Then checks all links.
#
# Usage: scripts/site.sh [FOLDER]        [default: target/site]
#
# FOLDER is replaced. Needs cargo, python3 and mdbook 0.5 (`cargo install mdbook --locked`, or a finished one from its releases).
set -euo pipefail

case "${1:-}" in
-h | --help)
    sed -n '2,6s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
-*)
    echo "scripts/site.sh: $1 is no option; see --help" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:-target/site}")
if [[ -e $folder && ! -e $folder/.nojekyll ]]; then
    echo "scripts/site.sh: $folder exists and is no site of this script" >&2
    exit 2
fi
command -v mdbook >/dev/null || {
    echo "scripts/site.sh: needs mdbook: cargo install mdbook --locked" >&2
    exit 1
}

scripts/guide.py --check
scripts/check-docs.sh
api=${CARGO_TARGET_DIR:-target}/doc

# A copy of the documents, whose chapters have links to the API.
book=$(mktemp -d)
trap 'rm -rf "$book"' EXIT
cp -r docs "$book"
scripts/guide.py --site "$api" "$book/docs"

rm -rf "$folder"
mdbook build "$book/docs" --dest-dir "$folder"
cp -r "$api" "$folder/api"
# For hosts that would leave out files whose names begin with an underscore.
touch "$folder/.nojekyll"
scripts/check-links.py "$folder"
echo "the site: $folder/index.html"
