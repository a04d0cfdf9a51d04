#!/usr/bin/env bash
# Prepares a release: everything up to the step that a person must take, whose commands it prints. Writes nothing to the network.
#
#   scripts/release.sh            checks what takes seconds: the working tree, versions, the changelog, the manifests
#   scripts/release.sh --build    then runs `.ci/run` and `scripts/check-packages.sh`, and writes to target/release-VERSION:
#                                 the packages of crates.io, the wheel and an archive of the command for this processor,
#                                 and their checksums
#
# Needs what `.ci/run` needs, and cargo 1.90 or newer for the last step. CONTRIBUTING.md has the whole list.
set -euo pipefail
cd "$(dirname "$0")/.."

build=false
case "$*" in
-h | --help)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
"") ;;
--build) build=true ;;
*)
    echo "scripts/release.sh: takes no arguments but \`--build\` and \`--help\`, got: $*" >&2
    exit 2
    ;;
esac

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
problems=()
problem() { problems+=("$*"); }

[[ -z $(git status --porcelain) ]] || problem "the working tree has changes that are not committed"
# The workflow of a release runs this with the tag.
if tagged=$(git rev-parse --quiet --verify "refs/tags/v$version^{commit}") && [[ $tagged != $(git rev-parse HEAD) ]]; then
    problem "the tag v$version is another commit: raise the version in Cargo.toml"
fi
grep -Eq "^## \[$version\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md ||
    problem "CHANGELOG.md has no heading \`## [$version] - YEAR-MONTH-DAY\`"
if metadata=$(cargo metadata --no-deps --format-version=1 --locked); then
    while read -r line; do
        problem "$line"
    done < <(
        METADATA=$metadata python3 - "$version" <<'END'
import json, os, sys

version = sys.argv[1]
packages = json.loads(os.environ["METADATA"])["packages"]
published = {package["name"] for package in packages if package["publish"] != []}
for package in packages:
    if package["name"] not in published:
        continue
    if package["version"] != version:
        print(f"{package['name']} has version {package['version']}, and not {version}")
    for dependency in package["dependencies"]:
        if "path" not in dependency or dependency["kind"] == "dev":
            continue
        name = dependency["name"]
        if name not in published:
            print(f"{package['name']} depends on {name}, which is not published")
        elif dependency["req"] != f"^{version}":
            print(f"{package['name']} depends on {name} {dependency['req']}, and not {version}")
for key in ("description", "license", "readme", "repository", "rust_version"):
    without = [package["name"] for package in packages if package["name"] in published and not package[key]]
    if without:
        print(f"no `{key.replace('_', '-')}` is in the manifest of {', '.join(without)}")
END
    )
else
    problem "the manifests cannot be read, or Cargo.lock is not up to date"
fi
if [[ ${#problems[@]} != 0 ]]; then
    echo "version $version cannot be released:"
    printf '  - %s\n' "${problems[@]}"
    exit 1
fi
echo "version $version: the working tree, versions, the changelog and the manifests are ready"
if ! $build; then
    echo "next: scripts/release.sh --build"
    exit 0
fi

folder=target/release-$version
.ci/run
scripts/check-packages.sh
rm -rf "$folder"
mkdir -p "$folder/packages"
cp target/packages/package/*.crate "$folder/packages"
scripts/wheel.sh "$folder"
scripts/archive.sh "$folder"/*.whl "$folder"
(cd "$folder" && sha256sum packages/*.crate ./*.whl ./*.tar.gz >SHA256SUMS)
# A check or a build that changes a file in the repository is a mistake, and the tag would not have the change.
[[ -z $(git status --porcelain) ]] || {
    echo "scripts/release.sh: the checks have changed files: see git status" >&2
    exit 1
}

cat <<END

$folder has:
$(cd "$folder" && sed 's/^[0-9a-f]* [ *]/  /' SHA256SUMS)

What is left for a person, at commit $(git rev-parse --short HEAD):

  git tag --annotate v$version --message "cuguard $version" && git push origin v$version

The tag starts .github/workflows/release.yml: wheels and archives for both processors, and a draft of the release. Its last two
jobs, PyPI and crates.io, wait for an approval of the environment \`release\`. To publish without hosted CI, run these instead:

  cargo publish --workspace --locked
  python3 -m twine upload $folder/*.whl
END
