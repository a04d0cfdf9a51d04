"""What is alive at one moment, and what grew between two."""

from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from ._process import ask, ask_json

#: The most call sites that the audit library names.
_MOST_SITES = 100_000


class Site(NamedTuple):
    """What one call site has alive."""

    #: What it is: ``device``, ``stream_ordered``, ``pinned``, ``stream``, ``event``, ...
    kind: str
    #: The function of the program, ``None`` where its name is not known.
    function: Optional[str]
    file: Optional[str]
    line: Optional[int]
    label: Optional[str]
    #: Whether it is memory of a device.
    on_device: bool
    #: The same text for the same stack trace, in all snapshots of a process. The function, file and line do not tell: which frame
    #: names a call site depends on the others. Empty where several stack traces were added up.
    stack: str
    count: int
    #: The bytes of memory; 0 for handles.
    bytes: int

    @property
    def place(self):
        """Where it is in the program: ``train.py:12 in load``."""
        where = self.file or "?"
        if self.line is not None:
            where += ":%d" % self.line
        return "%s in %s" % (where, self.function) if self.function else where

    def _key(self):
        return self.kind, self.stack, self.label

    def _shown_key(self):
        return self[:6]


class Snapshot(NamedTuple):
    """What this process has alive at one moment."""

    #: Live bytes of device memory: without what PyTorch or CuPy would call free within a block of their caches.
    device_bytes: int
    device_count: int
    #: How many blocks of device memory were allocated so far.
    allocated_count: int
    #: How many allocations the driver refused so far for lack of memory.
    refused_count: int
    #: Live bytes by kind.
    bytes_by_kind: Dict[str, int]
    #: The call sites that hold most bytes first; at most 100,000.
    sites: Tuple[Site, ...]

    def growth_since(self, earlier: "Snapshot") -> List[Site]:
        """What each call site has alive more than then, the largest first; ``count`` and ``bytes`` are differences."""
        return merged(self._growth_by_stack(earlier))

    def _total_growth(self, earlier):
        """How many bytes of memory are alive more than then, whichever call site allocated them."""
        return sum(self.bytes_by_kind.values()) - sum(earlier.bytes_by_kind.values())

    def _growth_by_stack(self, earlier):
        before = {site._key(): site for site in earlier.sites}
        grown = []
        for site in self.sites:
            old = before.get(site._key())
            count = site.count - (old.count if old else 0)
            size = site.bytes - (old.bytes if old else 0)
            if size > 0 or (size == 0 and count > 0):
                grown.append(site._replace(count=count, bytes=size))
        return grown


def merged(sites: Iterable[Site]) -> List[Site]:
    """Adds up those with one name, such as two allocations in a line by two paths. The largest first."""
    sums = {}
    for site in sites:
        key = site._shown_key()
        same = sums.get(key)
        if same is not None:
            site = site._replace(stack="", count=site.count + same.count, bytes=site.bytes + same.bytes)
        sums[key] = site
    return sorted(sums.values(), key=lambda site: (-site.bytes, -site.count, site.kind, site.place))


def snapshot() -> Snapshot:
    """What this process has alive: bytes by kind, and the call sites that hold them.

    >>> before = cuguard.snapshot()
    >>> model = load()
    >>> for site in cuguard.snapshot().growth_since(before):
    ...     print(site.place, site.bytes)
    model.py:7 in load 67108864

    Raises `NotAudited` where the process does not run under ``cuguard run``.
    """
    figures = ask_json("stats %d" % _MOST_SITES)
    if figures is None:
        return Snapshot(0, 0, 0, 0, {}, ())
    return _of(figures)


def _of(figures):
    names = Site._fields
    sites = tuple(Site(*(one[name] for name in names)) for one in figures["sites"])
    return Snapshot(
        figures["device_live_bytes"],
        figures["device_live_count"],
        figures["device_allocated_count"],
        figures.get("refused_count") or 0,
        {kind["kind"]: kind["live_bytes"] for kind in figures["kinds"] if kind["live_bytes"]},
        sites,
    )


def report(search: bool = True) -> str:
    """The report of this moment as text: what is lost, what is still reachable, and what grows.

    ``search`` has the memory of the process searched for addresses, which stops its threads for that time. Without it nothing
    can be called lost.
    """
    text = ask("dump text %s" % ("search" if search else "no-search"))
    return "this process has not used CUDA\n" if text is None else text


def restart_peak() -> int:
    """The most bytes of device memory that were alive since the last call, or since the start of the program.

    >>> cuguard.restart_peak()
    0
    >>> step()
    >>> cuguard.restart_peak()
    805306368
    """
    return peak_for("program")


#: The most since each of them asked last. The audit library has one such moment.
_PEAKS = {"program": 0, "plugin": 0}


def peak_for(asker: str) -> int:
    """What `restart_peak` returns, for the program or for the plugin of pytest."""
    reply = ask("peak")
    if reply is not None:
        for one in _PEAKS:
            _PEAKS[one] = max(_PEAKS[one], int(reply))
    peak, _PEAKS[asker] = _PEAKS[asker], 0
    return peak
