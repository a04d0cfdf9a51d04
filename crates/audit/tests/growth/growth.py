"""Programs in Python that grow and programs that do not, by name."""

import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")


class Tensor:
    def __init__(self, size=4096):
        address = ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
        self.address = address.value

    def __del__(self):
        cuda.cuMemFree_v2(ctypes.c_uint64(self.address))


losses = []
failures = []
cache = {}


def grows_list_of_losses():
    weights = [Tensor() for _ in range(10)]
    for _ in range(60):
        activation = Tensor()
        losses.append(Tensor())
        del activation
    return weights


def fails(step):
    batch = Tensor()
    raise ValueError(step)


def grows_stored_exceptions():
    for step in range(40):
        try:
            fails(step)
        except ValueError as error:
            failures.append(error)
        Tensor()


def steady_training():
    weights = [Tensor() for _ in range(10)]
    for _ in range(100):
        activations = [Tensor() for _ in range(4)]
        loss = Tensor()
        del activations, loss
    return weights


def steady_list_that_is_cleared():
    for step in range(260):
        losses.append(Tensor())
        Tensor()
        if step % 50 == 49:
            losses.clear()


def steady_cache_of_the_newest():
    for step in range(200):
        cache[step] = Tensor()
        cache.pop(step - 12, None)
        Tensor()


if len(sys.argv) < 2:
    print("\n".join(name for name in list(globals()) if name.startswith(("grows_", "steady_"))))
else:
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
    kept = globals()[sys.argv[1]]()
