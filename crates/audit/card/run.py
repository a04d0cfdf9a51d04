#!/usr/bin/env python3
"""Compares `cuguard run` with what small CUDA programs expect, and with compute-sanitizer, on a machine with a GPU.

    crates/audit/card/run.py target/release/cuguard
    crates/audit/card/run.py target/release/cuguard --sanitizer programs
    crates/audit/card/run.py target/release/cuguard --only pool --only managed --keep /tmp/card

Exit code 1: a report differs from what its program expects. README.md beside this file says more.
"""

import argparse
import os
import pathlib
import resource
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from harness import comparing, reading
from harness.building import Toolkit, build_all
from harness.programs import PROGRAMS, SAME, Program
from harness.running import Runner, absolute


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cuguard", nargs="?", help="the cuguard command")
    parser.add_argument("--list", action="store_true", help="print the names of the programs and end")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a program, or the beginning of names followed by *")
    parser.add_argument("--skip", action="append", default=[], metavar="NAME", help="leave out, in the same form")
    parser.add_argument("--sanitizer", choices=["none", "programs", "all"], default="none",
                        help="compare with compute-sanitizer: not, for compiled programs, for Python programs too (slow)")
    parser.add_argument("--binary", action="append", default=[], metavar="NAME=PATH",
                        help="a program that is built already and prints its expectation")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="for one run of one program")
    parser.add_argument("--sanitizer-timeout", type=float, default=60, metavar="SECONDS")
    parser.add_argument("--budget", type=float, default=420, metavar="SECONDS", help="no program is started after this time")
    parser.add_argument("--jobs", type=int, default=min(6, os.cpu_count() or 1), help="programs at a time")
    parser.add_argument("--cuda", default=os.environ.get("CUDA_HOME", "/usr/local/cuda"), help="the CUDA toolkit")
    parser.add_argument("--architecture", default="sm_90", help="of the GPU, for nvcc")
    parser.add_argument("--libcuda", metavar="FOLDER", help="use the libcuda.so.1 in this folder, such as the simulated one, and "
                        "run only programs of the driver API")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--compute-sanitizer", default="compute-sanitizer")
    parser.add_argument("--details", type=int, default=3, metavar="N", help="show the N largest groups of a report that differs")
    parser.add_argument("--keep", metavar="FOLDER", help="build and run there, and leave everything")
    options = parser.parse_args()
    if not options.list:
        check(parser, options)
    return options


def check(parser, options):
    if not options.cuguard:
        parser.error("the path of the cuguard command is missing")
    options.cuguard = absolute(options.cuguard)
    if not shutil.which(options.cuguard):
        parser.error(f"{options.cuguard} is not an executable file")
    if options.sanitizer != "none" and not shutil.which(options.compute_sanitizer):
        beside = pathlib.Path(options.cuda) / "bin/compute-sanitizer"
        if not beside.exists():
            parser.error(f"{options.compute_sanitizer} is not in PATH and not in {beside.parent}")
        options.compute_sanitizer = str(beside)
    if options.libcuda:
        options.libcuda = absolute(options.libcuda + os.sep)


def matches(name, patterns):
    return any(name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern for pattern in patterns)


def selected(options):
    programs = PROGRAMS + [Program(name, path, "binary") for name, path in (entry.split("=", 1) for entry in options.binary)]
    unknown = [pattern for pattern in options.only + options.skip if not any(matches(each.name, [pattern]) for each in programs)]
    if unknown:
        sys.exit(f"run.py: no program is named {unknown[0]}: --list prints the names")
    chosen = [each for each in programs if (not options.only or matches(each.name, options.only)) and not matches(each.name, options.skip)]
    if options.libcuda:
        chosen = [each for each in chosen if each.build in ("driver", "binary")]
    return chosen


@dataclass
class Row:
    program: Program
    expected: str = ""
    cuguard: str = ""
    sanitizer: str = ""
    notes: list = field(default_factory=list)
    wrong: list = field(default_factory=list)
    skipped: bool = False
    groups: list = field(default_factory=list)


def examine(program, runner, options):
    """Runs a program in all ways that are asked for."""
    row = Row(program, notes=[program.note] if program.note else [])
    plain = runner.plain(program)
    expected = comparing.expectation(plain.stdout)
    if plain.timed_out or plain.status() == 99 or expected is None:
        row.wrong.append(f"the plain run failed with {plain.status()}: {plain.tail()}")
        return row
    if "skip" in expected:
        row.skipped, row.expected = True, f"not run: {expected['skip']}"
        return row
    row.expected = comparing.words(expected)
    audited, folder = runner.audited(program)
    # Sizes may depend on the run, such as what a caching allocator has reserved.
    expected_here = comparing.expectation(audited.stdout) or expected
    found = reading.figures(folder)
    row.cuguard = comparing.found_words(found)
    row.groups = sorted(found.groups, key=lambda group: -int(group.get("bytes", 0)))
    if audited.timed_out:
        row.wrong.append("timed out under cuguard run")
    elif audited.status() != plain.status():
        row.wrong.append(f"exit code {audited.status()} under cuguard run, {plain.status()} without: {audited.tail()}")
    row.wrong += comparing.differences(expected_here, found, audited.stderr)
    if options.sanitizer == "all" or (options.sanitizer == "programs" and program.build != "python"):
        compare_with_sanitizer(program, runner, expected, row)
    return row


def compare_with_sanitizer(program, runner, expected, row):
    outcome = runner.sanitized(program)
    counted = reading.sanitizer(outcome)
    row.sanitizer = "timed out" if outcome.timed_out else f"no summary (exit {outcome.status()})" if counted is None else str(counted)
    if program.sanitizer == SAME:
        same = comparing.expected_of_sanitizer(expected)
        if counted != same:
            row.wrong.append(f"the sanitizer counts {row.sanitizer}, expected {same}")


def guarded(program, runner, options, deadline):
    if time.monotonic() > deadline:
        return Row(program, expected="not run: the time budget is spent", skipped=True)
    try:
        return examine(program, runner, options)
    except Exception as error:  # a row is better than no table
        return Row(program, wrong=[f"{type(error).__name__}: {error}"])


def table(rows):
    lines = ["| program | expected | cuguard | sanitizer | note |", "|---|---|---|---|---|"]
    for row in rows:
        verdict = "**" + "; ".join(row.wrong) + "**" if row.wrong else ""
        note = "; ".join(filter(None, [verdict, *row.notes])).replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {row.program.name} | {row.expected} | {row.cuguard} | {row.sanitizer} | {note} |")
    return "\n".join(lines)


def main():
    options = arguments()
    if options.list:
        print("\n".join(program.name for program in PROGRAMS))
        return 0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    programs = selected(options)
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="cuguard-card-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        toolkit = Toolkit(options.cuda, options.libcuda, options.architecture)
        errors = build_all(programs, toolkit, folder, os.cpu_count() or 1)
        built = time.monotonic() - began
        runner = Runner(options, toolkit, folder)
        rows = {name: Row(program, wrong=[f"not built: {errors[name]}"]) for program in programs if (name := program.name) in errors}
        ready = [program for program in programs if program.name not in errors]
        deadline = began + options.budget
        with ThreadPoolExecutor(options.jobs) as pool:
            together = [program for program in ready if not program.alone]
            for row in pool.map(lambda program: guarded(program, runner, options, deadline), together):
                rows[row.program.name] = row
        for program in ready:
            if program.alone:
                rows[program.name] = guarded(program, runner, options, deadline)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    ordered = [rows[program.name] for program in programs]
    print(table(ordered) + "\n")
    wrong, skipped = [row for row in ordered if row.wrong], [row for row in ordered if row.skipped]
    for row in wrong:
        for group in row.groups[:options.details]:
            print(f"{row.program.name}: {reading.group_line(group)}")
    print(f"\n{len(ordered)} programs: {len(ordered) - len(wrong) - len(skipped)} as expected, {len(wrong)} different, "
          f"{len(skipped)} not run; built in {built:.0f} s, {time.monotonic() - began:.0f} s in all")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
