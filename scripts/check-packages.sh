#!/usr/bin/env bash
# Checks that packages alone suffice: makes a registry of them and of what they depend on in a folder, has `cargo install` install
# the command from it with empty HOME and CARGO_HOME and without the network, and runs `cuguard run` on a C program and the simulated
# GPU. Also checks what is in each package.
#
# Usage: scripts/check-packages.sh            needs cargo, cc, python3; ten minutes with two cores: it is a release build
#
# Uncommitted changes are packaged too.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Kept between runs, but for the packages of this repository: cargo takes a package of a registry as unchanged while its version is.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}/packages")
rm -rf "$target"/package "$target"/target/release/{.fingerprint,build}/cuguard*

fail() {
    echo "scripts/check-packages.sh: $*" >&2
    exit 1
}

echo "== package"
cargo fetch --locked --quiet
# Packages that are not published are left out.
mapfile -t unpublished < <(
    cargo metadata --no-deps --format-version=1 --locked |
        python3 -c 'import json, sys; [print(one["name"]) for one in json.load(sys.stdin)["packages"] if one["publish"] == []]'
)
cargo package --workspace "${unpublished[@]/#/--exclude=}" --locked --allow-dirty --no-verify --quiet --target-dir "$target"

echo "== what is in each package"
for package in "$target"/package/*.crate; do
    name=$(basename "$package" .crate)
    tar -xzf "$package" -C "$scratch"
    for file in README.md LICENSE-APACHE LICENSE-MIT; do
        [[ -s $scratch/$name/$file ]] || fail "$name has no $file"
        # Of a symbolic link that was checked out as a file, the content would be a path.
        [[ $file != LICENSE-* ]] || cmp --quiet "$scratch/$name/$file" "$file" || fail "$name: $file is not that of the repository"
    done
done

echo "== make the registry"
scripts/local-registry.py "$target/package" "$scratch/registry"
mkdir -p "$scratch/home" "$scratch/cargo-home"
cat >"$scratch/cargo-home/config.toml" <<TOML
[source.crates-io]
replace-with = "local"

[source.local]
local-registry = "$scratch/registry"
TOML

# The environment of a new user: only the toolchain is there.
as_user() {
    env -i HOME="$scratch/home" CARGO_HOME="$scratch/cargo-home" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" PATH="$PATH" \
        TMPDIR="${TMPDIR:-/tmp}" "$@"
}

echo "== cargo install"
cd "$scratch/home"
as_user CARGO_TARGET_DIR="$target/target" \
    cargo install cuguard-cli --locked --offline --quiet --root "$scratch/installed"
ls -l "$scratch/installed/bin"

echo "== cuguard run"
cat >"$scratch/inference.c" <<'C'
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static void *driver;

static void call(int code, const char *function) {
    if (code != 0) {
        fprintf(stderr, "%s fails with %d\n", function, code);
        exit(1);
    }
}

__attribute__((noinline)) void load_weights(void) {
    int (*allocate)(unsigned long long *, size_t) = dlsym(driver, "cuMemAlloc_v2");
    unsigned long long address;
    call(allocate(&address, 12 << 20), "cuMemAlloc");
}

int main(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*initialize)(unsigned) = dlsym(driver, "cuInit");
    int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*make_current)(void *) = dlsym(driver, "cuCtxSetCurrent");
    void *context;
    call(initialize(0), "cuInit");
    call(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    call(make_current(context), "cuCtxSetCurrent");
    load_weights();
    puts("done");
    return 0;
}
C
cc -g -O1 -rdynamic -o "$scratch/inference" "$scratch/inference.c" -ldl
code=0
as_user CUGUARD_DRIVER=sim "$scratch/installed/bin/cuguard" run --exitcode 23 -- "$scratch/inference" \
    >"$scratch/output" 2>"$scratch/report" || code=$?
cat "$scratch/output" "$scratch/report"
[[ $code = 23 ]] || fail "the exit code is $code, and not 23"
for line in 'simulated' 'lost 12 MiB in 1 allocation of device memory' 'load_weights '; do
    grep -qF "$line" "$scratch/report" || fail "the report has no line with '$line'"
done
grep -qx 'done' "$scratch/output" || fail "the program's output is missing"
echo "== the packages suffice"
