#!/usr/bin/env bash
# Gathers tests, examples and benchmarks, with all that they need, into the folder `bundle`, for a
# machine that has a GPU and no Rust toolchain:
#
#     scripts/bundle.sh                 # here
#     rsync -a bundle/ gpu-machine:b/   # or however files travel
#     ssh gpu-machine b/run             # there; `b/run --help` says more
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
-h | --help)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
"") ;;
*)
    echo "scripts/bundle.sh: takes no arguments but --help, got '$1'" >&2
    exit 2
    ;;
esac

limit_mib=60
out=bundle
rm -rf "$out"
mkdir -p "$out/tests" "$out/examples" "$out/benches"

# One line `kind name file` for each program that cargo built, from its messages.
programs() {
    cargo "$@" --message-format=json | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("reason") != "compiler-artifact" or not message.get("executable"):
        continue
    target = message["target"]
    kind = target["kind"][0]
    package = message["package_id"].split("#")[0].rsplit("/", 1)[-1]
    package = "" if package.startswith("cuguard") or kind != "lib" else package
    print(kind, target["name"], message["executable"], message["manifest_path"])
'
}

# Symbols stay, for backtraces; debug information is packed.
pack() {
    objcopy --compress-debug-sections=zlib "$1" "$2" 2>/dev/null || cp "$1" "$2"
}

while read -r kind name file manifest; do
    package=$(basename "$(dirname "$manifest")")
    case "$kind" in
    example) pack "$file" "$out/examples/$name" ;;
    test) pack "$file" "$out/tests/$name" ;;
    lib | bin) pack "$file" "$out/tests/unit-$package-$name" ;;
    esac
done < <(programs test --workspace --no-run)

while read -r kind name file _; do
    [ "$kind" = bench ] && pack "$file" "$out/benches/$name"
done < <(programs bench --workspace --no-run)

# What tests look for beside themselves.
find target/debug -maxdepth 1 -name 'libcuda_sim.so' -exec cp {} "$out/tests/" \;
cp scripts/bundle-run "$out/run"
chmod +x "$out/run"
git describe --always --dirty >"$out/VERSION" 2>/dev/null || echo unknown >"$out/VERSION"

size_mib=$(du -sm "$out" | cut -f1)
printf '%s: %s programs, %s MiB\n' "$out" "$(find "$out" -mindepth 2 -type f | wc -l)" "$size_mib"
if [ "$size_mib" -ge "$limit_mib" ]; then
    echo "scripts/bundle.sh: larger than $limit_mib MiB" >&2
    exit 1
fi
