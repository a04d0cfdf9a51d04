"""``pytest --cuguard``: which test keeps GPU memory, which was refused some, and how much each used.

The tests run under ``cuguard run``: pytest starts itself again with it. Around each test what is alive is compared by call
site; what a fixture of a wider scope sets up belongs to the fixture. The results are properties of the test's report, so that
they reach the controller of pytest-xdist and JUnit files.
"""

import os
import shutil
import sys
import sysconfig
import weakref
from typing import NamedTuple

import pytest

from ._growth import counted, settle, size
from ._process import ask_json, is_audited
from ._snapshot import Snapshot, merged, peak_for, snapshot

_FINDINGS = ("growth", "refused")

#: How many call sites of a test are shown.
_SITES = 5

#: Set for the process that is started again.
_STARTED = "CUGUARD_PYTEST_STARTED"


def pytest_addoption(parser):
    group = parser.getgroup("cuguard", "GPU memory")
    group.addoption(
        "--cuguard",
        action="store_true",
        help="run the tests under `cuguard run`, and list which of them keep GPU memory, were refused some, and use most",
    )
    group.addoption(
        "--cuguard-fail-on",
        metavar="FINDINGS",
        default="",
        help="with --cuguard: a test fails if it keeps memory (growth) or was refused some (refused); several with commas",
    )
    group.addoption(
        "--cuguard-peaks",
        metavar="N",
        type=int,
        default=10,
        help="with --cuguard: list the N tests with the highest peaks of device memory [default: 10]",
    )


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config):
    # Before the output is captured, which outlives an exec.
    if early_config.known_args_namespace.cuguard and not is_audited():
        _start_again(early_config)
    yield


def _start_again(early_config):
    """Replaces this process by ``cuguard run`` with the same command."""
    if _STARTED in os.environ:
        raise pytest.UsageError(
            "--cuguard: %s does not load the audit library, which LD_PRELOAD names: it is a static program, or a script"
            " that changes LD_PRELOAD" % sys.executable
        )
    if hasattr(early_config, "workerinput"):
        raise pytest.UsageError("--cuguard: a remote worker must run under `cuguard run`")
    # The report at the end would repeat what is listed by test.
    run = ["run", "--report", "json", "--output", os.devnull, "--", sys.executable]
    run += _own_arguments(early_config.invocation_params.args)
    command = _command()
    env = dict(os.environ, **{_STARTED: "1"})
    # The exit code is that of pytest, whatever is alive at the end.
    words = [word for word in env.get("LEAK_REPORT", "").split(",") if not word.startswith(("fail_on=", "exitcode="))]
    env["LEAK_REPORT"] = ",".join(words)
    if not env["LEAK_REPORT"]:
        del env["LEAK_REPORT"]
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execve(command, [command, *run], env)


def _own_arguments(arguments):
    """What follows the interpreter in the command that started this process."""
    program = sys.argv[0] if sys.argv else ""
    is_pytest = os.path.basename(program) in ("pytest", "py.test", "__main__.py")
    if hasattr(sys, "orig_argv") and program not in ("", "-"):
        # `python -m pytest`, or a program that calls `pytest.main`, with options of the interpreter.
        return sys.orig_argv[1:]
    if is_pytest:
        return ["-m", "pytest", *map(str, arguments)]
    raise pytest.UsageError("--cuguard: pytest cannot start this program again; start it with `cuguard run -- python3 ...`")


def _command():
    """The command of this package, or else one on the PATH."""
    own = os.path.join(sysconfig.get_path("scripts"), "cuguard")
    command = own if os.access(own, os.X_OK) else shutil.which("cuguard")
    if command is None:
        raise pytest.UsageError("--cuguard: no command `cuguard` in %s or on the PATH" % os.path.dirname(own))
    return command


def pytest_configure(config):
    wanted = [word.strip() for word in config.getoption("--cuguard-fail-on").split(",") if word.strip()]
    for word in wanted:
        if word not in _FINDINGS:
            raise pytest.UsageError("--cuguard-fail-on: %r is not one of %s" % (word, ", ".join(_FINDINGS)))
    if not config.getoption("--cuguard"):
        if wanted:
            raise pytest.UsageError("--cuguard-fail-on needs --cuguard")
        return
    if not is_audited():
        raise pytest.UsageError("--cuguard: the plugin was loaded too late; install it, or load it with -p cuguard.pytest_plugin")
    os.environ.pop(_STARTED, None)
    config.pluginmanager.register(_Watch(config, wanted), "cuguard-watch")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Summary(config.getoption("--cuguard-peaks")), "cuguard-summary")


class _Figures(NamedTuple):
    """What changes with every allocation and free, without the names of call sites."""

    kinds: tuple = ()
    #: How many allocations there were, the refused ones among them.
    allocated: int = 0


def _figures():
    figures = ask_json("stats 0")
    if figures is None:
        return _Figures()
    kinds = tuple((kind["kind"], kind["allocated_count"], kind["live_count"], kind["live_bytes"]) for kind in figures["kinds"])
    return _Figures(kinds, sum(kind[1] for kind in kinds) + (figures["refused_count"] or 0))


def _place(frame):
    where = frame["file"] or frame["module"] or "?"
    folder = os.path.join(os.getcwd(), "")
    if where.startswith(folder):
        where = where[len(folder) :]
    if frame["line"] is not None:
        where += ":%d" % frame["line"]
    return "%s in %s" % (where, frame["function"] or "?")


def _refused(file):
    """How often each call site was refused memory, by a line about it. `file` is that of the test."""
    report = ask_json("dump json no-search") or {}
    found = {}
    for one in report.get("refused", ()):
        frames = [frame for frame in one["stack"] if frame["class"] == "user"] or one["stack"]
        of_test = [frame for frame in frames if frame["file"] and os.path.abspath(frame["file"]) == file]
        place = _place(frames[0]) if frames else "?"
        if of_test and of_test[0] is not frames[0]:
            place += ", called from " + _place(of_test[0])
        what = "memory" if one["largest_bytes"] is None else size(one["largest_bytes"])
        text = "%s by %s, %s" % (what, one["function"], place)
        found[text] = found.get(text, 0) + one["count"]
    return found


class _Watch:
    """Compares what is alive around each test."""

    def __init__(self, config, fail_on):
        self.config = config
        self.fail_on = fail_on
        #: The figures for which `settled` holds.
        self.figures = None
        self.settled = None
        self.before = None
        #: How many allocations there were before the test.
        self.allocated = 0
        #: What fixtures of a wider scope than a test allocated: name, growth.
        self.fixtures = []
        self.inside_fixture = False
        self.of_fixtures = {}
        self.refused = {}
        self.has_failed = False
        #: Why nothing is watched any more.
        self.stopped = None

    def attempt(self, when, function, *arguments):
        """Tests go on if what is alive cannot be seen any more; the summary says so."""
        if self.stopped is None:
            try:
                return function(*arguments)
            except Exception as error:
                self.stopped = "%s: %s: %s" % (when, type(error).__name__, error)
        return None

    def settle(self):
        """What is alive, without garbage and unused caches."""
        figures = _figures()
        if figures != self.figures:
            settle()
            self.settled = snapshot()
            self.figures = _figures()
        return self.settled if self.settled is not None else Snapshot(0, 0, 0, 0, {}, ())

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item):
        self.attempt(item.nodeid, self.begin, item)
        yield

    def begin(self, item):
        # Of an earlier run of this test.
        item.user_properties[:] = [pair for pair in item.user_properties if not pair[0].startswith("cuguard_")]
        if self.has_failed:
            self.forget_failure()
        self.before = self.settle()
        self.allocated = self.figures.allocated
        self.of_fixtures = {}
        self.has_failed = False
        peak_for("plugin")

    def forget_failure(self):
        """Frees what the stack trace of the last failure keeps, which pytest does when the next test is called."""
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)
        self.figures = None

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        # A fixture that requests another while it is set up counts for both.
        if fixturedef.scope == "function" or self.inside_fixture or self.before is None:
            yield
            return
        before = self.attempt(fixturedef.argname, self.settle)
        self.inside_fixture = True
        yield
        self.inside_fixture = False
        self.attempt(fixturedef.argname, self.end_of_fixture, fixturedef, before)

    def end_of_fixture(self, fixturedef, before):
        grown = [site for site in self.settle()._growth_by_stack(before) if site.bytes]
        if grown:
            self.fixtures.append(("%s (%s)" % (fixturedef.argname, fixturedef.scope), grown))
        for site in grown:
            key = site._key()
            self.of_fixtures[key] = self.of_fixtures.get(key, 0) + site.bytes

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self):
        outcome = yield
        if outcome.excinfo is None:
            report = outcome.get_result()
            # Its stack trace keeps what the frames refer to.
            self.has_failed = self.has_failed or report.failed or hasattr(report, "wasxfail")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item):
        outcome = yield
        if self.before is None:
            return
        findings = self.attempt(item.nodeid, self.end, item, outcome.excinfo is not None) or ()
        texts = ["\n  ".join(["cuguard: the test " + what, *lines]) for name, what, lines in findings if name in self.fail_on]
        if texts and outcome.excinfo is None:
            failure = pytest.fail.Exception("\n".join(texts), pytrace=False)
            if not hasattr(outcome, "force_exception"):
                # Before pluggy 1.1. Later ones warn of it.
                raise failure
            outcome.force_exception(failure)

    def growth(self):
        """What the test keeps, and how many bytes it is."""
        after = self.settle()
        grown, of_fixtures = [], 0
        for site in after._growth_by_stack(self.before):
            # After the last test that uses it, a fixture is torn down: what it has freed counts for neither.
            of_fixture = min(site.bytes, self.of_fixtures.get(site._key(), 0))
            of_fixtures += of_fixture
            if site.bytes > of_fixture:
                grown.append(site._replace(bytes=site.bytes - of_fixture))
        # What replaces what another line allocated is no growth.
        total = after._total_growth(self.before) - of_fixtures
        total = min(sum(site.bytes for site in grown), total)
        return (merged(grown), total) if total > 0 else ([], 0)

    def end(self, item, has_failed):
        """The findings in a test that has ended."""
        peak = peak_for("plugin")
        if _figures().allocated == self.allocated:
            # It allocated nothing. What fixtures of a wider scope freed is seen before the next test.
            return ()
        grown, total = ([], 0) if self.has_failed or has_failed else self.growth()
        if grown:
            with _without_values(getattr(item, "funcargs", None)):
                self.figures = None
                grown, total = self.growth()
        after = self.settle()
        findings = []
        properties = item.user_properties
        properties.append(("cuguard_peak_bytes", peak))
        if grown:
            lines = [counted(site) for site in grown[:_SITES]]
            if len(grown) > _SITES:
                lines.append("and %d more call sites" % (len(grown) - _SITES))
            properties.append(("cuguard_growth_bytes", total))
            properties.append(("cuguard_growth", "\n".join(lines)))
            findings.append(("growth", "keeps %s of GPU memory" % size(total), lines))
        count = after.refused_count - self.before.refused_count
        if count > 0:
            refused = _refused(str(item.path) if hasattr(item, "path") else str(item.fspath))
            lines = [text for text, times in refused.items() if times != self.refused.get(text, 0)]
            self.refused = refused
            properties.append(("cuguard_refused_count", count))
            properties.append(("cuguard_refused", "\n".join(lines)))
            findings.append(("refused", "was refused GPU memory %d time%s" % (count, "" if count == 1 else "s"), lines))
        return findings

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        kept = self.attempt("at the end", self.kept_by_fixtures) or []
        if self.stopped is not None and self.fail_on and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["cuguard"] = [kept, self.stopped]
        else:
            self.config.pluginmanager.get_plugin("cuguard-summary").add(kept, self.stopped)

    def kept_by_fixtures(self):
        """What fixtures of a wider scope allocated and is still alive, by fixture."""
        if not self.fixtures:
            return []
        self.forget_failure()
        alive = {site._key(): site.bytes for site in self.settle().sites}
        kept = {}
        for name, grown in self.fixtures:
            for site in grown:
                # Of a fixture that was set up several times, what is alive counts once.
                size = min(site.bytes, alive.get(site._key(), 0))
                if size:
                    alive[site._key()] -= size
                    kept.setdefault(name, []).append(site._replace(bytes=size))
        return [(name, [counted(site) for site in merged(sites)]) for name, sites in kept.items()]


class _without_values:
    """Takes the values of fixtures from a test, which pytest does a little later, and returns those that are still alive: reports
    may use them."""

    def __init__(self, funcargs):
        self.funcargs = funcargs
        self.taken = {}

    def __enter__(self):
        for name, value in list((self.funcargs or {}).items()):
            if isinstance(value, (bool, int, float, str, bytes, type(None))):
                continue
            try:
                self.taken[name] = weakref.ref(value)
            except TypeError:
                # A list, a tuple, a dict.
                pass
            self.funcargs[name] = None
        return self

    def __exit__(self, *_):
        for name, value in self.taken.items():
            self.funcargs[name] = value()


class _Summary:
    """Lists the results after the tests."""

    def __init__(self, rows):
        self.rows = rows
        self.tests = {}
        self.fixtures = []
        self.stopped = []

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            found = {name: value for name, value in report.user_properties if name.startswith("cuguard_")}
            # Of a test that is run again, the last time counts.
            self.tests.pop(report.nodeid, None)
            if found:
                self.tests[report.nodeid] = found

    def add(self, fixtures, stopped):
        """What a process, such as a worker of xdist, has found at its end."""
        self.fixtures += [tuple(row) for row in fixtures]
        self.stopped += [stopped] if stopped else []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        found = getattr(node, "workeroutput", {}).get("cuguard")
        if found:
            self.add(*found)

    def pytest_terminal_summary(self, terminalreporter):
        write = terminalreporter.write_line
        terminalreporter.section("cuguard: GPU memory")
        for why in self.stopped:
            write("nothing was watched any more from %s" % why, red=True)
        if not self.tests:
            write("no test allocated GPU memory")
            return
        has_findings = bool(self.stopped)
        tests = list(self.tests.items())
        for name, found in sorted(tests, key=lambda test: -test[1].get("cuguard_growth_bytes", 0)):
            if "cuguard_growth" in found:
                has_findings = True
                write("%s keeps %s:" % (name, size(found["cuguard_growth_bytes"])), yellow=True)
                for line in found["cuguard_growth"].splitlines():
                    write("  " + line)
        for name, lines in self.fixtures:
            has_findings = True
            write("fixture %s keeps, after the last test:" % name, yellow=True)
            for line in lines:
                write("  " + line)
        for name, found in tests:
            if "cuguard_refused" in found:
                has_findings = True
                count = found["cuguard_refused_count"]
                write("%s was refused memory %d time%s:" % (name, count, "" if count == 1 else "s"), yellow=True)
                for line in found["cuguard_refused"].splitlines():
                    write("  " + line)
        if not has_findings:
            write("no test keeps memory, none was refused any", green=True)
        peaks = sorted(tests, key=lambda test: (-test[1]["cuguard_peak_bytes"], test[0]))
        shown = peaks[: max(self.rows, 0)]
        if shown:
            write("peaks of device memory:" if len(shown) == len(peaks) else "the %d highest peaks of device memory:" % len(shown))
        for name, found in shown:
            write("  %10s  %s" % (size(found["cuguard_peak_bytes"]), name))
