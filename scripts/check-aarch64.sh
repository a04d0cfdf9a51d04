#!/usr/bin/env bash
# Builds the driver loader, the simulated GPU and libcuda-sim for aarch64 Linux on another architecture,
# and runs their tests, the conformance suite and the example plain_cust under emulation. On an
# aarch64 machine `cargo test --workspace` does all this and more.
#
# Needs the Rust target (rustup target add aarch64-unknown-linux-gnu), a C compiler and C library
# for it and qemu (on Debian gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user), and a kernel
# that starts aarch64 programs with qemu (binfmt_misc; on Debian qemu-user-binfmt), because many tests
# start themselves again.
#
# Not covered: the order of loads in the trampolines on a processor that reorders them (the emulation
# does not), and anything about a GPU.
#
# Usage: scripts/check-aarch64.sh            a few minutes
set -euo pipefail
cd "$(dirname "$0")/.."

triple=aarch64-unknown-linux-gnu
# The tests compile C libraries too.
export CC=${CC:-aarch64-linux-gnu-gcc}
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$CC
export QEMU_LD_PREFIX=${QEMU_LD_PREFIX:-/usr/aarch64-linux-gnu}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}

step() { printf '\n== %s\n' "$*"; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo 'int main(void) { return 7; }' >"$scratch/seven.c"
"$CC" -o "$scratch/seven" "$scratch/seven.c"
code=0
"$scratch/seven" 2>"$scratch/error" || code=$?
[ $code = 7 ] || {
    cat "$scratch/error" >&2
    echo "scripts/check-aarch64.sh: this machine does not start aarch64 programs; see the top of it" >&2
    exit 2
}

# No `runner` in cargo's configuration: with one, rustdoc runs all examples of a crate in one
# process, and some of them need a process without a driver.
packages=(-p cuguard-sys -p cuguard-driver -p cuguard-sim -p cuguard-libcuda-sim)
step "tests"
cargo test --locked --target $triple "${packages[@]}"
step "tests, the simulated GPU compiled in"
cargo test --locked --target $triple "${packages[@]}" --features cuguard-driver/sim
step "conformance"
cargo test --locked --target $triple --test conformance

for profile in dev release; do
    step "plain_cust, profile $profile"
    cargo build --locked --target $triple --profile $profile --example plain_cust
    folder=$profile
    [ $profile = release ] || folder=debug
    program=$CARGO_TARGET_DIR/$triple/$folder/examples/plain_cust
    CUGUARD_DRIVER=sim "$program"
    readelf -dW "$program" >"$scratch/dynamic"
    readelf --dyn-syms -W "$program" >"$scratch/symbols"
    grep NEEDED "$scratch/dynamic"
    if grep -E 'NEEDED.*libcuda' "$scratch/dynamic" ||
        grep -E ' cu[A-Z][A-Za-z0-9_]*(@|$)' "$scratch/symbols"; then
        echo "scripts/check-aarch64.sh: the lines above must not be in $program" >&2
        exit 1
    fi
done

step "all passed"
