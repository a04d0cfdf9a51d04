#!/usr/bin/env bash
# Installs pytest and pytest-xdist into a virtual environment, for the tests of the Python package, and prints its Python.
#
# Usage: CUGUARD_PYTEST=$(scripts/fetch-pytest.sh FOLDER) cargo test -p cuguard-cli --test all python_package::
set -euo pipefail

folder=${1:?usage: scripts/fetch-pytest.sh FOLDER}
python=$folder/bin/python3
if ! "$python" -c 'import pytest, xdist' 2>/dev/null; then
    python3 -m venv "$folder" >&2
    "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 20 pytest pytest-xdist >&2
fi
realpath --no-symlinks "$python"
