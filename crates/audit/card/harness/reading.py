"""Reads what the tools report: the JSON of `cuguard run`, and the summary lines of compute-sanitizer.

All knowledge of the audit's JSON (docs/audit-report-schema.md) is in `figures` and `add`.
"""

import json
import re
from dataclasses import dataclass, field

# The kinds whose bytes are memory. The amounts of a fate are memory alone here; handles are compared by kind.
MEMORY = {"device", "stream_ordered", "pinned", "registered", "write_combined", "managed", "array", "physical", "mapped", "imported",
          "graph_memory"}
# The fates that programs expect. `freed_late` is no leak; `unclassified` is a search that was cut short.
FATES = {"lost": "lost", "reachable": "reachable", "destroyed_with_context": "destroyed"}


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
    groups: list = field(default_factory=list)
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


def figures(folder):
    """What the reports in a folder say together. All that is not understood is a problem, and so a difference."""
    total = Figures()
    for report, text in objects(folder):
        if "unreadable" in report:
            total.problems.append(report["unreadable"])
        elif report.get("tool") != "cuguard-audit":
            total.problems.append(f"a report of the tool {report.get('tool')}")
        elif not isinstance(report.get("groups"), list):
            total.problems.append("a report without groups")
        else:
            add(total, report, text)
    return total


def add(total, report, text):
    total.reports += 1
    total.text += text
    total.groups += report["groups"]
    for group in report["groups"]:
        kind, fate = group.get("kind"), group.get("fate")
        count, size = int(group.get("count", 0)), int(group.get("bytes", 0))
        if fate == "freed_late":
            continue
        total.kinds.setdefault(kind, Amount()).add(count, size)
        if kind not in MEMORY:
            continue
        if fate in FATES:
            getattr(total, FATES[fate]).add(count, size)
        else:
            total.problems.append(f"{count} of {kind} are {fate}")
    total.growing += report.get("growth") or []
    cut_short = (report.get("search") or {}).get("cut_short")
    if cut_short:
        total.problems.append(f"the search was cut short: {cut_short}")


def call_site(group):
    """The innermost functions of the program."""
    frames = [frame for frame in group.get("stack") or [] if isinstance(frame, dict)]
    own = [frame for frame in frames if frame.get("class") == "user"] or frames
    names = [str(frame.get("function") or frame.get("module") or frame.get("address")) for frame in own[:3]]
    return " < ".join(names)[:160]


def group_line(group):
    """A group on one line, for whoever has to find out why it is there."""
    holder = f" held by {group['holder']}" if group.get("holder") else ""
    return f"{group.get('fate')} {group.get('kind')} {group.get('count')}, {group.get('bytes')} B{holder}: {call_site(group)}"


# The first line of each diagnosis of an allocation that the driver refused.
DIAGNOSIS = re.compile(r"^cuguard: out of memory: ", re.MULTILINE)


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
