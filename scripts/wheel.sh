#!/usr/bin/env bash
# Builds the wheel of the Python package for this processor, with glibc 2.28 or older: one file, which `pip install` takes. What it
# needs (maturin, zig as the linker) goes into a virtual environment in target/wheel-tools. Needs the network the first time.
#
# Usage: scripts/wheel.sh [FOLDER]        [default: target/wheels]
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(realpath -m "${1:-target/wheels}")
tools=target/wheel-tools
if ! "$tools/bin/python3" -c 'import ziglang' 2>/dev/null || [[ ! -x $tools/bin/maturin ]]; then
    python3 -m venv "$tools"
    "$tools/bin/python3" -m pip install --quiet --disable-pip-version-check 'maturin>=1.9,<2' ziglang
fi
tools=$(realpath --no-symlinks "$tools")

# The command's build script runs cargo once more; zig is the linker there too.
cd python
PATH=$tools/bin:$PATH "$tools/bin/maturin" build --release --locked --zig --compatibility manylinux_2_28 --out "$folder"
