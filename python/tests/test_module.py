"""The functions of the module, in programs under `cuguard run`."""

import sys

MIB = 1 << 20


def test_what_is_alive_and_what_grew(audited):
    code, output = audited(
        """
import cuguard
from driver import Block

assert cuguard.is_audited()
# Before CUDA is used.
assert cuguard.snapshot().device_bytes == 0 and cuguard.restart_peak() == 0

def load():
    blocks = []
    for _ in range(2):
        blocks.append(Block(3 << 20))
    return blocks

first = Block(1000)
before = cuguard.snapshot()
model = load()
after = cuguard.snapshot()
assert after.device_bytes - before.device_bytes == 6 << 20
assert after.allocated_count - before.allocated_count == 2
assert after.bytes_by_kind == {"device": (6 << 20) + 1000}
(site,) = after.growth_since(before)
assert (site.kind, site.on_device, site.count, site.bytes) == ("device", True, 2, 6 << 20), site
assert site.place == "program.py:12 in load", site.place
assert before.growth_since(after) == []
assert "program.py" in cuguard.report(search=False)
print("passed")
"""
    )
    assert code == 0 and "passed\n" in output, output


def test_the_peak_begins_anew(audited):
    code, output = audited(
        """
import cuguard
from driver import Block

kept = Block(1 << 20)
assert cuguard.restart_peak() == 1 << 20
Block(4 << 20)
Block(2 << 20)
assert cuguard.restart_peak() == 5 << 20
assert cuguard.restart_peak() == 1 << 20
print("passed")
"""
    )
    assert code == 0 and "passed\n" in output, output


def test_a_block_that_must_not_grow(audited):
    code, output = audited(
        """
import cuguard
from driver import Block

kept = []
def keep(size):
    kept.append(Block(size))

with cuguard.no_growth():
    Block(1 << 20)
with cuguard.no_growth(allowed=1 << 20):
    keep(1 << 20)
try:
    with cuguard.no_growth():
        keep(3 << 20)
except cuguard.MemoryGrowth as error:
    text = str(error)
    assert text.startswith("memory grew by 3 MiB\\n  3 MiB in 1 allocation of device memory, "), text
    assert text.endswith("program.py:15 in <module>"), text
    assert error.sites[0].bytes == 3 << 20
else:
    raise SystemExit("nothing was raised")
# An error is not replaced.
try:
    with cuguard.no_growth():
        keep(1 << 20)
        raise KeyError("own")
except KeyError:
    pass
try:
    cuguard.no_growth(allowed=-1)
except ValueError as error:
    assert "-1" in str(error)
print("passed")
"""
    )
    assert code == 0 and "passed\n" in output, output


def test_what_replaces_other_memory_is_no_growth(audited):
    code, output = audited(
        """
import cuguard
from driver import Block

holder = [Block(3 << 20)]
with cuguard.no_growth():
    holder[0] = None
    holder[0] = Block(3 << 20)
try:
    with cuguard.no_growth():
        holder[0] = None
        holder[0] = Block(4 << 20)
except cuguard.MemoryGrowth as error:
    assert str(error).startswith("memory grew by 1 MiB\\n"), error
else:
    raise SystemExit("nothing was raised")
print("passed")
"""
    )
    assert code == 0 and "passed\n" in output, output


def test_many_call_sites(audited):
    lines = "\n".join("def f%d(): return Block(1 << 20)" % number for number in range(800))
    code, output = audited(
        """
import cuguard
from driver import Block
%s
keep = [globals()["f%%d" %% number]() for number in range(800)]
before = cuguard.snapshot()
assert len(before.sites) >= 800, len(before.sites)
keep.append(Block(1000))
(site,) = cuguard.snapshot().growth_since(before)
assert site.bytes == 1000, site
with cuguard.no_growth():
    del keep[:300]
print("passed")
"""
        % lines
    )
    assert code == 0 and "passed\n" in output, output


def test_refused_allocations_are_counted(audited):
    code, output = audited(
        """
import cuguard
from driver import Block, OutOfMemory

for _ in range(2):
    try:
        Block(1 << 50)
    except OutOfMemory:
        pass
    Block(1000)
assert cuguard.snapshot().refused_count == 2, cuguard.snapshot()
print("passed")
"""
    )
    assert code == 0 and "passed\n" in output, output


def test_a_child_has_figures_of_its_own(audited):
    code, output = audited(
        """
import os
import cuguard
from driver import Block

kept = Block(1 << 20)
assert cuguard.snapshot().device_bytes == 1 << 20
child = os.fork()
if child == 0:
    # CUDA does not work in a forked child.
    os._exit(cuguard.snapshot().device_bytes != 0)
assert os.waitpid(child, 0)[1] == 0
print("passed")
"""
    )
    assert code == 0 and "passed\n" in output, output


def test_without_cuguard_run_the_error_says_what_to_do(run):
    text = "import cuguard\nassert not cuguard.is_audited()\ncuguard.snapshot()"
    code, output = run(sys.executable, "-c", text)
    assert code == 1
    assert "cuguard._process.NotAudited: " in output or "cuguard.NotAudited: " in output
    assert "start it with `cuguard run -- python3 ...`" in output, output


def test_the_demo_of_the_documentation(audited):
    code, output = audited("from cuguard.demo import main\nmain()\n")
    assert code == 0 and "trained on the weights at 0x" in output, output
    assert "lost 12 MiB in 4 allocations of device memory\n" in output, output
    lost, _, after = output.partition("at the peak")
    assert "train_step" in lost and "16 MiB" not in lost and "16 MiB" in after, output


def test_without_a_driver_the_demo_names_the_simulated_gpu(run):
    none = "import ctypes\ndef none(*_):\n    raise OSError\nctypes.CDLL = none\nfrom cuguard import demo\n"
    code, output = run(sys.executable, "-c", none + "demo.start()\n")
    assert code == 1 and "\nRuntimeError: there is no CUDA driver; " in output and "CUGUARD_DRIVER=sim pytest" in output, output
    code, output = run(sys.executable, "-c", none + "demo.main()\n")
    assert code == 1 and output.startswith("there is no CUDA driver; ") and "Traceback" not in output, output


def test_sizes_and_kinds_have_the_words_of_the_reports(run):
    text = """
from cuguard import Site
from cuguard._growth import counted, size

assert [size(3 << 50), size(3 << 39), size(1 << 30)] == ["3072 TiB", "1.5 TiB", "1 GiB"]
def site(kind, count, bytes):
    return counted(Site(kind, "load", "a.py", 3, None, True, "", count, bytes))

assert site("device", 1, 1 << 20) == "1 MiB in 1 allocation of device memory, a.py:3 in load"
assert site("stream_ordered", 2, 1 << 20) == "1 MiB in 2 allocations of stream-ordered memory, a.py:3 in load"
assert site("pinned", 0, 1 << 20) == "1 MiB more in allocations of pinned host memory, a.py:3 in load"
assert site("stream", 2, 0) == "2 streams, a.py:3 in load"
"""
    code, output = run(sys.executable, "-c", text)
    assert code == 0, output
