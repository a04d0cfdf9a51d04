"""A CUDA program's calls, through ctypes: on the simulated GPU they need no framework."""

import ctypes

_cuda = None


def _load():
    global _cuda
    if _cuda is None:
        _cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        assert _cuda.cuInit(0) == 0
        assert _cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert _cuda.cuCtxSetCurrent(context) == 0
    return _cuda


class OutOfMemory(Exception):
    pass


class Block:
    """Device memory that is freed with this object."""

    def __init__(self, size):
        cuda, address = _load(), ctypes.c_uint64()
        code = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        if code == 2:
            raise OutOfMemory
        assert code == 0, code
        self.address = address.value

    def __del__(self):
        if hasattr(self, "address"):
            _cuda.cuMemFree_v2(ctypes.c_uint64(self.address))
