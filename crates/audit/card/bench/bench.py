#!/usr/bin/env python3
"""What `cuguard run` costs, on a machine with a GPU: each program plain and under `cuguard run` in turn, in one run.

    crates/audit/card/bench/bench.py target/release/cuguard
    crates/audit/card/bench/bench.py target/release/cuguard --sanitizer --budget 560
    crates/audit/card/bench/bench.py target/release/cuguard --record --only pairs --only torch_step.py
    crates/audit/card/bench/bench.py target/release/cuguard --before old/cuguard     # and an older one, in the same turns

Prints medians, the range of all rounds, and the ratio and the difference of the medians and of the best rounds. A processor
that runs at two speeds, one for each process, moves a median of few rounds from one to the other. Pairs are measured in turns of
processes that live at the same time (turns.py), and so are steps of PyTorch: the median of the ratios of all turns, and how far it
differs between processes.
Exit code 1: a program failed.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parent)]

from harness.running import absolute, run
from turns import Failed, take_turns


@dataclass(frozen=True)
class Bench:
    """A measurement: a program with its arguments, what of its output is measured, and how it is compared."""
    name: str
    program: str
    arguments: tuple
    measures: tuple               # of: value (ns, printed), ready (s since the start), exit (s from the end of main)
    rounds: int
    target: str = ""
    sanitizer: tuple = None       # the arguments for compute-sanitizer, which is slower; None: not run under it
    timeout: float = 60
    turns: int = 0                # of each process in a round, where those of all modes take turns; 0: one after the other


BENCHES = [
    Bench("cudaMalloc + cudaFree, 1 MiB", "pairs", ("malloc", "100"), ("value",), 12, "ratio 1.02", ("malloc", "100"), turns=40),
    Bench("cudaMallocAsync + cudaFreeAsync, 1 MiB", "pairs", ("async", "10000"), ("value",), 12, "+0.35 µs", ("async", "5000"), turns=40),
    Bench("the same on 16 threads, one stream each", "threads", ("1500",), ("value",), 8, "within noise", ("300",)),
    Bench("a small program", "startup", (), ("ready", "exit"), 12, "+0.3 s", ()),
    Bench("PyTorch training, a step", "torch_step.py", ("25",), ("value",), 8, "ratio 1.02", ("20",), 90, turns=40),
    Bench("PyTorch training, the program", "torch_step.py", ("25",), ("ready", "exit"), 6, "+0.3 s", None, 90),
    Bench("10^6 live allocations", "many_live", ("1000000",), ("value", "exit"), 1, "exit +5 s", None, 90),
    Bench("10 GiB of host memory", "host_memory", ("10",), ("exit",), 1, "exit +5 s", None, 90),
]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cuguard", help="the cuguard command")
    parser.add_argument("--only", action="append", default=[], metavar="PROGRAM", help="a program, such as pairs or torch_step.py")
    parser.add_argument("--rounds", type=int, help="of every measurement, instead of its own number")
    parser.add_argument("--before", metavar="CUGUARD", help="each under another cuguard command too, to compare with")
    parser.add_argument("--record", action="store_true", help="each under `cuguard run --record` too")
    parser.add_argument("--sanitizer", action="store_true", help="run each once under compute-sanitizer --leak-check full, with fewer iterations")
    parser.add_argument("--compute-sanitizer", default="compute-sanitizer")
    parser.add_argument("--budget", type=float, default=600, metavar="SECONDS", help="nothing is started after this time")
    parser.add_argument("--cuda", default=os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--python", default="python3")
    options = parser.parse_args()
    options.cuguard = absolute(options.cuguard)
    options.before = options.before and absolute(options.before)
    for command in filter(None, [options.cuguard, options.before]):
        if not shutil.which(command):
            parser.error(f"{command} is not an executable file")
    if not shutil.which(options.compute_sanitizer):
        options.compute_sanitizer = f"{options.cuda}/bin/compute-sanitizer"
    known = {bench.program for bench in BENCHES}
    unknown = [name for name in options.only if name not in known]
    if unknown:
        parser.error(f"no program is named {unknown[0]}: there are {', '.join(sorted(known))}")
    return options


def build(program, options, folder):
    if program.endswith(".py"):
        return None
    cuda = pathlib.Path(options.cuda)
    libraries = next((cuda / name for name in ("lib64", "lib") if (cuda / name).is_dir()), cuda)
    command = [cuda / "bin/nvcc", "-std=c++20", "-O2", "-g", f"-arch={options.architecture}", "-cudart", "static", "-L", libraries,
               "-o", folder / program, HERE / f"{program}.cu"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip()[-800:]


MODES = ("plain", "before", "cuguard", "recorded", "sanitizer")


class Bencher:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.deadline = time.monotonic() + options.budget
        self.environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "LEAK_REPORT")}

    def command(self, bench, words, mode):
        script = bench.program.endswith(".py")
        program = [self.options.python, HERE / bench.program] if script else [self.folder / bench.program]
        if mode in ("cuguard", "before"):
            before = [getattr(self.options, mode), "run", "--report", "json", "--output", self.folder / "report-%p.json", "--"]
        elif mode == "recorded":
            before = [self.options.cuguard, "run", "--record", self.folder / "recording.cgr", "--"]
        elif mode == "sanitizer":
            before = [self.options.compute_sanitizer, "--tool", "memcheck", "--leak-check", "full"]
            before += ["--show-backtrace", "no"] if script else []
        else:
            before = []
        return [*before, *program, *words]

    def measure(self, bench, mode):
        """The measures of one run, or why there are none."""
        left = self.deadline - time.monotonic()
        if left < 1:
            return "not run: the time budget is spent"
        words = bench.sanitizer if mode == "sanitizer" else bench.arguments
        began = time.monotonic()
        outcome = run(self.command(bench, words, mode), self.environment, self.folder / "output", min(bench.timeout, left))
        ended = began + outcome.seconds
        if outcome.timed_out:
            return f"timed out after {outcome.seconds:.0f} s"
        line = next((line for line in outcome.stdout.splitlines() if line.startswith("{")), None)
        if line is None:
            return f"failed with {outcome.status()}: {outcome.tail()}"
        printed = json.loads(line)
        measured = {}
        if "value" in printed:
            measured["value"] = printed["value"] / 1e9
        if "ready" in printed:
            measured["ready"] = printed["ready"] - began
        if "ends" in printed:
            measured["exit"] = ended - printed["ends"]
        return measured

    def turns(self, bench, modes, number):
        """The values of all turns of one round, by mode. Raises `Failed`."""
        left = self.deadline - time.monotonic()
        if left < 1:
            raise Failed("not run: the time budget is spent")
        processors = sorted(os.sched_getaffinity(0))
        commands = [self.command(bench, (*bench.arguments, "turns"), mode) for mode in modes]
        answers = take_turns(commands, bench.turns, self.environment, self.folder / "turns", processors[number % len(processors)],
                             time.monotonic() + min(bench.timeout, left))
        return {mode: [{"value": json.loads(line)["value"] / 1e9} for line in lines] for mode, lines in zip(modes, answers)}

    def alternate(self, bench):
        """Rounds of plain and cuguard in turn; every other round in reverse order."""
        found = {mode: [] for mode in MODES}
        errors = {}
        modes = [mode for mode in MODES if mode != "sanitizer" and wanted(mode, self.options)]
        for number in range(self.options.rounds or bench.rounds):
            if bench.turns:
                try:
                    for mode, values in self.turns(bench, modes, number).items():
                        found[mode] += values
                    continue
                except Failed as error:
                    errors = dict.fromkeys(modes, str(error))
                    break
            for mode in modes if number % 2 == 0 else modes[::-1]:
                if mode in errors:
                    continue
                result = self.measure(bench, mode)
                if isinstance(result, str):
                    errors[mode] = result
                else:
                    found[mode].append(result)
        if self.options.sanitizer and bench.sanitizer is not None:
            result = self.measure(bench, "sanitizer")
            if isinstance(result, str):
                errors["sanitizer"] = result
            else:
                found["sanitizer"].append(result)
        return found, errors


def wanted(mode, options):
    return {"before": options.before, "recorded": options.record}.get(mode, True)


def seconds(value):
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if abs(value) * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def cell(runs, measure, error):
    values = [run[measure] for run in runs if measure in run]
    if not values:
        return error or ""
    text = seconds(statistics.median(values))
    if len(values) > 1:
        text += f" ({seconds(min(values))} to {seconds(max(values))})"
    return text


def compared(before, after):
    """The ratio and the difference of the medians, and of the best rounds."""
    if not before or not after:
        return ""
    pairs = [(of(before), of(after)) for of in (statistics.median, min)]
    texts = [f"{two / one:.3f}, {'+' if two >= one else '-'}{seconds(abs(two - one))}" for one, two in pairs]
    return f"{texts[0]}; best {texts[1]}"


def compared_by_turns(before, after, turns):
    """The medians of the ratios and of the differences of all turns, and the range of these ratios by processes."""
    if not before or not after:
        return ""
    ratios = [two / one for one, two in zip(before, after)]
    of_processes = [statistics.median(ratios[start:start + turns]) for start in range(0, len(ratios), turns)]
    difference = statistics.median(two - one for one, two in zip(before, after))
    text = f"{statistics.median(ratios):.3f}, {'+' if difference >= 0 else '-'}{seconds(abs(difference))}"
    return f"{text}; by processes {min(of_processes):.3f} to {max(of_processes):.3f}"


def compared_with(mode, modes):
    """The modes that a mode is compared with."""
    bases = {"before": ["plain"], "cuguard": ["plain", "before"], "recorded": ["plain"]}.get(mode, [])
    return [base for base in bases if base in modes]


def rows(bench, found, errors, modes):
    for measure in bench.measures:
        values = {mode: [run[measure] for run in found[mode] if measure in run] for mode in modes}
        cells = [cell(found[mode], measure, errors.get(mode)) for mode in modes]
        for at, mode in reversed(list(enumerate(modes))):
            for base in reversed(compared_with(mode, modes)):
                both = values[base], values[mode]
                cells.insert(at + 1, compared_by_turns(*both, bench.turns) if bench.turns else compared(*both))
        suffix = {"value": "", "ready": ", until ready", "exit": ", from the end of main"}[measure]
        yield f"| {bench.name}{suffix} | {bench.target} | {' | '.join(cells)} |"


def main():
    options = arguments()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cuguard-bench-"))
    began = time.monotonic()
    failed = False
    try:
        chosen = [bench for bench in BENCHES if not options.only or bench.program in options.only]
        programs = sorted({bench.program for bench in chosen} | {"startup"})
        with ThreadPoolExecutor() as pool:
            unbuilt = {name: error for name, error in zip(programs, pool.map(lambda name: build(name, options, folder), programs)) if error}
        bencher = Bencher(options, folder)
        # The first run writes the audit library to its folder, and the first program wakes the GPU.
        for mode in ("plain", "cuguard", *(["before"] if options.before else [])):
            bencher.measure(next(bench for bench in BENCHES if bench.program == "startup"), mode)
        modes = [mode for mode in MODES if wanted(mode, options)]
        titles = {"plain": "plain", "before": "cuguard run before", "cuguard": "cuguard run", "recorded": "cuguard run --record", "sanitizer": "compute-sanitizer"}
        columns = [column for mode in modes for column in (titles[mode], *(f"over {base}" for base in compared_with(mode, modes)))]
        head = " | ".join(["program", "target", *columns])
        print(f"| {head} |\n|{'---|' * (head.count('|') + 1)}")
        for bench in chosen:
            found, errors = ({mode: [] for mode in MODES}, {"plain": f"not built: {unbuilt[bench.program]}"}) \
                if bench.program in unbuilt else bencher.alternate(bench)
            failed = failed or "plain" in errors or "cuguard" in errors
            for row in rows(bench, found, errors, modes):
                print(row.replace("\n", " "), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\nmedian (range of all rounds); {time.monotonic() - began:.0f} s in all")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
