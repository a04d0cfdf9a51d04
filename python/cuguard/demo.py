"""A program with a leak, to try ``cuguard run`` on. It calls the CUDA driver and needs no framework::

    cuguard run -- python3 -m cuguard.demo
    CUGUARD_DRIVER=sim cuguard run -- python3 -m cuguard.demo        # without a GPU
"""

import ctypes
import sys


def start():
    """The driver, with a context of the first device."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        # Not `sys.exit`: it would end pytest, where a file of tests calls this.
        raise RuntimeError(
            "there is no CUDA driver; on a machine without a GPU start the command with CUGUARD_DRIVER=sim: "
            "CUGUARD_DRIVER=sim cuguard run -- python3 -m cuguard.demo, or CUGUARD_DRIVER=sim pytest --cuguard"
        ) from None
    context = ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    return cuda


def check(code, function):
    if code != 0:
        raise RuntimeError("%s failed with error %d of the CUDA driver" % (function, code))


def allocate(cuda, size):
    """The address of a block of device memory."""
    address = ctypes.c_uint64()
    check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), "cuMemAlloc")
    return address


def free(cuda, address):
    check(cuda.cuMemFree_v2(address), "cuMemFree")


def train_step(cuda):
    # Not freed, and forgotten.
    allocate(cuda, 3 << 20)


def main():
    try:
        cuda = start()
    except RuntimeError as error:
        sys.exit(str(error))
    weights = allocate(cuda, 16 << 20)
    for _ in range(4):
        train_step(cuda)
    print("trained on the weights at 0x%x" % weights.value)
    free(cuda, weights)


if __name__ == "__main__":
    main()
