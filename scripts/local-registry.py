#!/usr/bin/env python3
"""Makes a registry of cargo in a folder: the packages of this repository as they would be published, and what they depend on.

Usage: scripts/local-registry.py PACKAGES FOLDER

PACKAGES is a folder of `cargo package`, with files of the name NAME-VERSION.crate; what they depend on must have been downloaded
(`cargo fetch --locked`). In a configuration of cargo, `[source.NAME] local-registry = "FOLDER"` names the registry.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def entry(package, checksum):
    """The line of the index about a package."""
    dependencies = []
    for one in package["dependencies"]:
        # `cargo package` leaves it out: a dev-dependency without a version.
        if one["req"] == "*" and "path" in one:
            continue
        renamed = one["rename"] is not None
        dependencies.append(
            {
                "name": one["rename"] if renamed else one["name"],
                "package": one["name"] if renamed else None,
                "req": one["req"],
                "features": one["features"],
                "optional": one["optional"],
                "default_features": one["uses_default_features"],
                "target": one["target"],
                "kind": one["kind"] or "normal",
            }
        )
    return {
        "name": package["name"],
        "vers": package["version"],
        "deps": dependencies,
        "cksum": checksum,
        # The second format of the index, in which features may name others with `dep:` and `?`.
        "v": 2,
        "features": {},
        "features2": package["features"],
        "links": package["links"],
        "rust_version": package["rust_version"],
        "yanked": False,
    }


def index_file(name):
    """Where the index has a package: in folders of its first letters."""
    name = name.lower()
    if len(name) <= 3:
        return Path(str(len(name)), *([name[0]] if len(name) == 3 else []), name)
    return Path(name[:2], name[2:4], name)


def main(packages, folder):
    folder.mkdir(parents=True)
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version=1", "--locked"], check=True, stdout=subprocess.PIPE
    )
    for package in json.loads(metadata.stdout)["packages"]:
        file = f"{package['name']}-{package['version']}.crate"
        if package["source"] is None:
            if package["publish"] == []:
                continue
            archive = packages / file
        elif package["source"] == CRATES_IO:
            archive = next((home / "registry" / "cache").glob(f"*/{file}"), None)
            if archive is None:
                sys.exit(f"{sys.argv[0]}: {file} has not been downloaded; run `cargo fetch --locked`")
        else:
            sys.exit(f"{sys.argv[0]}: {package['id']} is not from crates.io")
        shutil.copy(archive, folder / file)
        line = entry(package, hashlib.sha256(archive.read_bytes()).hexdigest())
        index = folder / "index" / index_file(package["name"])
        index.parent.mkdir(parents=True, exist_ok=True)
        with index.open("a") as lines:
            print(json.dumps(line), file=lines)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
