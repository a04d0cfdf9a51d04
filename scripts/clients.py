#!/usr/bin/env python3
"""Runs the tests of CUDA programs against libcuda-sim and prints a table. Called by scripts/clients.sh.

Each test has a process of its own and a time limit, so that a test which aborts or hangs fails alone. The tests of
numba-cuda, which take seconds to import, first run a file at a time; those that did not pass run alone.
A test that does not pass is, in this order:

    skipped      its own test suite skips it or expects it to fail; the reason is in results.txt
    kernels      the simulation refused a launch of compiled code, or a module with an instruction that it does not support: the
                 trace (CUGUARD_SIM=trace) names the launch function, the log of the compiler the instruction
    runtime      a library or program of the CUDA toolkit is missing, or the CUDA runtime library was refused
    failed       everything else

Tests that measure the speed of hardware are excluded: they are listed below, each with its reason, and do not run.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

EXCLUDED = {
    "driver::safe::core::tests::test_default_pinned_host_reads_are_faster_than_write_combined":
        "measures how slow the processor reads write-combined memory; simulated host memory is ordinary memory",
    "driver::safe::core::tests::test_pinned_copy_is_faster":
        "measures that copies from pinned memory are 1.5 times as fast as others; simulated copies all cost a memcpy",
}

# Two devices, because tests of copies and switches between devices skip themselves with one.
SIMULATION = "trace,devices=2"
# For a second run of the tests that need kernels: launches are checked and skipped. Most check results and fail; what
# passes and what the simulation calls misuse is in results.txt.
SKIPPING = f"{SIMULATION},kernels=skip"
SKIPPED_PASSES = "passes with kernels=skip"

# What the compiler says of an instruction that is not executed.
INSTRUCTION = re.compile(r"ptxas application ptx input, line \d+; error   : (\S+): not supported")
# The functions that start a kernel or put one into a graph.
LAUNCH = re.compile(r"cuguard-sim: (cuLaunch(?!HostFunc)\w*|cuGraphLaunch\w*|cuGraph\w*KernelNode\w*) .*"
                    r"CUDA_ERROR_NOT_SUPPORTED", re.M)
REFUSED = re.compile(r"cuguard-sim: (cu\w+) .*CUDA_ERROR_NOT_SUPPORTED", re.M)
MISUSE = re.compile(r"cuguard-sim: (misuse: .*|panic in the simulated driver.*)")
LIBRARIES = "nvrtc|nvvm|nvJitLink|cudart|cudadevrt|cublas|cublasLt|curand|cufft|cusparse|cusolver|cudnn|nccl"
MISSING = re.compile(rf'Unable to dynamically load the "({LIBRARIES})" shared library'
                     rf"|lib({LIBRARIES})\.so[.\d]*: cannot open shared object file"
                     r"|No such file or directory: '(nvcc|ptxas|nvdisasm|cuobjdump)'")
RUNTIME = re.compile(r"\b(cudaError\w+)")
ERROR = re.compile(r"^(?:E  +|Error: )?.*(?:Error\b|Exception\b|panicked at|assert).*$", re.M)

COLUMNS = ["passed", "failed", "needs kernels", "needs the CUDA runtime", "skipped", "excluded"]


@dataclasses.dataclass
class Result:
    test: str
    outcome: str
    reason: str = ""


class Client:
    """A program with tests. The subclasses say how to list them and how to run one."""

    batches = False

    def __init__(self, settings):
        self.work = settings.work
        self.timeout = settings.timeout
        self.jobs = settings.jobs
        toolkit = settings.toolkit
        self.environment = {
            **os.environ,
            "CUDA_HOME": str(toolkit),
            "CUDA_PATH": str(toolkit),
            "LD_LIBRARY_PATH": f"{self.work}/sim:{toolkit}/lib",
            "PATH": f"{toolkit}/bin:{os.environ['PATH']}",
            "PYTHONPATH": str(pathlib.Path(__file__).resolve().parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_CACHE_HOME": f"{self.work}/cache",
            "CUGUARD_SIM": SIMULATION,
            "RUST_BACKTRACE": "0",
        }
        self.logs = self.work / "logs" / self.name
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)

    def process(self, command, log, timeout, folder, **environment):
        """Runs a command in a session of its own; returns its exit code, or what ended it."""
        with open(log, "wb") as output:
            process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       env={**self.environment, **environment}, start_new_session=True)
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                code = f"no end after {timeout} s"
            finally:
                # Children of the test, too.
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
        if isinstance(code, int) and code < 0:
            return signal.Signals(-code).name
        return code

    def log(self, test):
        return self.logs / (re.sub(r"[^\w.-]+", "-", test) + ".log")

    def run(self, test):
        """The result of one test in a process of its own."""
        if test in EXCLUDED:
            return Result(test, "excluded", EXCLUDED[test])
        outcome, reason = self.run_with(SIMULATION, test, self.log(test))
        if outcome == "needs kernels":
            log = self.log(f"{test}.skip")
            skipping, why = self.run_with(SKIPPING, test, log)
            reason += f"; {SKIPPED_PASSES}" if skipping == "passed" else f"; with kernels=skip: {skipping} {why}"
        return Result(test, outcome, reason)

    def run_with(self, simulation, test, log):
        with tempfile.TemporaryDirectory() as folder:
            outcome, reason = self.run_alone(test, pathlib.Path(folder), log, CUGUARD_SIM=simulation)
        if outcome == "failed":
            return self.classify(log, reason)
        if outcome == "passed":
            log.unlink()
        return outcome, reason

    def classify(self, log, reason):
        text = log.read_text(errors="replace")
        if misuse := MISUSE.search(text):
            return "failed", misuse[0]
        if launch := LAUNCH.search(text):
            return "needs kernels", launch[1]
        if instruction := INSTRUCTION.search(text):
            return "needs kernels", instruction[1]
        if missing := MISSING.search(text):
            return "needs the CUDA runtime", next(filter(None, missing.groups()))
        if (runtime := RUNTIME.search(text)) and "cuGetExportTable" in text:
            return "needs the CUDA runtime", runtime[1]
        refused = " ".join(dict.fromkeys(REFUSED.findall(text)))
        errors = [line.strip() for line in ERROR.findall(text)]
        parts = [reason, f"not supported: {refused}" if refused else "", errors[-1] if errors else ""]
        return "failed", "; ".join(filter(None, parts))[:300]


class Cudarc(Client):
    name = "cudarc"

    def __init__(self, settings):
        super().__init__(settings)
        self.program = (self.work / "cudarc-tests").read_text().strip()
        manifest = (self.work / "cudarc" / "Cargo.toml").read_text()
        self.version = re.search(r'^version = "(.*)"', manifest, re.M)[1]

    def tests(self):
        listed = subprocess.run([self.program, "--list", "--format", "terse"], env=self.environment, check=True,
                                capture_output=True, text=True).stdout
        return re.findall(r"^(\S+): test$", listed, re.M)

    def run_alone(self, test, folder, log, **environment):
        # The working directory is that of the package, as with cargo.
        # Ignored tests run too: they are those that want a process of their own or two devices.
        code = self.process([self.program, "--exact", test, "--nocapture", "--include-ignored"], log, self.timeout,
                            self.work / "cudarc", **environment)
        if code == 0 and "1 passed" in log.read_text(errors="replace"):
            return "passed", ""
        return "failed", "" if code == 101 else f"ended with {code}"


class Pytest(Client):
    """Tests named Class::test or test, each in one of the files or modules of `places`."""

    options = []

    def pytest(self, arguments, log, timeout, folder, **environment):
        results = pathlib.Path(folder) / "results"
        code = self.process([sys.executable, "-m", "pytest", "-p", "clients_pytest", "-p", "no:cacheprovider", "-s",
                             "--tb=short", *self.options, *arguments], log, timeout, folder,
                            CLIENTS_RESULTS=str(results), **environment)
        lines = results.read_text().splitlines() if results.exists() else []
        return code, [json.loads(line) for line in lines]

    def tests(self):
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return [test for tests in pool.map(self.tests_in, self.places()) for test in tests]

    def tests_in(self, place):
        log = self.log(f"collect-{pathlib.Path(place).name}")
        with tempfile.TemporaryDirectory() as folder:
            code, found = self.pytest(["--collect-only", "-q", place], log, self.timeout, folder)
        if code != 0:
            print(f"scripts/clients.py: pytest could not list the tests of {place}; see {log}", file=sys.stderr)
            sys.exit(2)
        return [f"{place}::{entry['test']}" for entry in found]

    def run_alone(self, test, folder, log, **environment):
        code, results = self.pytest([test], log, self.timeout, folder, **environment)
        outcomes = {entry["outcome"]: entry["reason"] for entry in results}
        for outcome in ["failed", "skipped", "passed"]:
            if outcome in outcomes and (code == 0 or outcome == "failed"):
                return outcome, outcomes[outcome]
        return "failed", f"ended with {code}"

    def run_batch(self, place, count):
        """The tests of a file that passed together. Empty if the process did not end well."""
        with tempfile.TemporaryDirectory() as folder:
            log = self.logs / (place.split(".")[-1] + ".batch.log")
            code, results = self.pytest([place], log, self.timeout * count, folder)
        failed = {entry["test"] for entry in results if entry["outcome"] != "passed"}
        passed = {entry["test"] for entry in results} - failed
        return {f"{place}::{test}" for test in passed} if code in (0, 1) else set()


class NumbaCuda(Pytest):
    name = "numba-cuda"
    batches = True
    options = ["--import-mode=importlib", "-o", "consider_namespace_packages=true", "--pyargs"]

    def __init__(self, settings):
        super().__init__(settings)
        self.version = importlib.metadata.version("numba-cuda")

    def places(self):
        import numba_cuda
        folder = pathlib.Path(numba_cuda.__file__).parent / "numba/cuda/tests/cudadrv"
        return [f"numba.cuda.tests.cudadrv.{file.stem}" for file in sorted(folder.glob("test_*.py"))]


class Pycuda(Pytest):
    name = "pycuda"

    def __init__(self, settings):
        super().__init__(settings)
        self.version = importlib.metadata.version("pycuda")

    def places(self):
        return [str(self.work / "pycuda/test/test_driver.py")]


def run_client(client):
    tests = client.tests()
    print(f"{client.name} {client.version}: {len(tests)} tests", file=sys.stderr)
    with concurrent.futures.ThreadPoolExecutor(client.jobs) as pool:
        passed = set()
        if client.batches:
            counts = collections.Counter(test.split("::")[0] for test in tests)
            for together in pool.map(client.run_batch, counts.keys(), counts.values()):
                passed |= together
        alone = dict(zip(rest := [test for test in tests if test not in passed], pool.map(client.run, rest)))
    return [alone.get(test) or Result(test, "passed") for test in tests]


def table(rows):
    heads = ["client", *COLUMNS, "tests"]
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for client, results in rows:
        counts = collections.Counter(result.outcome for result in results)
        skipping = sum(SKIPPED_PASSES in result.reason for result in results)
        counts["needs kernels"] = f"{counts['needs kernels']} ({skipping})"
        cells = [f"{client.name} {client.version}", *(str(counts[column]) for column in COLUMNS), str(len(results))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    names = {kind.name: kind for kind in [Cudarc, NumbaCuda, Pycuda]}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="the folder that clients.sh filled")
    parser.add_argument("--toolkit", type=pathlib.Path, required=True, help="the CUDA toolkit of NVIDIA's wheels")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests that run at the same time")
    parser.add_argument("--timeout", type=int, default=120, help="seconds that one test may run")
    parser.add_argument("clients", nargs="+", choices=names)
    settings = parser.parse_args()

    rows = []
    for name in settings.clients:
        client = names[name](settings)
        rows.append((client, run_client(client)))

    with open(settings.work / "results.txt", "w") as file:
        for client, results in rows:
            for result in results:
                print(client.name, result.test, result.outcome, result.reason, sep=" | ", file=file)

    nvcc = importlib.metadata.version("nvidia-cuda-nvcc")
    print(f"Against libcuda-sim with CUGUARD_SIM={SIMULATION}, nvcc {nvcc}:\n")
    print(table(rows))
    print("\nIn parentheses: tests that need kernels and pass when launches are checked and skipped (kernels=skip).")
    for outcome in ["failed", "excluded"]:
        for client, results in rows:
            for result in results:
                if result.outcome == outcome:
                    print(f"\n{outcome}: {client.name} {result.test}\n    {result.reason}")
    sys.exit(any(result.outcome == "failed" for _, results in rows for result in results))


if __name__ == "__main__":
    main()
