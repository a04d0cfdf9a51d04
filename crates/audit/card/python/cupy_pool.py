"""CuPy with its memory pool. The pool keeps what the arrays freed: reachable. Ends before the teardown empties the pool."""

import cupy

from expectation import clobber, end_at_once, expected


def fill():
    arrays = [cupy.zeros(1 << 20, dtype=cupy.uint8) for _ in range(16)]
    return len(arrays)


fill()
clobber()
cupy.cuda.Device().synchronize()
pool = cupy.get_default_memory_pool()
expected(reachable={"at_least": pool.total_bytes()}, mentions=["cupy_pool.py"])
end_at_once()
