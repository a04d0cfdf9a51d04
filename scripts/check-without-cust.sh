#!/usr/bin/env bash
# Checks a program that uses cuguard without the feature `cust`, as its user builds it: in a folder outside the repository and without
# CUDA_LIBRARY_PATH. Neither it nor the command `cuguard` has cust or cust_raw among its dependencies; it runs on the simulated GPU.
# With the feature and without a CUDA toolkit, the error says what is missing.
#
# Usage: scripts/check-without-cust.sh            needs cargo
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$repository/target}
unset CUDA_LIBRARY_PATH

fail() {
    echo "scripts/check-without-cust.sh: $*" >&2
    exit 1
}

mkdir -p "$scratch/src"
cp Cargo.lock "$scratch/"
cp examples/without_cust.rs "$scratch/src/main.rs"
cat >"$scratch/Cargo.toml" <<TOML
[package]
name = "without_cust"
version = "0.0.0"
edition = "2024"

[dependencies]
bytemuck = { version = "1.7.3", features = ["derive"] }
cuguard = { path = "$repository", default-features = false, features = ["nvml", "sim"] }
cust_core = { version = "0.1.1", default-features = false }

[workspace]

TOML
# The profiles of the repository, so that what is built for it is not built again.
sed -n '/^\[profile\.dev/,/^$/p' Cargo.toml | sed '/^\[profile.dev.package.cuguard-audit\]/,/^$/d' >>"$scratch/Cargo.toml"
# Cargo reads the configuration of the folder where it runs: not that of the repository, which sets CUDA_LIBRARY_PATH.
cd "$scratch"

# without_cust ARGUMENTS: the dependencies that `cargo tree` lists contain cust_core, and neither cust nor cust_raw.
without_cust() {
    local crates
    crates=$(cargo tree --offline --edges normal,build --prefix none "$@" | cut -d' ' -f1 | sort -u)
    grep -qx cust_core <<<"$crates" || fail "cargo tree $*: no cust_core, so this check is blind"
    ! grep -xE 'cust|cust_raw' <<<"$crates" || fail "cargo tree $*: the crates above are compiled"
}
without_cust
without_cust --manifest-path "$repository/crates/cli/Cargo.toml"
echo "neither cust nor cust_raw is a dependency"

CUGUARD_DRIVER=sim cargo run --quiet --offline

if compgen -G '/usr/local/cuda*/lib64' >/dev/null || [ -d /opt/cuda/lib64 ]; then
    echo "a CUDA toolkit is installed: the error about a missing one is not checked"
    exit
fi
if output=$(cargo check --quiet --offline --manifest-path "$repository/Cargo.toml" -p cuguard-sync --features check-cust 2>&1); then
    fail "the missing CUDA toolkit is no error"
fi
grep -q '^error: cuguard-sync@.*no CUDA toolkit was found' <<<"$output" || fail "$output"
echo "with the feature, the missing CUDA toolkit is an error at the beginning"
