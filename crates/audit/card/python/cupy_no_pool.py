"""CuPy without a pool: every array is an allocation of its own. One of five is alive at the end, held by a Python object."""

import cupy

from expectation import clobber, end_at_once, expected

cupy.cuda.set_allocator(None)


def fill():
    arrays = [cupy.zeros(1 << 20, dtype=cupy.uint8) for _ in range(5)]
    return arrays[2]


kept = fill()
clobber()
cupy.cuda.Device().synchronize()
expected(reachable=(1, 1 << 20), mentions=["cupy_no_pool.py", "fill"])
end_at_once()
