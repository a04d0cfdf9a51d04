"""Runs a program: plain, under `cuguard run`, under compute-sanitizer. Every run has a time limit."""

import os
import pathlib
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass

from .building import CARD


@dataclass
class Outcome:
    code: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool

    def status(self):
        """The exit code as a shell shows it: 128 and the signal, where one ended the process."""
        return 128 - self.code if self.code < 0 else self.code

    def tail(self):
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        return " / ".join(lines[-3:])[-400:]


def run(command, environment, folder, seconds):
    """Runs a command in a session of its own, so that its children end with it at the time limit."""
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    # Files and not pipes: a child that outlives the program would keep a pipe open.
    with open(folder / "stdout", "wb") as stdout, open(folder / "stderr", "wb") as stderr:
        try:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                       env=environment, start_new_session=True, cwd=folder)
        except OSError as error:
            return Outcome(127, "", str(error), 0.0, False)
        try:
            code, timed_out = process.wait(seconds), False
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code, timed_out = process.wait(), True
    elapsed = time.monotonic() - began
    text = [(folder / name).read_text(errors="replace") for name in ("stdout", "stderr")]
    return Outcome(code, *text, elapsed, timed_out)


class Runner:
    def __init__(self, options, toolkit, folder):
        self.options, self.toolkit, self.folder = options, toolkit, folder
        self.environment = dict(os.environ)
        for name in ("LD_PRELOAD", "LEAK_REPORT"):
            self.environment.pop(name, None)
        self.environment["PYTHONDONTWRITEBYTECODE"] = "1"
        if options.libcuda:
            paths = [options.libcuda, self.environment.get("LD_LIBRARY_PATH", "")]
            self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))

    def command(self, program):
        if program.build == "python":
            return [self.options.python, CARD / "python" / program.source, *program.arguments]
        if program.build == "binary":
            return [pathlib.Path(program.source).resolve()]
        return [self.folder / program.name, *program.arguments]

    def plain(self, program):
        return run(self.command(program), self.environment, self.folder / f"{program.name}.plain", self.options.timeout)

    def audited(self, program):
        """The outcome, and the folder that the reports of all processes are in."""
        folder = self.folder / f"{program.name}.cuguard"
        reports = folder / "reports"
        # Of an earlier run in the same folder.
        shutil.rmtree(folder, ignore_errors=True)
        reports.mkdir(parents=True, exist_ok=True)
        command = [self.options.cuguard, "run", "--report", "json", "--output", reports / "%p.json", "--", *self.command(program)]
        return run(command, self.environment, folder, self.options.timeout), reports

    def sanitized(self, program):
        command = [self.options.compute_sanitizer, "--tool", "memcheck", "--leak-check", "full", "--target-processes", "all"]
        if program.build == "python":
            # With stack traces it keeps Python frames, and so their tensors, alive.
            command += ["--show-backtrace", "no"]
        return run([*command, *self.command(program)], self.environment, self.folder / f"{program.name}.sanitizer",
                   self.options.sanitizer_timeout)


def absolute(path):
    """A command's path, or its name where it is to be looked for in PATH."""
    return str(pathlib.Path(path).resolve()) if os.sep in str(path) else path
