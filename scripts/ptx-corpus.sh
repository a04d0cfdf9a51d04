#!/usr/bin/env bash
# Makes the PTX of the CUDA C++ kernels in crates/ptx: those of its tests and of its benchmark. Needs nvcc 12 or newer, of a
# toolkit or of NVIDIA's wheels; the results are committed, so that testing does not.
#
# Usage: scripts/ptx-corpus.sh
set -euo pipefail
cd "$(dirname "$0")/../crates/ptx"
command -v nvcc >/dev/null || { echo "scripts/ptx-corpus.sh: nvcc is not on the PATH" >&2; exit 1; }

for source in tests/corpus/*.cu benches/*.cu; do
    arch=compute_90
    [[ $source != benches/* ]] || arch=compute_75
    nvcc --ptx -O2 -std=c++17 -arch="$arch" -o "${source%.cu}.ptx.new" "$source"
    # Without comments; the compiler's version is of no interest.
    sed -e '/^\/\//d' -e '/^$/d' "${source%.cu}.ptx.new" >"${source%.cu}.ptx"
    rm "${source%.cu}.ptx.new"
    ! command -v ptxas >/dev/null || ptxas -arch="${arch/compute/sm}" -o /dev/null "${source%.cu}.ptx"
done
