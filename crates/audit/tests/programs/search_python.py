"""Holds the address of a block in a Python object, and prints where it is found."""

import ctypes
import gc
import sys

MASK = 0x5A5A5A5A5A5A5A5A
SIZE = 4096
program = ctypes.CDLL(None)
driver = ctypes.CDLL("libcuda.so.1")


def check(code):
    if code != 0:
        sys.exit(f"the driver failed: {code}")


def allocate():
    """The masked address of a new block."""
    address = ctypes.c_uint64()
    check(driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(SIZE)))
    masked = address.value ^ MASK
    address.value = 0
    return masked


def search(masked):
    text = ctypes.create_string_buffer(4096)
    words = (ctypes.c_uint64 * 2)(masked, SIZE)
    gc.collect()
    found = program.cuguard_audit_search(
        words, ctypes.c_size_t(1), ctypes.c_uint64(MASK), ctypes.c_uint(60), text, ctypes.c_size_t(4096)
    )
    if found < 0:
        sys.exit("the search failed")
    print(text.value.decode(), end="", flush=True)


class Tensor:
    def __init__(self, masked):
        self.address = masked ^ MASK


check(driver.cuInit(0))
context = ctypes.c_void_p()
check(driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
masked = allocate()
shape = sys.argv[1]
holders = []
if shape in ("integer", "dropped integer"):
    # Others around it, so that its pool stays in use.
    holders = [Tensor(MASK ^ (1 << 40) + 1000 * number) for number in range(100)]
    holders[50] = Tensor(masked)
elif shape in ("ctypes object", "dropped ctypes object"):
    holders = [ctypes.c_uint64(number) for number in range(100)]
    holders[50] = ctypes.c_uint64(masked ^ MASK)
elif shape != "nothing":
    sys.exit(f"no such shape: {shape}")
if shape.startswith("dropped"):
    holders[50] = None
search(masked)
