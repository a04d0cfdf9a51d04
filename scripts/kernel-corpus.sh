#!/usr/bin/env bash
# Compiles the kernels of the corpus, crates/kernels/corpus, and those of the benchmark of crates/ptx. The PTX is committed, so
# that testing needs no compiler.
#
# Usage: scripts/kernel-corpus.sh [MODULE ...]
#
# Needs for all modules: nvcc, NVRTC, and numba-cuda of CUDA 13.0 (PTX 9.0, which drivers since 580 load), clang 19, and rustc
# with rights for unstable features (RUSTC_BOOTSTRAP); ptxas checks each result if it is there. The compilers of CUDA come as
# wheels:
#
#     python3 -m venv tools
#     tools/bin/pip install "numba-cuda[cu13]" "cuda-toolkit[cccl,cudart,nvcc,nvrtc,nvvm]==13.0.*"
#     PYTHON=tools/bin/python scripts/kernel-corpus.sh
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
corpus=crates/kernels/corpus
toolkit=$("$python" -c 'import nvidia; print(list(nvidia.__path__)[0] + "/cu13")')
export PATH="$toolkit/bin:$PATH" LD_LIBRARY_PATH="$toolkit/lib"

# Without comments; the compiler's version is of no interest.
strip() {
    sed -e '/^[[:space:]]*\/\//d' -e 's/[[:space:]]*\/\/.*$//' -e '/^[[:space:]]*$/d' "$1" >"$2"
    rm "$1"
    ! command -v ptxas >/dev/null || ptxas -arch="${3:-sm_90}" -o /dev/null "$2"
}

compile() {
    local name=$1 out=$corpus/$1.ptx new=$corpus/$1.new
    case $name in
    integers | atomics)
        "$python" - "$corpus/$name.cu" "$new" "$toolkit" <<'P'
import ctypes, sys

source, out, toolkit = sys.argv[1:]
nvrtc = ctypes.CDLL(toolkit + "/lib/libnvrtc.so.13")
program, size = ctypes.c_void_p(), ctypes.c_size_t()
text = open(source, "rb").read()
nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None)
options = [b"--gpu-architecture=compute_80", b"--std=c++17"]
result = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
log = ctypes.create_string_buffer(size.value)
nvrtc.nvrtcGetProgramLog(program, log)
if result:
    sys.exit(log.value.decode())
nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
ptx = ctypes.create_string_buffer(size.value)
nvrtc.nvrtcGetPTX(program, ptx)
open(out, "wb").write(ptx.value)
P
        ;;
    numba)
        "$python" - "$corpus/numba.py" "$new" <<'P'
import re, runpy, sys

from numba import cuda

source, out = sys.argv[1:]
module = runpy.run_path(source)
parts = []
for name, signature in module["SIGNATURES"].items():
    ptx, _ = cuda.compile_ptx(module[name], signature, cc=(8, 0))
    mangled = re.search(r"\.entry\s+(\w+)", ptx).group(1)
    ptx = ptx.replace(mangled, name)
    # One module of all: the header once, variables under names of their own.
    header, body = re.split(r"(?m)^(?=\.(?:visible|extern|weak|global|func|const))", ptx, maxsplit=1)
    ptx = re.sub(r"(?m)^\.(?:common|weak) \.global.*\n", "", body)
    for variable in set(re.findall(r"(?m)^\.(?:extern )?(?:global|shared|const)\s.*?\s([\w$]+)(?:\[\d*\])?\s*[;=]", ptx)):
        ptx = ptx.replace(variable, f"{name}_{len(parts)}_{variable}")
    parts.append(ptx)
open(out, "w").write(re.sub(r"(?m)^\.common.*\n", "", header) + "\n".join(parts))
P
        ;;
    clang)
        clang-19 -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 -nocudainc -nocudalib -O2 -S -o "$new" -Xclang -target-feature \
            -Xclang +ptx78 "$corpus/clang.cu" -Wno-unknown-cuda-version
        ;;
    rust)
        RUSTC_BOOTSTRAP=1 rustc --edition 2024 --target nvptx64-nvidia-cuda --crate-type lib --emit asm -C opt-level=2 \
            -C target-cpu=sm_80 -o "$new" "$corpus/rust.rs"
        ;;
    *) nvcc --ptx -O2 -std=c++17 -arch=compute_90 -o "$new" "$corpus/$name.cu" ;;
    esac
    strip "$new" "$out"
}

if [ $# -eq 0 ]; then
    for source in "$corpus"/*.{cu,py,rs}; do
        name=$(basename "$source")
        set -- "$@" "${name%.*}"
    done
    for source in crates/ptx/benches/*.cu; do
        nvcc --ptx -O2 -std=c++17 -arch=compute_75 -o "${source%.cu}.new" "$source"
        strip "${source%.cu}.new" "${source%.cu}.ptx" sm_75
    done
fi
for name in "$@"; do
    echo "$name"
    compile "$name"
done
