#!/usr/bin/env bash
# Makes NAME.ptx from each NAME.cu here. Needs nvcc; the results are committed, so that building
# and testing cuguard does not.
#
# The PTX must load on old drivers, and nvcc writes the newest version it knows. These kernels
# use nothing newer than PTX 6.4 / sm_52, so the two header lines are lowered to that; where a
# ptxas that still knows sm_52 is at hand (CUDA 12 or older), it confirms it.
set -euo pipefail
cd "$(dirname "$0")"
command -v nvcc >/dev/null || { echo "kernels/build.sh: nvcc is not on the PATH" >&2; exit 1; }

# CUDA 13 dropped the architectures below 75; older toolkits reach down to 52.
arch=compute_52
nvcc --list-gpu-arch | grep -qx "$arch" || arch=compute_75

for source in *.cu; do
    name=${source%.cu}
    nvcc --ptx -O2 -arch="$arch" -o "$name.ptx.new" "$source"
    sed -e 's/^\.version .*/.version 6.4/' -e 's/^\.target .*/.target sm_52/' \
        -e '/^\/\//d' -e '/^$/d' "$name.ptx.new" >"$name.ptx"
    rm "$name.ptx.new"
    if ptxas -arch=sm_52 -o /dev/null "$name.ptx" 2>/dev/null; then
        echo "$name.ptx: accepted for sm_52"
    elif ptxas -arch="${arch/compute/sm}" -o /dev/null "$name.ptx"; then
        echo "$name.ptx: accepted for ${arch/compute/sm} (this ptxas does not know sm_52)"
    else
        exit 1
    fi
done
