#!/usr/bin/env python3
"""Tests of the scripts: reading reports, comparing, and whole runs with a stand-in for the `cuguard` command."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE / "bench")]

from harness import comparing, reading
from harness.running import Outcome
from turns import Failed, take_turns

# Writes the report in the environment's FAKE_REPORT where --output says, and runs the program.
FAKE = """#!/usr/bin/env python3
import os, subprocess, sys
words = sys.argv[1:]
output = words[words.index("--output") + 1].replace("%p", str(os.getpid()))
if os.environ.get("FAKE_REPORT"):
    open(output, "w").write(os.environ["FAKE_REPORT"])
sys.exit(subprocess.run(words[words.index("--") + 1:]).returncode)
"""

PROGRAM = """#!/bin/sh
echo '{"lost": {"count": 1, "bytes": 512}, "reachable": {"count": 0, "bytes": 0}, "mentions": ["forget"]}'
exit 3
"""


def report(*groups):
    return {"tool": "cuguard-audit", "groups": list(groups)}


def group(kind, fate, count, size):
    return {"kind": kind, "fate": fate, "count": count, "bytes": size}


def read(*reports):
    with tempfile.TemporaryDirectory() as folder:
        for number, each in enumerate(reports):
            text = each if isinstance(each, str) else json.dumps(each)
            (pathlib.Path(folder) / f"{number}.json").write_text(text)
        return reading.figures(pathlib.Path(folder))


class Reading(unittest.TestCase):
    def test_amounts_of_all_processes_are_added(self):
        found = read(report(group("device", "lost", 2, 10)), report(group("device", "lost", 1, 5), group("stream", "lost", 3, 0)))
        self.assertEqual((found.reports, found.lost.count, found.lost.bytes), (2, 3, 15))
        self.assertEqual(found.kinds["stream"].count, 3)

    def test_a_file_with_several_lines(self):
        lines = "\n".join(json.dumps(report(group("device", "reachable", 1, 7))) for _ in range(2))
        self.assertEqual(read(lines).reachable.bytes, 14)

    def test_a_broken_file_is_a_problem(self):
        self.assertEqual(len(read("{").problems), 1)

    def test_an_unknown_fate_is_a_problem(self):
        self.assertEqual(read(report(group("device", "eaten", 1, 1))).problems, ["1 of device are eaten"])

    def test_what_is_freed_late_is_not_counted(self):
        found = read(report(group("device", "freed_late", 1, 1)))
        self.assertEqual((found.kinds, found.problems), ({}, []))

    def test_a_search_that_was_cut_short_is_a_problem(self):
        self.assertEqual(len(read({**report(), "search": {"cut_short": "time"}}).problems), 1)

    def test_another_schema_is_a_problem(self):
        self.assertEqual(len(read({"tool": "cuguard"}, {"tool": "cuguard-audit"}).problems), 2)

    def test_the_summaries_of_the_sanitizer_are_added(self):
        text = "========= LEAK SUMMARY: 1,024 bytes leaked in 1 allocations\n" * 2
        self.assertEqual(str(reading.sanitizer(Outcome(0, text, "", 0, False))), "2, 2048 B")
        self.assertIsNone(reading.sanitizer(Outcome(0, "", "", 0, False)))


class Comparing(unittest.TestCase):
    def wrong(self, expected, *reports, stderr=""):
        return comparing.differences(expected, read(*reports), stderr)

    def test_exact_amounts(self):
        expected = {"lost": {"count": 1, "bytes": 10}, "kinds": {"device": {"count": 1, "bytes": 10}}}
        self.assertEqual(self.wrong(expected, report(group("device", "lost", 1, 10))), [])
        self.assertEqual(len(self.wrong(expected, report(group("device", "lost", 1, 11)))), 2)
        self.assertEqual(len(self.wrong(expected, report(group("device", "reachable", 1, 10)))), 1)

    def test_at_least(self):
        expected = {"reachable": {"at_least": 10}}
        self.assertEqual(self.wrong(expected, report(group("device", "reachable", 1, 12))), [])
        self.assertEqual(len(self.wrong(expected, report(group("device", "reachable", 1, 9)))), 1)

    def test_reports_mentions_and_diagnoses(self):
        self.assertEqual(len(self.wrong({"reports": 0}, report())), 1)
        self.assertEqual(len(self.wrong({"mentions": ["main"]}, report())), 1)
        self.assertEqual(len(self.wrong({"grows": "main"}, report())), 1)
        growing = {**report(), "growth": [{"blocks": 9, "stack": [{"function": "main", "class": "user"}]}]}
        self.assertEqual(self.wrong({"grows": "main"}, growing), [])
        self.assertEqual(self.wrong({}, growing), ["growth is named: 9 blocks, main"])
        self.assertEqual(len(self.wrong({"diagnoses": 1}, report())), 1)

    def test_the_sanitizer_counts_all_fates(self):
        expected = {"lost": {"count": 1, "bytes": 1}, "reachable": {"count": 2, "bytes": 2}, "destroyed": {"count": 3, "bytes": 3}}
        self.assertEqual(str(comparing.expected_of_sanitizer(expected)), "6, 6 B")


# Answers each line with its name and the time, ends after as many answers as it is told, and with the code that it is told.
TURNS = """
import sys, time
name, most, code = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for _, line in zip(range(most), sys.stdin):
    print(name, time.monotonic_ns(), flush=True)
print("it is over", file=sys.stderr)
sys.exit(code)
"""


class Turns(unittest.TestCase):
    def take(self, *programs, turns=4, seconds=60):
        commands = [[sys.executable, "-c", TURNS, *map(str, program)] for program in programs]
        processor = min(os.sched_getaffinity(0))
        with tempfile.TemporaryDirectory() as folder:
            return take_turns(commands, turns, dict(os.environ), pathlib.Path(folder), processor, time.monotonic() + seconds)

    def test_each_answers_each_turn_and_the_order_alternates(self):
        answers = self.take(("a", 100, 0), ("b", 100, 0))
        self.assertEqual([len(each) for each in answers], [4, 4])
        in_order = sorted((line.split() for each in answers for line in each), key=lambda words: int(words[1]))
        self.assertEqual("".join(name for name, _ in in_order), "abbaabba")

    def test_one_that_ends_early(self):
        with self.assertRaisesRegex(Failed, "ended early: it is over"):
            self.take(("a", 100, 0), ("b", 3, 0))

    def test_one_that_fails_at_its_end(self):
        with self.assertRaisesRegex(Failed, r"exit codes \[0, 5\]"):
            self.take(("a", 100, 0), ("b", 100, 5))

    def test_one_that_does_not_answer(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(Failed, "timed out"):
            take_turns([["sleep", "600"]], 1, dict(os.environ), pathlib.Path(folder), min(os.sched_getaffinity(0)), time.monotonic() + 0.2)


class Running(unittest.TestCase):
    def run_with(self, fake_report, *options):
        with tempfile.TemporaryDirectory() as folder:
            paths = {"cuguard": FAKE, "program": PROGRAM}
            for name, text in paths.items():
                paths[name] = pathlib.Path(folder) / name
                paths[name].write_text(text)
                paths[name].chmod(0o755)
            environment = {"PATH": "/usr/bin:/bin:" + str(pathlib.Path(sys.executable).parent), "FAKE_REPORT": fake_report}
            return subprocess.run([sys.executable, HERE / "run.py", paths["cuguard"], "--binary", f"it={paths['program']}",
                                   "--only", "it", *options], capture_output=True, text=True, env=environment)

    def test_as_expected(self):
        right = report({**group("device", "lost", 1, 512), "stack": ["forget"]})
        done = self.run_with(json.dumps(right))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("| it | lost 1, 512 B | lost 1, 512 B |", done.stdout)

    def test_different(self):
        done = self.run_with(json.dumps(report(group("device", "lost", 1, 513))))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("lost: 1, 513 B, expected 1, 512 B", done.stdout)
        self.assertIn("it: lost device 1, 513 B", done.stdout)

    def test_no_report(self):
        self.assertIn("no report", self.run_with("").stdout)

    def test_no_time_left(self):
        done = self.run_with("", "--budget", "0")
        self.assertIn("not run: the time budget is spent", done.stdout)

    def test_an_unknown_name(self):
        self.assertIn("no program is named other", self.run_with("", "--only", "other").stderr)


if __name__ == "__main__":
    unittest.main()
