#!/usr/bin/env bash
# Builds programs on the shared CUDA runtimes 11 and 12, which PyPI has, without a CUDA toolkit:
#
#     crates/audit/card/old-runtimes.sh FOLDER
#     crates/audit/card/run.py cuguard $(sed 's/^/--binary /' FOLDER/programs)
#
# FOLDER/programs has one line NAME=PATH for each program, with paths relative to FOLDER's parent. Needs g++, pip and unzip.
set -euo pipefail
if [ $# -ne 1 ] || [ "$1" = --help ] || [ "$1" = -h ]; then
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    [ $# -eq 1 ] && exit 0 || exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
out=$1
mkdir -p "$out"
: >"$out/programs"

# Programs without kernels: those need nvcc.
programs="arrays.cu exception.cpp graph_memory.cu growth.cu managed.cu per_thread_stream.cu pinned.cu pitched.cu pool.cu reachable_global.cu reachable_heap.cpp threads.cu"

# The runtime's headers include some of the compiler's.
for release in 11==11.8.89 12==12.4.127; do
    version=${release%%==*}
    folder=$out/$version
    mkdir -p "$folder"
    python3 -m pip download --quiet --no-deps --dest "$folder" "nvidia-cuda-runtime-cu$release" "nvidia-cuda-nvcc-cu$version"
    for wheel in "$folder"/*.whl; do
        unzip -qo "$wheel" -d "$folder/wheel"
    done
    root=$folder/wheel/nvidia/cuda_runtime
    library=$(cd "$root/lib" && ls libcudart.so.*)
    cp "$root/lib/$library" "$folder/"
    for source in $programs; do
        name=${source%.*}
        flags=()
        [ "$name" = per_thread_stream ] && flags=(-DCUDA_API_PER_THREAD_DEFAULT_STREAM)
        g++ -std=c++20 -g -O1 -x c++ "${flags[@]}" -I"$root/include" -I"$folder/wheel/nvidia/cuda_nvcc/include" -o "$folder/$name" "$here/programs/$source" \
            -x none -L"$folder" "-l:$library" '-Wl,-rpath=$ORIGIN' -lpthread
        echo "${name}_$version=$(basename "$out")/$version/$name" >>"$out/programs"
    done
    rm -rf "$folder"/wheel "$folder"/*.whl
done
