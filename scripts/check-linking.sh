#!/usr/bin/env bash
# Checks that a program or shared library built on cust and cuguard does not depend on libcuda: no
# NEEDED entry, and no driver function among its dynamic symbols. In every combination of
#
#   linker     the compiler's default (lld from Rust 1.90 on), and bfd
#   profile    debug, release
#   libcuda    none in the linker's path; one that defines everything, found through cust_raw's
#              build script (CUDA_LIBRARY_PATH); the same, put before all other folders (-L)
#   artefact   the example plain_cust; the same with all its symbols exported; a program and a
#              cdylib that only mention cuguard. All are in one project outside the workspace, as
#              users build them
#
# The project has C code that calls functions which cust_raw does not declare. At the end C code that
# calls a function which is in no header must fail to link and be named; the same program without cuguard
# must need libcuda, or the checks are blind; and cargo must refuse a program with two versions of the
# driver loader, which would fill two tables.
#
# Usage: scripts/check-linking.sh            needs cargo, cc, readelf; a few minutes
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
target=${CARGO_TARGET_DIR:-$repository/target}/linking
failures=0
checks=0

fail() {
    echo "FAILED  $*"
    failures=$((failures + 1))
}

# A libcuda.so with the driver's soname and all functions.
make_libcuda() {
    mkdir -p "$scratch/cuda/lib64" "$scratch/no-cuda/lib64"
    sed -n 's/^\(cu[A-Za-z0-9_]*\) | .*/int \1(void) { return 34; }/p' \
        crates/sys/list/functions.txt >"$scratch/libcuda.c"
    [ "$(wc -l <"$scratch/libcuda.c")" -ge 720 ] || {
        echo "the names could not be read from crates/sys/list/functions.txt" >&2
        exit 2
    }
    cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$scratch/cuda/lib64/libcuda.so" \
        "$scratch/libcuda.c"
}

# A shared library and a program that use cust.
make_project() {
    mkdir -p "$scratch/project/src"
    cp Cargo.lock "$scratch/project/"
    cp examples/plain_cust.rs "$scratch/project/src/"
    cat >"$scratch/project/Cargo.toml" <<TOML
[package]
name = "linked"
version = "0.0.0"
edition = "2024"

[lib]
crate-type = ["cdylib"]

[[bin]]
name = "program"
path = "src/lib.rs"

[[bin]]
name = "plain_cust"
path = "src/plain_cust.rs"

[dependencies]
cuguard = { path = "$repository" }
cust = "0.3.2"

[workspace]
TOML
    cat >"$scratch/project/src/lib.rs" <<'RUST'
use cuguard as _;

#[unsafe(no_mangle)]
pub extern "C" fn linked_devices() -> i32 {
    match cust::init(cust::CudaFlags::empty()).and_then(|()| cust::device::Device::num_devices()) {
        Ok(devices) => devices as i32,
        Err(_) => -1,
    }
}

#[allow(dead_code)]
fn main() {
    std::process::exit(linked_devices().abs());
}
RUST
}

build_project() {
    # Links again: cargo does not know what is in the library path.
    touch "$scratch"/project/src/*.rs
    (cd "$scratch/project" && CARGO_TARGET_DIR=$target cargo rustc -q "$@")
}

# check NAME FILE: nothing of libcuda in the file's dynamic section and dynamic symbols.
check() {
    local name=$1 file=$2 found
    checks=$((checks + 1))
    if found=$(readelf -dW "$file" | grep -E 'NEEDED.*libcuda'); then
        fail "$name: $found"
        return
    fi
    if found=$(readelf --dyn-syms -W "$file" | grep -E ' cu[A-Z][A-Za-z0-9_]*(@|$)'); then
        fail "$name: driver functions among the dynamic symbols: $(wc -l <<<"$found")"
        return
    fi
    echo "ok      $name"
}

# starts NAME FILE: the program starts without a driver, prints why it fails, and does not crash.
starts() {
    local name=$1 file=$2 output code=0
    output=$(CUGUARD_DRIVER=/nonexistent/libcuda.so.1 "$file" 2>&1) || code=$?
    case $code,$output in
        1,*"cannot open the driver library /nonexistent/libcuda.so.1"*) ;;
        *) fail "$name: exit code $code, output: $output" ;;
    esac
}

make_libcuda
make_project

# Debug information has no part in what is checked.
export CARGO_PROFILE_DEV_DEBUG=none
# One path with changing content: another path would compile cust_raw and all that is built on it again.
export CUDA_LIBRARY_PATH=$scratch/current
for profile in debug release; do
    flag=()
    [ $profile = debug ] || flag=(--release)
    for libcuda in none build-script first; do
        search=()
        content=cuda
        case $libcuda in
            none) content=no-cuda ;;
            first) search=(-L "native=$scratch/cuda/lib64") ;;
        esac
        ln -sfn "$content" "$CUDA_LIBRARY_PATH"
        for linker in default bfd; do
            link=()
            [ $linker = default ] || link=(-C "link-arg=-fuse-ld=$linker")
            name="$profile, libcuda $libcuda, linker $linker"
            arguments=("${link[@]}" "${search[@]}")

            file=$target/$profile/plain_cust
            build_project "${flag[@]}" --bin plain_cust -- "${arguments[@]}"
            check "$name: program" "$file"
            starts "$name: program" "$file"

            build_project "${flag[@]}" --bin plain_cust -- "${arguments[@]}" -C link-arg=-rdynamic
            check "$name: program that exports its symbols" "$file"
            starts "$name: program that exports its symbols" "$file"

            build_project "${flag[@]}" --lib -- "${arguments[@]}"
            check "$name: cdylib" "$target/$profile/liblinked.so"
            build_project "${flag[@]}" --bin program -- "${arguments[@]}"
            check "$name: program that mentions cuguard" "$target/$profile/program"
            echo "        linked by: $(readelf -p .comment "$file" | grep -oE 'Linker: .*' || echo "GNU ld")"
        done
    done
done

# C code that needs a function which neither cuguard nor the empty libcuda.a defines.
cat >"$scratch/secret.c" <<'C'
int cuInNoHeader(void);
__attribute__((constructor)) static void start(void) { cuInNoHeader(); }
C
cc -fPIC -c -o "$scratch/secret.o" "$scratch/secret.c"
ln -sfn no-cuda "$CUDA_LIBRARY_PATH"
if output=$(build_project --bin program -- \
    -C "link-arg=$scratch/secret.o" 2>&1); then
    fail "a program that needs a function in no header links"
elif grep -qE 'undefined (symbol|reference).*cuInNoHeader' <<<"$output"; then
    echo "ok      a function that is in no header is named by the linker"
else
    fail "a function that is in no header: $output"
fi

# Without the driver loader the linker takes the libcuda in its path.
sed -i '/^use cuguard/d' "$scratch/project/src/lib.rs"
build_project --bin program -- -L "native=$scratch/cuda/lib64"
if readelf -dW "$target/debug/program" | grep -qE 'NEEDED.*libcuda'; then
    echo "ok      the same program without cuguard needs libcuda"
else
    fail "a program without cuguard does not need libcuda: the checks above are blind"
fi

# The same program with a second version of the driver loader.
mkdir "$scratch/next"
cp -r Cargo.toml Cargo.lock crates src tests benches examples kernels "$scratch/next/"
sed -i 's/^version = "[0-9.]*"$/version = "99.0.0"/' "$scratch/next/Cargo.toml"
sed -i 's/version = "[0-9.]*" }$/version = "99.0.0" }/' "$scratch/next/Cargo.toml"
sed -i "/^cust = /a other = { package = \"cuguard-driver\", path = \"$scratch/next/crates/driver\" }" \
    "$scratch/project/Cargo.toml"
if output=$(cd "$scratch/project" && cargo metadata --offline --format-version 1 2>&1 >/dev/null); then
    fail "cargo accepts two versions of cuguard-driver in one program"
elif grep -q 'links to the native library `cuguard-driver`' <<<"$output"; then
    echo "ok      cargo refuses two versions of the driver loader in one program"
else
    fail "two versions of cuguard-driver: $output"
fi

echo "$checks checked, $failures failed"
[ $failures = 0 ]
