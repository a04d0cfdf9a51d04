#!/usr/bin/env bash
# Compiles the whole workspace for aarch64 Linux on another architecture, and runs tests under emulation:
#
#     scripts/check-aarch64.sh            all of it
#     scripts/check-aarch64.sh --build    compiles only: needs no emulator
#     scripts/check-aarch64.sh --run COMMAND…    runs a command that may start aarch64 programs
#
# On an aarch64 machine `cargo test --workspace` does all this and more.
#
# Needs the Rust target (rustup target add aarch64-unknown-linux-gnu), a C and C++ compiler for it, and qemu (on
# Debian and Ubuntu: gcc-aarch64-linux-gnu, g++-aarch64-linux-gnu, qemu-user-static). Nothing is fetched. Many tests start
# programs, so the kernel must start aarch64 programs with qemu. Where it does not (binfmt_misc), the script asks it to in a
# namespace of its own, which needs Linux 6.7 and no privileges.
#
# What an emulator cannot show is listed in docs/aarch64.md.
set -euo pipefail
cd "$(dirname "$0")/.."

triple=aarch64-unknown-linux-gnu
build_only=false
arguments=("$@")
command=()
case "${1:-}" in
-h | --help)
    sed -n '2,15s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
--build) build_only=true ;;
--run)
    shift
    command=("$@")
    [ $# -gt 0 ] || {
        echo "scripts/check-aarch64.sh: --run needs a command" >&2
        exit 2
    }
    ;;
'') ;;
*)
    echo "scripts/check-aarch64.sh: unknown argument '$1'; see --help" >&2
    exit 2
    ;;
esac

fail() {
    printf 'scripts/check-aarch64.sh: %s\n' "$*" >&2
    exit 2
}
step() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }

[ "$(uname -m)" != aarch64 ] || fail "this machine is aarch64: run cargo test --workspace"
[ -d "$(rustc --print target-libdir --target $triple)" ] || fail "no Rust target: rustup target add $triple"
# The tests compile C libraries and programs, too.
export CC=${CC:-aarch64-linux-gnu-gcc} CXX=${CXX:-aarch64-linux-gnu-g++}
command -v "$CC" >/dev/null || fail "no $CC (on Debian and Ubuntu: gcc-aarch64-linux-gnu), or set CC"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$CC
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}

if $build_only; then
    step "everything compiles, without warnings"
    exec cargo clippy --workspace --all-targets --locked --target $triple -- -D warnings
fi

command -v "$CXX" >/dev/null || fail "no $CXX (on Debian and Ubuntu: g++-aarch64-linux-gnu), or set CXX"
# A static one: the dynamic linker of another would print that it cannot preload the libraries that tests preload.
if [ -n "${QEMU:-}" ]; then
    qemu=$(command -v "$QEMU") || fail "QEMU names no program: $QEMU"
else
    qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) ||
        fail "no qemu-aarch64-static (on Debian and Ubuntu: qemu-user-static), or set QEMU"
fi
export QEMU_LD_PREFIX=${QEMU_LD_PREFIX:-/usr/aarch64-linux-gnu}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo 'int main(void) { return 7; }' >"$scratch/seven.c"
"$CC" -o "$scratch/seven" "$scratch/seven.c" || fail "$CC cannot compile a program (on Debian and Ubuntu: libc6-dev-arm64-cross)"
starts() {
    local code=0
    "$scratch/seven" 2>"$scratch/error" || code=$?
    [ $code = 7 ]
}
if ! starts; then
    [ -z "${CUGUARD_AARCH64_INSIDE:-}" ] || {
        cat "$scratch/error" >&2
        fail "the emulator does not start aarch64 programs"
    }
    step "the kernel starts aarch64 programs with $qemu, in a namespace of its own"
    rm -rf "$scratch"
    # An ELF file of 64 bits, little-endian, for machine 183. O: the emulator opens the program; F: it is found in any folder;
    # P: it is told the program's own name.
    export CUGUARD_AARCH64_INSIDE=1
    registration=":aarch64:M::\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00"
    registration+=":\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff"
    registration+=":$qemu:POF"
    # shellcheck disable=SC2016
    exec unshare --user --map-root-user --mount bash -c '
        mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc && printf %s "$0" >/proc/sys/fs/binfmt_misc/register || {
            echo "scripts/check-aarch64.sh: this kernel has no binfmt_misc in namespaces (Linux 6.7);" \
                "have it start aarch64 programs (on Debian and Ubuntu: qemu-user-static)" >&2
            exit 2
        }
        exec "$@"' "$registration" scripts/check-aarch64.sh "${arguments[@]}"
fi

if [ ${#command[@]} -gt 0 ]; then
    "${command[@]}"
    exit
fi

step "everything compiles"
cargo build --workspace --all-targets --locked --target $triple
# Without a `runner` in cargo's configuration: with one, rustdoc runs all examples of a crate in one process, and some of
# them need a process without a driver.
step "tests of the libraries"
cargo test --locked --target $triple -p cuguard-sync -p cuguard-stack -p cuguard-registry -p cuguard-recording -p cuguard-pool \
    -p cuguard-report -p cuguard-sys -p cuguard-driver -p cuguard-ptx -p cuguard-sim -p cuguard-libcuda-sim -- \
    --skip program_time::
step "tests of the driver loader, the simulated GPU compiled in"
cargo test --locked --target $triple -p cuguard-driver --features cuguard-driver/sim
step "conformance"
cargo test --locked --target $triple --test conformance
step "tests of the audit library"
# The emulator has no process_vm_readv, no limit on addresses, and its own memory is in the process that a search looks at.
cargo test --locked --target $triple -p cuguard-audit --lib -- --skip memory_that_is_not_there_is_not_read
cargo test --locked --target $triple -p cuguard-audit --test all -- heap:: --skip a_limit_on_the_address_space

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
        fail "the lines above must not be in $program"
    fi
done

step "all passed"
