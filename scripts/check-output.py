#!/usr/bin/env python3
"""Checks that the program output in README.md and docs/guide is what the programs print.

    scripts/check-output.py          compares; exit code 1 where they differ
    scripts/check-output.py --fix    writes the actual output into the documents

In a `console` block the lines after a command are its output; a line `...` stands for any lines. Commands that run an
example or `cuguard doctor` are checked, on the simulated GPU. Times and the line about the selected driver are not compared.
Needs cargo.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(```console\n)(.*?)(```)", re.DOTALL)


def run(command):
    """What the command prints, or None for a command that is not checked."""
    words = shlex.split(command)
    settings = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    words = [word for word in words if not re.match(r"[A-Z_]+=", word)]
    if words[:3] == ["cargo", "run", "--example"]:
        words.insert(2, "--quiet")
    elif words[:2] == ["cuguard", "doctor"]:
        words = ["cargo", "run", "--quiet", "-p", "cuguard-cli", "--", *words[1:]]
    else:
        return None
    variables = {name: value for name, value in os.environ.items() if name != "LEAK_REPORT"}
    variables |= settings | {"CUGUARD_DRIVER": "sim", "COLUMNS": "1000"}
    output = subprocess.run(words, cwd=ROOT, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return output.stdout.rstrip("\n").split("\n")


def comparable(line):
    if line.startswith("cuguard: using the simulated GPU"):
        return "the selected driver"
    return re.sub(r"\b\d+(\.\d+)? (ns|µs|ms|s)\b( to \d+(\.\d+)? (ns|µs|ms|s))?", "TIME", line)


def matches(shown, actual):
    """Whether the shown lines, in which `...` stands for any lines, are the actual ones."""
    if not shown:
        return not actual
    if shown[0] == "...":
        return any(matches(shown[1:], actual[at:]) for at in range(len(actual) + 1))
    return bool(actual) and comparable(shown[0]) == comparable(actual[0]) and matches(shown[1:], actual[1:])


def updated(shown, actual):
    """The actual output, shortened as the shown one is. A part between two `...` begins at the line that it began with."""
    parts, result = [[]], []
    for line in shown:
        parts.append([]) if line == "..." else parts[-1].append(line)
    if len(parts) == 1:
        return actual
    keys = [comparable(line) for line in actual]
    for part in parts[1:-1]:
        first = comparable(part[0]) if part else None
        result.append("...")
        if first in keys:
            result += actual[keys.index(first) :][: len(part)]
    return actual[: len(parts[0])] + result + ["..."] + actual[len(actual) - len(parts[-1]) :]


def main():
    if sys.argv[1:] not in ([], ["--fix"]):
        print(__doc__.strip())
        return 0 if sys.argv[1] in ("-h", "--help") else 2
    fix, differ = sys.argv[1:] == ["--fix"], 0
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/guide/*.md"))]:
        text = path.read_text(encoding="utf-8")

        def block(match):
            nonlocal differ
            lines, result = match[2].split("\n")[:-1], []
            starts = [at for at, line in enumerate(lines) if line.startswith("$ ")] + [len(lines)]
            for start, end in zip(starts, starts[1:]):
                shown = lines[start + 1 : end]
                actual = run(lines[start][2:])
                if actual is not None and not matches(shown, actual):
                    differ += 1
                    print(f"{path.relative_to(ROOT)}: not the output of {lines[start][2:]}")
                    shown = updated(shown, actual)
                    print("\n".join(f"    {line}" for line in shown))
                result += [lines[start], *shown]
            return match[1] + "\n".join(result) + "\n" + match[3] if starts[0] == 0 and lines else match[0]

        new = BLOCK.sub(block, text)
        if fix and new != text:
            path.write_text(new, encoding="utf-8")
    print(f"{differ} outputs differ{', fixed' if fix and differ else ''}" if differ else "the documents show what the programs print")
    return bool(differ and not fix)


sys.exit(main())
