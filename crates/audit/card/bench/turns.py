"""Processes that live at the same time and take turns, on one processor.

Times of `cudaMalloc` or of a training step differ by half from process to process, and from one second to the next, whatever runs: a
percent cannot be seen in the medians of processes that ran one after the other. Turns a few milliseconds apart, on the same processor,
have the same noise, and their ratio does not have it.
"""

import os
import select
import signal
import subprocess
import time


class Process:
    """A program that prints a line of output for each line of input, pinned to a processor."""

    def __init__(self, command, environment, folder, processor):
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "stderr", "wb") as stderr:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                                            env=environment, start_new_session=True, cwd=folder, bufsize=0,
                                            preexec_fn=lambda: os.sched_setaffinity(0, {processor}))
        self.stderr = folder / "stderr"

    def ask(self, deadline):
        """The line that answers the next turn. Raises `Failed` where there is none."""
        try:
            self.process.stdin.write(b"\n")
        except OSError:
            raise Failed(f"ended early: {self._tail()}") from None
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise Failed("timed out")
            read = self.process.stdout.read(4096)
            if not read:
                raise Failed(f"ended early: {self._tail()}")
            line += read
        return line.decode()

    def end(self, deadline):
        """Closes its input and waits. Returns its exit code, or `None` if it had to be killed."""
        self.process.stdin.close()
        try:
            return self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            self.process.stdout.close()

    def _tail(self):
        lines = [line for line in self.stderr.read_text(errors="replace").splitlines() if line.strip()]
        return " / ".join(lines[-3:])[-400:]


class Failed(Exception):
    """Why there is no answer."""


def take_turns(commands, turns, environment, folder, processor, deadline):
    """Starts all commands, and asks each of them `turns` times, every other time in reverse order. Returns the answers of each,
    in the order of the turns. Raises `Failed`."""
    processes = []
    try:
        for number, command in enumerate(commands):
            processes.append(Process(command, environment, folder / str(number), processor))
        for process in processes:
            process.ask(deadline)
        answers = [[] for _ in processes]
        for turn in range(turns):
            both = list(zip(processes, answers))
            for process, answer in both if turn % 2 == 0 else both[::-1]:
                answer.append(process.ask(deadline))
    finally:
        codes = [process.end(min(deadline, time.monotonic() + 20)) for process in processes]
    if any(codes):
        raise Failed(f"exit codes {codes}")
    return answers
