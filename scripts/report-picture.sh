#!/usr/bin/env bash
# Makes docs/leak-report.svg, the picture in the README, from the output of the example leak_report.
# Needs cargo and python3.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet --example leak_report
{
    echo '$ LEAK_REPORT=1 cargo run --example leak_report'
    CUGUARD_DRIVER=${CUGUARD_DRIVER:-auto} LEAK_REPORT=1,colour=always \
        "${CARGO_TARGET_DIR:-target}"/debug/examples/leak_report 2>&1 >/dev/null |
        grep -v '^cuguard: using the simulated GPU'
} | python3 scripts/ansi-to-svg.py >docs/leak-report.svg
echo "docs/leak-report.svg: $(wc -c <docs/leak-report.svg) bytes"
