"""`pytest --cuguard` on files of tests."""

import importlib.util
import sys
import xml.etree.ElementTree as xml

import pytest

from conftest import INSTALLED

TESTS = """
import pytest
from driver import Block, OutOfMemory

MIB = 1 << 20
kept = []

@pytest.fixture(scope="module")
def model():
    return Block(32 * MIB)

@pytest.fixture(scope="session")
def table():
    block = Block(7 * MIB)
    kept.append(block)
    return block

@pytest.fixture
def scratch():
    return Block(5 * MIB)

def test_clean(scratch):
    Block(MIB)

def test_keeps(model):
    def load():
        kept.append(Block(3 * MIB))
    for _ in range(2):
        load()

def test_fixture_of_the_session(table):
    pass

def test_cycle():
    block = Block(9 * MIB)
    cycle = [block]
    cycle.append(cycle)

def test_refused():
    with pytest.raises(OutOfMemory):
        Block(1 << 50)

def test_without_memory():
    pass
"""


# Code objects have qualified names from Python 3.11 on.
QUALIFIED = sys.version_info >= (3, 11)


def test_the_summary(tests):
    code, output = tests(TESTS, "--cuguard", "-q")
    assert code == 0, output
    summary = output.split("cuguard: GPU memory")[1].splitlines()
    assert summary[1:4] == [
        "test_program.py::test_keeps keeps 6 MiB:",
        "  6 MiB in 2 allocations of device memory, test_program.py:27 in " + ("test_keeps.<locals>.load" if QUALIFIED else "load"),
        "fixture table (session) keeps, after the last test:",
    ], output
    assert summary[4] == "  7 MiB in 1 allocation of device memory, test_program.py:14 in table", output
    assert summary[5] == "test_program.py::test_refused was refused memory 1 time:"
    assert summary[6].startswith("  1024 TiB by cuMemAlloc_v2, "), output
    assert "driver.py:28 in %s__init__" % ("Block." if QUALIFIED else "") in summary[6], output
    assert summary[6].endswith(", called from test_program.py:41 in test_refused"), output
    assert summary[7] == "peaks of device memory:"
    peaks = [line.split() for line in summary[8:13]]
    assert peaks == [
        ["54", "MiB", "test_program.py::test_cycle"],
        ["45", "MiB", "test_program.py::test_fixture_of_the_session"],
        ["45", "MiB", "test_program.py::test_refused"],
        ["38", "MiB", "test_program.py::test_keeps"],
        ["6", "MiB", "test_program.py::test_clean"],
    ], output


@pytest.mark.parametrize("findings, failed", [("growth", 1), ("refused", 1), ("growth, refused", 2)])
def test_findings_fail_tests(tests, findings, failed):
    code, output = tests(TESTS, "--cuguard", "--cuguard-fail-on", findings)
    assert code == 1 and "6 passed, %d error" % failed in output, output
    assert ("the test keeps 6 MiB of GPU memory" in output) == ("growth" in findings), output
    assert ("the test was refused GPU memory 1 time" in output) == ("refused" in findings), output


def test_what_a_failed_test_keeps_is_not_called_growth(tests):
    text = """
from driver import Block

def test_fails():
    block = Block(3 << 20)
    assert False

def test_after():
    Block(1 << 20)
"""
    code, output = tests(text, "--cuguard")
    assert code == 1 and "1 failed, 1 passed" in output, output
    assert "no test keeps memory, none was refused any" in output, output


def test_what_a_failure_keeps_belongs_to_no_other_test(tests):
    text = """
import pytest, unittest
from driver import Block

kept = []

@pytest.fixture(scope="module")
def model():
    return Block(32 << 20)

@pytest.mark.parametrize("number", range(2))
def test_keeps(number):
    block = Block(3 << 20)
    assert number
    kept.append(block)

class TestCase(unittest.TestCase):
    def test_fails(self):
        kept.append(Block(5 << 20))
        assert False

def test_last(model):
    assert False
"""
    code, output = tests(text, "--cuguard")
    assert code == 1 and "3 failed, 1 passed" in output, output
    summary = output.split("cuguard: GPU memory")[1]
    assert summary.count(" keeps") == 1 and "test_program.py::test_keeps[1] keeps 3 MiB:" in summary, output


def test_memory_that_each_test_replaces_is_no_growth(tests):
    text = """
from driver import Block

buffer = None

def test_one():
    global buffer
    buffer = Block(10 << 20)

def test_two():
    global buffer
    buffer = Block(10 << 20)
"""
    code, output = tests(text, "--cuguard")
    summary = output.split("cuguard: GPU memory")[1]
    assert summary.count(" keeps") == 1 and "test_program.py::test_one keeps 10 MiB:" in summary, output


def test_fixtures_are_set_up_several_times(tests):
    text = """
import pytest
from driver import Block

kept = []

@pytest.fixture(scope="class", params=range(3))
def model(request):
    block = Block(10 << 20)
    if request.param == 2:
        kept.append(block)
    return block

class TestIt:
    def test_it(self, model):
        pass
"""
    code, output = tests(text, "--cuguard")
    summary = output.split("cuguard: GPU memory")[1]
    assert summary.count("fixture model (class) keeps, after the last test:") == 1, output
    assert "  10 MiB in 1 allocation of device memory, " in summary, output


FIXTURES = """
import pytest
from driver import Block

kept = []

@pytest.fixture(scope="module", params=range(2))
def model(request):
    return Block(32 << 20)

@pytest.fixture(scope="class")
def table():
    return Block(64 << 20)

class TestTable:
    def test_first(self, table):
        pass

    def test_last(self, table):
        kept.append(Block(3 << 20))

def test_model(model):
    kept.append(Block(5 << 20))

def test_replaces_no_model(model):
    kept[-1] = None
    kept[-1] = Block(5 << 20)
"""


@pytest.mark.parametrize("selected", ["test_", "test_last", "test_model", "test_model or test_last"])
def test_a_fixture_that_ends_with_a_test_hides_no_growth(tests, selected):
    code, output = tests(FIXTURES, "--cuguard", "-k", selected)
    assert code == 0, output
    summary = output.split("cuguard: GPU memory")[1]
    expected = []
    if "test_last" in selected or selected == "test_":
        expected.append("TestTable::test_last keeps 3 MiB:")
    if "test_model" in selected or selected == "test_":
        expected += ["test_model[0] keeps 5 MiB:", "test_model[1] keeps 5 MiB:"]
    assert summary.count(" keeps") == len(expected), output
    for text in expected:
        assert "test_program.py::" + text in summary, output


def test_a_test_may_ask_for_its_own_peak(tests):
    text = """
import cuguard
from driver import Block

def test_peak():
    cuguard.restart_peak()
    Block(100 << 20)
    assert cuguard.restart_peak() == 100 << 20
"""
    code, output = tests(text, "--cuguard")
    assert code == 0 and "     100 MiB  test_program.py::test_peak" in output, output


def test_values_of_fixtures_stay_for_reports(tests, tmp_path):
    (tmp_path / "conftest.py").write_text(
        """
import pytest

class Page:
    pass

PAGE = Page()

@pytest.fixture
def page():
    return PAGE

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    yield
    assert item.funcargs["page"] is PAGE
"""
    )
    text = """
from driver import Block
kept = []

def test_keeps(page):
    kept.append(Block(3 << 20))
"""
    code, output = tests(text, "--cuguard")
    assert code == 0 and "test_program.py::test_keeps keeps 3 MiB:" in output, output


def test_a_watch_that_fails_is_no_failed_test(tests):
    text = """
from driver import Block
import cuguard._snapshot, cuguard.pytest_plugin

def broken(*_):
    raise OSError("no socket")

def test_one():
    Block(1 << 20)
    cuguard.pytest_plugin.peak_for = broken

def test_two():
    Block(1 << 20)
"""
    code, output = tests(text, "--cuguard")
    assert code == 0 and "2 passed" in output, output
    assert "nothing was watched any more from test_program.py::test_one: OSError: no socket" in output, output
    code, output = tests(text, "--cuguard", "--cuguard-fail-on", "growth")
    assert code != 0 and "2 passed" in output, output


def test_an_interpreter_without_the_audit_library(tests, tmp_path):
    wrapper = tmp_path / "python"
    wrapper.write_text('#!/bin/sh\nunset LD_PRELOAD\nexec "%s" "$@"\n' % sys.executable)
    wrapper.chmod(0o755)
    (tmp_path / "conftest.py").write_text("")
    text = "import sys\nsys.executable = %r\nimport pytest\nsys.exit(pytest.main(sys.argv[1:]))\n" % str(wrapper)
    # Python 3.9 does not tell how it was started: a program of this name is taken for pytest.
    (tmp_path / "__main__.py").write_text(text)
    code, output = tests("def test_nothing():\n    pass\n", "--cuguard", start="__main__.py")
    assert code == 4 and "does not load the audit library" in output, output


def test_a_program_that_cannot_be_started_again(run):
    text = 'import pytest; raise SystemExit(pytest.main(["-p", "cuguard.pytest_plugin", "--cuguard"]))'
    if INSTALLED:
        text = text.replace('"-p", "cuguard.pytest_plugin", ', "")
    code, output = run("sh", "-c", "echo '%s' | %s -" % (text, sys.executable))
    assert code == 4 and "start it with `cuguard run -- python3 ...`" in output, output


def test_the_exit_code_is_that_of_pytest(tests):
    text = """
from driver import Block
kept = []

def test_keeps():
    kept.append(Block(3 << 20))
"""
    code, output = tests(text, "--cuguard", LEAK_REPORT="fail_on=reachable+lost,exitcode=7")
    assert code == 0, output


def test_tests_without_cuda(tests):
    code, output = tests("def test_nothing():\n    pass\n", "--cuguard")
    assert code == 0 and "no test allocated GPU memory" in output, output


def test_without_the_option_nothing_changes(tests):
    code, output = tests("import cuguard\ndef test_nothing():\n    assert not cuguard.is_audited()\n")
    assert code == 0 and "cuguard: GPU memory" not in output, output


@pytest.mark.parametrize(
    "options, why",
    [
        (["--cuguard", "--cuguard-fail-on", "leaks"], "--cuguard-fail-on: 'leaks' is not one of growth, refused"),
        (["--cuguard-fail-on", "growth"], "--cuguard-fail-on needs --cuguard"),
    ],
)
def test_bad_options(tests, options, why):
    code, output = tests("def test_nothing():\n    pass\n", *options)
    assert code == 4 and why in output, output


def test_without_the_command(tests, tmp_path):
    # An installed package has one.
    (tmp_path / "nowhere.py").write_text(
        """
import sysconfig

get_path = sysconfig.get_path
sysconfig.get_path = lambda name, *rest: "/nowhere" if name == "scripts" else get_path(name, *rest)
"""
    )
    code, output = tests("def test_nothing():\n    pass\n", "--cuguard", "-p", "nowhere", PATH="/nowhere")
    assert code == 4 and "no command `cuguard` in " in output, output


def test_figures_are_in_junit_files(tests, tmp_path):
    code, output = tests(TESTS, "--cuguard", "--junit-xml=junit.xml")
    assert code == 0, output
    for case in xml.parse(tmp_path / "junit.xml").iter("testcase"):
        if case.get("name") == "test_keeps":
            found = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert found["cuguard_growth_bytes"] == str(6 << 20)
    assert found["cuguard_peak_bytes"] == str(38 << 20)


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="needs pytest-xdist")
def test_workers_of_xdist(tests):
    code, output = tests(TESTS, "--cuguard", "-n", "2", "-p", "xdist")
    assert code == 0, output
    assert "test_program.py::test_keeps keeps 6 MiB:" in output, output
    assert "fixture table (session) keeps, after the last test:" in output, output
