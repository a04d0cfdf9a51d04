#!/usr/bin/env bash
# Packs tests, examples, benchmarks and the command into the folder `bundle` and the archive
# `bundle.tar.xz`, for a machine with a GPU and without a Rust toolchain:
#
#     scripts/bundle.sh                                      # here
#     scp bundle.tar.xz gpu-machine:                         # or another way
#     ssh gpu-machine 'tar xJf bundle.tar.xz && bundle/run'  # there; see `bundle/run --help`
#
# `--profile dev` makes only the folder, of what `cargo test` built.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=bundle
case "$*" in
-h | --help)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
"") ;;
"--profile dev") profile=dev ;;
*)
    echo "scripts/bundle.sh: takes no arguments but \`--profile dev\` and \`--help\`, got: $*" >&2
    exit 2
    ;;
esac

for tool in cargo python3 objcopy xz; do
    command -v "$tool" >/dev/null || {
        echo "scripts/bundle.sh: needs $tool on the PATH" >&2
        exit 1
    }
done

limit_mib=60
out=bundle
rm -rf "$out"
mkdir -p "$out/tests" "$out/examples" "$out/benches" "$out/bin"

# One line `folder name file` for each program that cargo built, and for each shared library that a
# test looks for beside itself.
built() {
    cargo "$@" --no-run --message-format=json | python3 -c '
import json, os, sys
profile = sys.argv[1]
without_driver = {"conformance_harness"}
folders = {"example": "examples", "test": "tests", "bench": "benches", "bin": "bin"}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("reason") != "compiler-artifact":
        continue
    target = message["target"]
    kind, name = target["kind"][0], target["name"]
    package = os.path.basename(os.path.dirname(message["manifest_path"]))
    # Only an optimised command contains these.
    if profile == "dev" and package in ("audit", "libcuda-sim") and kind == "cdylib":
        for file in message["filenames"]:
            if file.endswith(".so"):
                print("bin", os.path.basename(file), file)
    # Tested without a driver, or with the simulated one and sources that the bundle does not have: of the audit library,
    # the folder `card` is what runs on a GPU. The examples of `view` need files as arguments.
    if package in ("audit", "registry", "sim", "sync", "sys", "testing") or name in without_driver:
        continue
    if package == "view" and kind == "example":
        continue
    if os.path.dirname(message["manifest_path"]) != os.getcwd():
        name = package + "-" + name
    # The command keeps its name; its unit tests are not the command.
    if kind == "bin":
        name = target["name"]
        if message["profile"]["test"]:
            continue
    if message.get("executable") and kind in folders:
        print(folders[kind], name, message["executable"])
    for file in message["filenames"]:
        if kind == "example" and "cdylib" in target["crate_types"] and file.endswith(".so"):
            print("examples", os.path.basename(file), file)
        if kind == "cdylib" and file.endswith(".so"):
            print("tests", os.path.basename(file), file)
' "$profile"
}

# Written to a file first, so that a failed build stops this script.
list=$(mktemp)
trap 'rm -f "$list"' EXIT
built test --profile "$profile" --workspace >"$list"
# Benchmarks are measured with full optimisation, and only started where nothing else is optimised.
benches=bench
[ "$profile" = bundle ] || benches=$profile
built bench --profile "$benches" --workspace --benches | { grep '^benches ' || true; } >>"$list"

# Programs whose reports are checked keep their debug information, which the archive compresses well; the others are
# stripped.
while read -r folder name file; do
    case "$folder/$name" in
    examples/leak_report | examples/context_leak | benches/tracking | tests/all | tests/cli-all)
        how=--decompress-debug-sections
        ;;
    *) how=--strip-all ;;
    esac
    objcopy "$how" "$file" "$out/$folder/$name"
done <"$list"

cp -r crates/audit/card "$out/card"
rm -rf "$out"/card/rust-clients "$out"/card/harness/__pycache__
cp benches/pool/trace.txt.gz "$out/"
cp scripts/bundle-run "$out/run"
chmod +x "$out/run"
git describe --always --dirty >"$out/VERSION" 2>/dev/null || echo unknown >"$out/VERSION"

programs=$(find "$out"/{tests,examples,benches,bin} -type f | wc -l)
if [ "$profile" != bundle ]; then
    # Programs that are not optimised are too large to carry.
    printf '%s: %s programs\n' "$out" "$programs"
    exit
fi
# The programs share much code: a window that holds several of them reduces the size to a third.
tar cf - "$out" | xz -T1 --lzma2=preset=2,dict=192MiB >"$out.tar.xz"

size_mib=$(du -sm "$out.tar.xz" | cut -f1)
printf '%s: %s programs; %s.tar.xz: %s MiB\n' "$out" "$programs" "$out" "$size_mib"
if [ "$size_mib" -ge "$limit_mib" ]; then
    echo "scripts/bundle.sh: larger than $limit_mib MiB" >&2
    exit 1
fi
