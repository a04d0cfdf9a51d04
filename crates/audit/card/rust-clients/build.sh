#!/usr/bin/env bash
# Builds the two programs on a machine without CUDA: cust links with a libcuda.so that has the driver's name and
# functions that only fail. Prints the paths of the programs.
#
# Usage: crates/audit/card/rust-clients/build.sh
set -euo pipefail
cd "$(dirname "$0")"
list=$PWD/../../../sys/list/functions.txt
target=${CARGO_TARGET_DIR:-$PWD/target}
stub=$target/stub-cuda
mkdir -p "$stub/lib64"
sed -n 's/^\(cu[A-Za-z0-9_]*\) | .*/int \1(void) { return 34; }/p' "$list" >"$stub/libcuda.c"
cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$stub/lib64/libcuda.so" "$stub/libcuda.c"
# Not the CUDA_LIBRARY_PATH of the repository, which is an empty folder.
CUDA_LIBRARY_PATH=$stub RUSTFLAGS="-L $stub/lib64" cargo build --release --target-dir "$target" --quiet
echo "$target/release/cudarc-client"
echo "$target/release/cust-client"
