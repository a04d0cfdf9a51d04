"""A program with a leak, to try ``cuguard run`` on. It calls the CUDA driver and needs no framework::

    cuguard run -- python3 -m cuguard.demo
    CUGUARD_DRIVER=sim cuguard run -- python3 -m cuguard.demo        # without a GPU
"""

import ctypes
import sys


def _call(function, *arguments):
    code = function(*arguments)
    if code != 0:
        sys.exit("%s failed with error %d of the CUDA driver" % (function.__name__, code))


def load_weights(cuda, size):
    """Device memory whose address the program keeps."""
    address = ctypes.c_uint64()
    _call(cuda.cuMemAlloc_v2, ctypes.byref(address), ctypes.c_size_t(size))
    return address


def train_step(cuda):
    """Device memory that is forgotten."""
    scratch = ctypes.c_uint64()
    _call(cuda.cuMemAlloc_v2, ctypes.byref(scratch), ctypes.c_size_t(3 << 20))


def main():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        sys.exit("there is no CUDA driver; without a GPU: CUGUARD_DRIVER=sim cuguard run -- python3 -m cuguard.demo")
    context = ctypes.c_void_p()
    _call(cuda.cuInit, 0)
    _call(cuda.cuDevicePrimaryCtxRetain, ctypes.byref(context), 0)
    _call(cuda.cuCtxSetCurrent, context)
    weights = load_weights(cuda, 16 << 20)
    for _ in range(4):
        train_step(cuda)
    print("trained on the weights at 0x%x" % weights.value)
    _call(cuda.cuMemFree_v2, weights)


if __name__ == "__main__":
    main()
