#!/usr/bin/env bash
# Builds the crate's documentation without that of its dependencies, as `cargo doc --no-deps` does, and
# looks for links that do not resolve: rustdoc prints those to crates that it did not document as they
# stand in the source, `[like this]`, or as links to nothing, and warns of neither.
#
# Usage: scripts/check-docs.sh            needs cargo and python3
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
CARGO_TARGET_DIR=$folder cargo doc --quiet --no-deps -p cuguard --features sim
python3 - "$folder/doc" <<'END'
import os, re, sys

root, bad = sys.argv[1], []
for folder, _, files in os.walk(os.path.join(root, "cuguard")):
    for name in filter(lambda name: name.endswith(".html"), files):
        path = os.path.join(folder, name)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        where = os.path.relpath(path, root)
        bad += [f"{where}: {link}" for link in re.findall(r"\[<code>.*?</code>\]", text)]
        for link in re.findall(r'<a [^>]*href="([^"#]+)', text):
            # The list of all items is made for the crate alone, and linked from each module.
            if link.startswith("http") or link == "all.html":
                continue
            if not os.path.exists(os.path.join(folder, link)):
                bad.append(f"{where}: {link}")
print("\n".join(bad) if bad else "all links of the documentation resolve")
sys.exit(bool(bad))
END
