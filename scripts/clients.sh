#!/usr/bin/env bash
# Runs the own tests of programs that use the CUDA driver API, in their newest published versions, against
# libcuda-sim, and prints a table of what passes. Not part of the test suite: it needs the network.
#
#   cudarc       from crates.io: the unit tests with its default features
#   numba-cuda   from PyPI: the tests of its driver layer (numba/cuda/tests/cudadrv)
#   pycuda       from PyPI, built here against libcuda-sim: test/test_driver.py
#
# The compilers of CUDA (nvcc, ptxas, NVRTC, NVVM, nvJitLink) come from NVIDIA's wheels, in the CUDA version of the
# simulated driver; they run on the CPU. cuBLAS, cuRAND and so on are not installed. Kernels of PTX
# run; a test that launches compiled code is counted as such, and runs a second time with CUGUARD_SIM=kernels=skip. How tests are
# classified is in scripts/clients.py.
#
# Usage: scripts/clients.sh [--offline] [--jobs N] [--timeout SECONDS] [cudarc] [numba-cuda] [pycuda]
#   --offline   use what an earlier run fetched
#   --jobs      tests that run at the same time (default: the number of processors)
#   --timeout   seconds that one test may run (default: 120)
#
# Needs cargo, cc, c++ and python3 with venv. Everything is kept in target/clients (or below CARGO_TARGET_DIR);
# results.txt there lists every test, logs/ has the output of those that did not pass. Exits with 1 when a
# test failed that needs neither kernels nor the CUDA runtime, with 2 when it could not run.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
work=$target/clients
offline=
options=()
clients=()

fail() {
    echo "scripts/clients.sh: $*" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
        -h | --help)
            sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p}' "$0"
            exit 0
            ;;
        --offline) offline=yes ;;
        --jobs | --timeout)
            [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "$1 needs a number from 1"
            options+=("$1" "$2")
            shift
            ;;
        cudarc | numba-cuda | pycuda) clients+=("$1") ;;
        *) fail "unknown argument '$1'; see --help" ;;
    esac
    shift
done
[ ${#clients[@]} -gt 0 ] || clients=(cudarc numba-cuda pycuda)

for tool in cargo cc c++ python3; do
    command -v "$tool" >/dev/null || fail "$tool is not installed"
done
python=$work/venv/bin/python

# Without what an earlier run fetched, --offline fails before anything is built.
check_fetched() {
    [ -x "$python" ] || fail "$work/venv is missing; run without --offline first"
    local client
    for client in "${clients[@]}"; do
        case $client in
            cudarc) [ -e "$work/cudarc/Cargo.toml" ] || fail "$work/cudarc is missing; run without --offline first" ;;
            pycuda)
                compgen -G "$work/pycuda-source/pycuda-*.tar.gz" >/dev/null ||
                    fail "$work/pycuda-source is missing; run without --offline first"
                ;;
        esac
    done
}
[ -z "$offline" ] || check_fetched

mkdir -p "$work"
log=$work/build.log
: >"$log"

# step WORDS COMMAND...: runs the command with its output in the log, and shows the end of it on failure.
step() {
    local words=$1
    shift
    echo "$words" >&2
    "$@" >>"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        fail "$words: failed (all of the output: $log)"
    }
}

build_simulation() {
    step "Building libcuda-sim" cargo build --release -p cuguard-libcuda-sim
    mkdir -p "$work/sim"
    # A new file, because a running program may have the old one mapped.
    rm -f "$work/sim/libcuda.so.1"
    cp "$target/release/libcuda_sim.so" "$work/sim/libcuda.so.1"
    ln -sf libcuda.so.1 "$work/sim/libcuda.so"
    version=$(LD_LIBRARY_PATH=$work/sim python3 -c 'import ctypes
version = ctypes.c_int()
assert ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) == 0
print(version.value)') || fail "libcuda-sim does not load"
}

install() {
    "$python" -m pip install --quiet --disable-pip-version-check --upgrade "$@"
}

fetch_python() {
    [ -x "$python" ] || step "Creating a Python environment" python3 -m venv "$work/venv"
    # A driver does not load the PTX of a newer toolkit than its own.
    local major=$((version / 1000)) minor=$((version % 1000 / 10))
    local parts=cccl,cudart,nvcc,nvjitlink,nvrtc,nvvm,profiler
    [ -n "$offline" ] || step "Fetching numba-cuda and the compilers of CUDA $major.$minor from PyPI" \
        install "numba-cuda[cu$major]" "cuda-toolkit[$parts]==$major.$minor.*" \
        pytest cffi filecheck psutil setuptools wheel
    toolkit=$("$python" -c "import nvidia; print(list(nvidia.__path__)[0] + '/cu$major')" 2>>"$log") &&
        [ -e "$toolkit/include/cuda.h" ] || fail "$work/venv has no CUDA headers; run without --offline"
}

fetch_cudarc() {
    local project=$work/fetch-cudarc manifest
    if [ -z "$offline" ]; then
        mkdir -p "$project/src"
        : >"$project/src/lib.rs"
        printf '%s\n' '[package]' 'name = "fetch-cudarc"' 'version = "0.0.0"' 'edition = "2021"' '[workspace]' \
            '[dependencies]' 'cudarc = { version = "*", default-features = false }' >"$project/Cargo.toml"
        step "Fetching cudarc from crates.io" cargo update --manifest-path "$project/Cargo.toml"
        manifest=$(cargo metadata --quiet --format-version 1 --manifest-path "$project/Cargo.toml" 2>>"$log" |
            python3 -c 'import json, sys
print(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "cudarc"))') ||
            fail "cargo metadata failed; see $log"
        rm -rf "$work/cudarc"
        cp -r "$(dirname "$manifest")" "$work/cudarc"
        chmod -R u+w "$work/cudarc"
        echo '[workspace]' >>"$work/cudarc/Cargo.toml"
    fi
}

build_cudarc() {
    # Its features name the CUDA version that the bindings are for.
    step "Building the tests of cudarc for CUDA $version" env "CARGO_TARGET_DIR=$work/cudarc-target" \
        cargo test --manifest-path "$work/cudarc/Cargo.toml" --lib --no-run --features "cuda-$version"
    CARGO_TARGET_DIR=$work/cudarc-target cargo test --manifest-path "$work/cudarc/Cargo.toml" --lib --no-run \
        --features "cuda-$version" --message-format json 2>>"$log" | python3 -c 'import json, sys
print(next(m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")))' >"$work/cudarc-tests"
}

fetch_pycuda() {
    local archive
    if [ -z "$offline" ]; then
        rm -rf "$work/pycuda-source"
        step "Fetching pycuda from PyPI" "$python" -m pip download --disable-pip-version-check --no-deps \
            --no-build-isolation --no-binary pycuda --dest "$work/pycuda-source" pycuda
    fi
    archive=$(ls "$work"/pycuda-source/pycuda-*.tar.gz) || fail "$work/pycuda-source has no archive of pycuda"
    pycuda=$(basename "$archive" .tar.gz)
    # The tests are not in what pip installs.
    rm -rf "$work/pycuda" "$work/$pycuda"
    tar -xzf "$archive" -C "$work"
    mv "$work/$pycuda" "$work/pycuda"
}

build_pycuda() {
    [ "$(cat "$work/pycuda-built" 2>/dev/null)" != "$pycuda" ] || return 0
    cat >"$work/pycuda/siteconf.py" <<PYTHON
CUDA_ROOT = "$toolkit"
CUDA_INC_DIR = ["$toolkit/include"]
CUDADRV_LIB_DIR = ["$work/sim"]
CUDA_ENABLE_CURAND = False
CXXFLAGS = ["-O0", "-w"]
PYTHON
    step "Building $pycuda (minutes)" install --no-build-isolation --force-reinstall --no-cache-dir --no-deps \
        "$work/pycuda"
    step "Fetching what pycuda depends on" install pycuda
    echo "$pycuda" >"$work/pycuda-built"
}

build_simulation
fetch_python
for client in "${clients[@]}"; do
    case $client in
        cudarc) fetch_cudarc; build_cudarc ;;
        pycuda) fetch_pycuda; build_pycuda ;;
    esac
done
exec "$python" scripts/clients.py --work "$work" --toolkit "$toolkit" "${options[@]}" "${clients[@]}"
