#!/usr/bin/env bash
# Builds the crate's documentation anew, without that of its dependencies, and looks for broken links. rustdoc
# prints a link into a crate that it did not document as `[text]`, or as a link to a missing file, and
# does not warn.
#
# Usage: scripts/check-docs.sh            needs cargo and python3
set -euo pipefail
cd "$(dirname "$0")/.."

# Pages of other crates would hide broken links.
folder=${CARGO_TARGET_DIR:-target}/doc
rm -rf "$folder"
cargo doc --quiet --no-deps -p cuguard --features nvrtc,sim
python3 - "$folder" <<'END'
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
            # The list of all items exists once for the crate, and each module links to it.
            if link.startswith("http") or link == "all.html":
                continue
            if not os.path.exists(os.path.join(folder, link)):
                bad.append(f"{where}: {link}")
print("\n".join(bad) if bad else "all links of the documentation resolve")
sys.exit(bool(bad))
END
