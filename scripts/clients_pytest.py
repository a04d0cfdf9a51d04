"""A pytest plugin for scripts/clients.py: appends one line of JSON for each finished test to $CLIENTS_RESULTS.

The file is complete up to the test in which a process aborts, which a report at the end would not be.
"""

import json
import os

import pytest


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    """numba-cuda's tests use this fixture; its definition is in a file that is not in the wheel."""
    request.cls._dump_failed_filechecks = False


def pytest_runtest_logreport(report):
    # A test has three phases. One that failed or was skipped counts; of the passed ones, the call.
    if report.passed and report.when != "call":
        return
    reason = ""
    if report.skipped:
        reason = getattr(report, "wasxfail", None) or report.longrepr[2]
    with open(os.environ["CLIENTS_RESULTS"], "a") as results:
        test = "::".join(report.nodeid.split("::")[1:])
        print(json.dumps({"test": test, "outcome": report.outcome, "reason": reason}), file=results, flush=True)


def pytest_collection_finish(session):
    """With --collect-only: the names of the tests, in the same file."""
    if session.config.option.collectonly:
        with open(os.environ["CLIENTS_RESULTS"], "a") as results:
            for item in session.items:
                print(json.dumps({"test": "::".join(item.nodeid.split("::")[1:])}), file=results)
