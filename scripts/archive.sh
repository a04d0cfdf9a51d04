#!/usr/bin/env bash
# Makes an archive of the command out of a wheel, for a machine without Python and Rust: bin/cuguard, bin/cargo-cuguard, their manual
# pages, completions for shells, README and licences, in one folder. It runs the command, so the wheel must be for this processor.
#
# Usage: scripts/archive.sh WHEEL FOLDER          writes FOLDER/cuguard-VERSION-PROCESSOR-linux.tar.gz
set -euo pipefail
usage() {
    sed -n '2,5s/^# \{0,1\}//p' "$0"
}
case "${1:-}" in
-h | --help)
    usage
    exit 0
    ;;
esac
if [[ $# -ne 2 || $1 == -* ]]; then
    usage >&2
    exit 2
fi
wheel=$(realpath "$1")
folder=$(realpath -m "$2")
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m zipfile -e "$wheel" "$scratch/wheel"
version=$(basename "$wheel" | cut -d - -f 2)
name=cuguard-$version-$(uname -m)-linux
out=$scratch/$name

for program in cuguard cargo-cuguard; do
    install -D -m 755 "$scratch/wheel/cuguard-$version.data/scripts/$program" "$out/bin/$program"
done
"$out/bin/cuguard" man "$out/share/man/man1"
mkdir -p "$out/share/bash-completion/completions" "$out/share/zsh/site-functions" "$out/share/fish/vendor_completions.d"
"$out/bin/cuguard" completions bash >"$out/share/bash-completion/completions/cuguard"
"$out/bin/cuguard" completions zsh >"$out/share/zsh/site-functions/_cuguard"
"$out/bin/cuguard" completions fish >"$out/share/fish/vendor_completions.d/cuguard.fish"
cp crates/cli/README.md LICENSE-APACHE LICENSE-MIT "$out"
chmod -R u+rwX,go+rX,go-w "$out"

mkdir -p "$folder"
tar -czf "$folder/$name.tar.gz" --owner=0 --group=0 --numeric-owner -C "$scratch" "$name"
echo "$folder/$name.tar.gz"
