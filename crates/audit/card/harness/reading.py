"""Reads what the tools report: the JSON of `cuguard run`, and the summary lines of compute-sanitizer.

All knowledge of the audit's JSON (docs/audit-report-schema.md) is in `figures`.
"""

import json
import re
from dataclasses import dataclass, field

MEMORY = {"device", "stream_ordered", "pinned", "registered", "write_combined", "managed", "array", "physical", "imported",
          "graph_memory"}
FATES = {"lost": "lost", "reachable": "reachable", "destroyed_with_context": "destroyed", "destroyed": "destroyed"}


@dataclass
class Amount:
    count: int = 0
    bytes: int = 0

    def add(self, count, size):
        self.count += count
        self.bytes += size

    def __str__(self):
        return f"{self.count}, {self.bytes} B"


@dataclass
class Figures:
    """What the reports of all processes of a program say together."""
    lost: Amount = field(default_factory=Amount)
    reachable: Amount = field(default_factory=Amount)
    destroyed: Amount = field(default_factory=Amount)
    kinds: dict = field(default_factory=dict)
    growing: list = field(default_factory=list)
    reports: int = 0
    text: str = ""
    problems: list = field(default_factory=list)


def objects(folder):
    """The JSON objects in the files of a folder, with the text that each was read from. A file may hold several lines."""
    for path in sorted(folder.glob("*")):
        text = path.read_text(errors="replace")
        try:
            yield json.loads(text), text
            continue
        except ValueError:
            pass
        for line in filter(str.strip, text.splitlines()):
            try:
                yield json.loads(line), line
            except ValueError as error:
                yield {"unreadable": f"{path.name}: {error}"}, line


def groups(report):
    """The groups of a report, each with its fate: in one list with a member `fate`, or in one list for each fate."""
    for name in ("groups", "leaks", "resources", "live"):
        for group in report.get(name) or []:
            if isinstance(group, dict) and "kind" in group:
                yield FATES.get(group.get("fate")), group
    for name, fate in FATES.items():
        value = report.get(name)
        listed = value.get("groups") if isinstance(value, dict) else value
        for group in listed if isinstance(listed, list) else []:
            if isinstance(group, dict) and "kind" in group:
                yield fate, group


def figures(folder):
    total = Figures()
    for report, text in objects(folder):
        if "unreadable" in report:
            total.problems.append(report["unreadable"])
            continue
        if report.get("tool") != "cuguard-audit":
            continue
        total.reports += 1
        total.text += text
        for fate, group in groups(report):
            kind, count, size = group["kind"], int(group.get("count", 1)), int(group.get("bytes", 0))
            total.kinds.setdefault(kind, Amount()).add(count, size)
            if fate is None:
                total.problems.append(f"a group of {kind} without a known fate: {group.get('fate')}")
            elif kind in MEMORY:
                getattr(total, fate).add(count, size)
        for name in ("growth", "growing", "suspects"):
            value = report.get(name) or []
            total.growing += value if isinstance(value, list) else [value]
    return total


# The first line of each diagnosis of an allocation that the driver refused.
DIAGNOSIS = re.compile(r"^.*out of memory: .*$", re.MULTILINE)


def diagnoses(stderr):
    return len(DIAGNOSIS.findall(stderr))


SUMMARY = re.compile(r"LEAK SUMMARY: ([\d,]+) bytes leaked in ([\d,]+) allocations?")


def sanitizer(outcome):
    """What compute-sanitizer counts, over all processes, or None where it printed no summary."""
    found = SUMMARY.findall(outcome.stdout + outcome.stderr)
    if not found:
        return None
    total = Amount()
    for size, count in found:
        total.add(int(count.replace(",", "")), int(size.replace(",", "")))
    return total
