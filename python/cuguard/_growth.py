"""A block of a program that must not keep memory."""

import gc
import sys
from typing import List

from ._snapshot import Site, Snapshot, snapshot

_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))

#: What kinds of memory are called, as in the reports of ``cuguard run``.
_MEMORY = {
    "pooled": "pool memory",
    "pinned": "pinned host memory",
    "registered": "registered host memory",
    "write_combined": "write-combined host memory",
    "mapped": "mapped physical memory",
    "stream_ordered": "stream-ordered memory",
    "graph_memory": "graph memory",
}


def size(number: int) -> str:
    """Bytes as text: ``1.5 MiB``."""
    for unit, factor in _UNITS:
        if number >= factor:
            return ("%.1f" % (number / factor)).rstrip("0").rstrip(".") + " " + unit
    return "%d B" % number


def counted(site: Site) -> str:
    """What a call site has: ``64 MiB in 2 allocations of device memory, train.py:12 in load``."""
    plural = "" if site.count == 1 else "s"
    memory = _MEMORY.get(site.kind) or site.kind.replace("_", " ") + " memory"
    if not site.bytes:
        what = "%d %s%s" % (site.count, site.kind.replace("_", " "), plural)
    elif site.count > 0:
        what = "%s in %d allocation%s of %s" % (size(site.bytes), site.count, plural, memory)
    else:
        # Fewer than before, and larger ones.
        what = "%s more in allocations of %s" % (size(site.bytes), memory)
    label = " (%s)" % site.label if site.label else ""
    return "%s%s, %s" % (what, label, site.place)


def settle() -> None:
    """Frees what is garbage, and what the caches of PyTorch and CuPy keep unused. Imports neither."""
    gc.collect()
    for release in (_release_torch, _release_cupy):
        try:
            release()
        except Exception:
            # A stand-in for the framework, or a device that has failed: what is alive is compared all the same.
            pass


def _release_torch():
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        # The workspaces of cuBLAS are tensors, which the library would keep.
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None:
            clear()
        torch.cuda.empty_cache()


def _release_cupy():
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()


class MemoryGrowth(AssertionError):
    """A block that must not grow did: more is alive at its end than at its start."""

    def __init__(self, total: int, allowed: int, grown: List[Site], before: Snapshot, after: Snapshot):
        #: What grew, the largest first.
        self.sites = grown
        self.before = before
        self.after = after
        lines = ["memory grew by %s" % size(total)]
        if allowed:
            lines[0] += ", %s are allowed" % size(allowed)
        lines += ["  " + counted(site) for site in grown]
        super().__init__("\n".join(lines))


class no_growth:
    """A block after which no more CUDA memory is alive than before, or at most ``allowed`` bytes more.

    Before both comparisons garbage is collected, and the caches of PyTorch and CuPy release what they keep unused. Handles
    (streams, events, ...) and what libraries load on first use are not compared, memory alone is.

    >>> with cuguard.no_growth():
    ...     train_step()
    Traceback (most recent call last):
    cuguard.MemoryGrowth: memory grew by 64 MiB
      64 MiB in 1 allocation of device memory, train.py:12 in train_step
    """

    def __init__(self, allowed: int = 0):
        if allowed < 0:
            raise ValueError("allowed is a number of bytes, 0 or more: %r" % (allowed,))
        self.allowed = allowed
        self._before = None

    def __enter__(self) -> "no_growth":
        settle()
        self._before = snapshot()
        return self

    def __exit__(self, kind, error, traceback) -> None:
        # What failed keeps what its stack trace refers to.
        if kind is not None:
            return
        settle()
        after = snapshot()
        grown = [site for site in after.growth_since(self._before) if site.bytes]
        # What replaces what another line allocated is no growth.
        total = min(sum(site.bytes for site in grown), after._total_growth(self._before))
        if total > self.allowed:
            raise MemoryGrowth(total, self.allowed, grown, self._before, after)
