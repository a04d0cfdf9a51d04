"""Compares what a program expects with what the tools report. Every difference is one sentence."""

import json

from .reading import MEMORY, Amount, call_site, diagnoses


def expectation(stdout):
    """The line of JSON that a program prints, or None."""
    for line in stdout.splitlines():
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                return None
    return None


def expected_amounts(expected):
    """(fate, count or None, bytes or None, at least) for each fate that the expectation names."""
    for fate in ("lost", "reachable", "destroyed"):
        if fate in expected:
            entry = expected[fate]
            if "at_least" in entry:
                yield fate, None, int(entry["at_least"]), True
            else:
                yield fate, entry["count"], entry["bytes"], False


def words(expected):
    """The expectation for the table."""
    parts = []
    for fate, count, size, least in expected_amounts(expected):
        if least:
            parts.append(f"{fate} ≥ {size} B")
        elif count or fate == "lost":
            parts.append(f"{fate} {count}, {size} B")
    return "; ".join(parts)


def found_words(found):
    parts = [f"{fate} {getattr(found, fate)}" for fate in ("lost", "reachable", "destroyed")
             if getattr(found, fate).count or fate == "lost"]
    return "; ".join(parts) if found.reports else "no report"


def differences(expected, found, stderr):
    """What the audit's report has otherwise than the program expects."""
    wrong = list(found.problems)
    sizes = expected.get("compare_bytes", True)
    for fate, count, size, least in expected_amounts(expected):
        amount = getattr(found, fate)
        if least:
            if amount.bytes < size:
                wrong.append(f"{fate}: {amount.bytes} B, expected at least {size} B")
        elif amount.count != count or (sizes and amount.bytes != size):
            wrong.append(f"{fate}: {amount}, expected {count}, {size} B")
    for kind, entry in expected.get("kinds", {}).items():
        amount = found.kinds.get(kind, Amount())
        exact = kind in MEMORY and sizes
        if amount.count != entry["count"] or (exact and amount.bytes != entry["bytes"]):
            wrong.append(f"kind {kind}: {amount}, expected {entry['count']}, {entry['bytes']} B")
    for kind, count in expected.get("handles", {}).items():
        amount = found.kinds.get(kind, Amount())
        if amount.count != count:
            wrong.append(f"kind {kind}: {amount.count}, expected {count}")
    for kind in expected.get("memory_kinds", []):
        if not found.kinds.get(kind, Amount()).count:
            wrong.append(f"no memory of kind {kind}")
    if "reports" in expected and found.reports != expected["reports"]:
        wrong.append(f"{found.reports} reports, expected {expected['reports']}")
    for text in expected.get("mentions", []):
        if text not in found.text:
            wrong.append(f"the report does not mention {text}")
    for text in expected.get("stderr", []):
        if text not in stderr:
            wrong.append(f"stderr does not mention {text}")
    if "grows" in expected and expected["grows"] not in json.dumps(found.growing):
        wrong.append(f"no growth is named at {expected['grows']}")
    if "grows" not in expected:
        wrong += [f"growth is named: {growing.get('blocks')} blocks, {call_site(growing)}" for growing in found.growing]
    if "diagnoses" in expected:
        wrong += wrong_diagnoses(expected["diagnoses"], diagnoses(stderr))
    return wrong


def wrong_diagnoses(expected, found):
    if isinstance(expected, dict):
        return [] if found >= expected["at_least"] else [f"{found} diagnoses, expected at least {expected['at_least']}"]
    return [] if found == expected else [f"{found} diagnoses, expected {expected}"]


def expected_of_sanitizer(expected):
    """What a tool counts that does not tell lost from reachable."""
    total = Amount()
    for fate in ("lost", "reachable", "destroyed"):
        entry = expected.get(fate, {})
        total.add(entry.get("count", 0), entry.get("bytes", 0))
    return total
