"""Who holds the GPU's memory: the figures of a program that runs under ``cuguard run``.

The command ``cuguard`` comes with this package. It runs any CUDA program, unchanged, and reports what it leaks::

    cuguard run -- python3 train.py

In such a program this module tells what is alive (`snapshot`, `report`), how much was (`restart_peak`), and
asserts that a block keeps nothing (`no_growth`). ``pytest --cuguard`` does so for each test.
"""

from ._growth import MemoryGrowth, no_growth
from ._process import NotAudited, is_audited
from ._snapshot import Site, Snapshot, report, restart_peak, snapshot

__all__ = [
    "MemoryGrowth",
    "NotAudited",
    "Site",
    "Snapshot",
    "is_audited",
    "no_growth",
    "report",
    "restart_peak",
    "snapshot",
]
