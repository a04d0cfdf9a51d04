"""CuPy with its memory pool and the interpreter's own teardown: whether it frees the pool or not, nothing is lost."""

import cupy

from expectation import expected

arrays = [cupy.zeros(1 << 20, dtype=cupy.uint8) for _ in range(16)]
expected()
