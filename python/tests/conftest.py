import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

TESTS = pathlib.Path(__file__).parent


def _is_installed():
    try:
        importlib.metadata.distribution("cuguard")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


#: Whether the package is installed, from a wheel. Otherwise its sources are tested.
INSTALLED = _is_installed()


@pytest.fixture
def run(tmp_path):
    """Runs a command in an empty folder, on the simulated GPU; returns its exit code and its output."""

    def run(*command, **variables):
        path = os.pathsep.join([str(TESTS)] if INSTALLED else [str(TESTS.parent), str(TESTS)])
        env = dict(os.environ, CUGUARD_DRIVER="sim", PYTHONPATH=path)
        env.pop("LEAK_REPORT", None)
        env.update(variables)
        ended = subprocess.run(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return ended.returncode, ended.stdout

    return run


@pytest.fixture
def audited(run, tmp_path):
    """Runs a program under `cuguard run`."""

    def audited(text):
        (tmp_path / "program.py").write_text(text)
        # That of the virtual environment, which need not be activated; from sources, one on the PATH.
        command = shutil.which("cuguard", path=sysconfig.get_path("scripts")) if INSTALLED else shutil.which("cuguard")
        assert command, "no command cuguard"
        return run(command, "run", "--", sys.executable, "program.py")

    return audited


@pytest.fixture
def tests(run, tmp_path):
    """Runs a file of tests with the plugin, and these options."""

    def tests(text, *options, start=None, **variables):
        (tmp_path / "test_program.py").write_text(text)
        plugin = ("-p", "no:cacheprovider") if INSTALLED else ("-p", "cuguard.pytest_plugin", "-p", "no:cacheprovider")
        program = [start] if start else ["-m", "pytest"]
        return run(sys.executable, *program, *plugin, *options, **variables)

    return tests
