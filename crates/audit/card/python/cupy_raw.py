"""Raw allocations, whose addresses are Python integers: one is lost, one is held in a list."""

import cupy

from expectation import clobber, end_at_once, expected

MIB = 1 << 20


def lose():
    address = cupy.cuda.runtime.malloc(3 * MIB)
    # Not the same object: an expression that needs the address, as a program would have it.
    return address % 512


kept = [cupy.cuda.runtime.malloc(5 * MIB)]
lose()
clobber()
expected(lost=(1, 3 * MIB), reachable=(1, 5 * MIB), mentions=["cupy_raw.py", "lose"])
end_at_once()
