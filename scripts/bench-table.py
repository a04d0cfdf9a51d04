#!/usr/bin/env python3
"""Turns the lines of a benchmark into tables for benches/RESULTS.md.

    cargo bench --bench tracking | scripts/bench-table.py

A line looks like `pair mode=sync size=4B way=cust ns=812 ratio=1.000`: a section, then names and
values. `way` becomes the columns, other names the rows. Any other line is printed unchanged above
the tables.
"""

import re
import sys

FIGURES = {
    "pair": ["ns", "ratio"],
    "churn": ["ns", "ratio"],
    "depth": ["ns", "added"],
    "threads": ["ns", "added", "outside_ns"],
    "scaling": ["stacks_own_ns", "over_one_thread"],
    "memory": ["bytes_a_record"],
    "report": ["ms", "peak_mib", "kib"],
    "shortage": ["ms", "first_ms", "text_ms", "cust_ms"],
}


def main():
    if len(sys.argv) > 1:
        print(__doc__.strip())
        return 0 if sys.argv[1] in ("-h", "--help") else 2
    sections = {}
    for line in sys.stdin:
        line = line.rstrip()
        name = line.split(" ", 1)[0]
        # A value ends where the next name begins, so it may have spaces in it.
        pairs = dict(re.findall(r"(\w+)=(.*?)(?= \w+=|$)", line))
        figures = [f for f in FIGURES.get(name, []) if f in pairs]
        if not figures:
            print(line)
            continue
        keys = tuple(k for k in pairs if k not in FIGURES[name] and k not in ("way", "ratio"))
        rows = sections.setdefault((name, keys), {})
        row = rows.setdefault(tuple(pairs[k] for k in keys), {})
        row[pairs.get("way", "")] = " / ".join(pairs[f] for f in figures)
    for (name, keys), rows in sections.items():
        ways = list(dict.fromkeys(way for row in rows.values() for way in row))
        print(f"\n**{name}**, {' / '.join(FIGURES[name])}\n")
        print("| " + " | ".join([*keys, *(way or "figures" for way in ways)]) + " |")
        print("|" + "---|" * (len(keys) + len(ways)))
        for row, cells in rows.items():
            print("| " + " | ".join([*row, *(cells.get(way, "") for way in ways)]) + " |")
    return 0


sys.exit(main())
