"""Kernels in Python, compiled by numba. A kernel is a function here; its signature follows from SIGNATURES."""

from numba import cuda, float32, float64, int32, types, uint32

SIGNATURES = {
    "numba_saxpy": "void(float32, float32[::1], float32[::1])",
    "numba_reduce": "void(int32[::1], int32[::1])",
    "numba_histogram": "void(uint32[::1], int32[::1])",
    "numba_tiles": "void(float32[::1], float32[::1], float32[::1], int32)",
    "numba_mandelbrot": "void(int32[::1], int32)",
    "numba_collatz": "void(int64[::1], int64[::1])",
    "numba_shuffles": "void(int32[::1], int32[::1])",
    "numba_bubbles": "void(int32[::1])",
    "numba_local": "void(float64[::1], float64[::1])",
    "numba_stencil": "void(float64[::1], float64[::1])",
    "numba_swap": "void(int32[::1], int32[::1])",
    "numba_divisions": "void(int32[::1], int32[::1], int32[::1])",
}


def numba_saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


def numba_reduce(values, sums):
    own = cuda.shared.array(128, int32)
    t = cuda.threadIdx.x
    own[t] = values[cuda.grid(1)]
    by = 64
    while by > 0:
        cuda.syncthreads()
        if t < by:
            own[t] += own[t + by]
        by //= 2
    if t == 0:
        sums[cuda.blockIdx.x] = own[0]


def numba_histogram(values, counts):
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(counts, values[i] % uint32(counts.size), 1)


def numba_tiles(a, b, c, side):
    left = cuda.shared.array((8, 8), float32)
    right = cuda.shared.array((8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k in range(0, side, 8):
        left[ty, tx] = a[y * side + k + tx]
        right[ty, tx] = b[(k + ty) * side + x]
        cuda.syncthreads()
        for i in range(8):
            total += left[ty, i] * right[i, tx]
        cuda.syncthreads()
    c[y * side + x] = total


def numba_mandelbrot(steps, width):
    x, y = cuda.grid(2)
    # Fixed point: exact.
    re, im = (x << 8) - 6000, (y << 8) - 4000
    a, b, count = 0, 0, 0
    while count < 100 and a * a + b * b < 4 << 24:
        a, b = ((a * a - b * b) >> 12) + re, ((a * b) >> 11) + im
        count += 1
    steps[y * width + x] = count


def numba_collatz(values, steps):
    i = cuda.grid(1)
    own = values[i] + 1
    count = 0
    while own != 1:
        own = own // 2 if own % 2 == 0 else 3 * own + 1
        count += 1
    steps[i] = count


def numba_shuffles(values, to):
    i = cuda.grid(1)
    own = values[i]
    for k in range(5):
        own += cuda.shfl_xor_sync(-1, own, 1 << k)
    to[i] = own + cuda.popc(cuda.ballot_sync(-1, values[i] % 2 == 1))


def numba_bubbles(values):
    own = cuda.shared.array(64, int32)
    t = cuda.threadIdx.x
    own[t] = values[t]
    cuda.syncthreads()
    for round in range(64):
        if t % 2 == round % 2 and t + 1 < 64 and own[t] > own[t + 1]:
            own[t], own[t + 1] = own[t + 1], own[t]
        cuda.syncthreads()
    values[t] = own[t]


def numba_local(values, to):
    own = cuda.local.array(8, float64)
    i = cuda.grid(1)
    for k in range(8):
        own[k] = values[(i * 3 + k) % values.size]
    for k in range(8):
        own[(k * 5 + i) % 8] += own[k] * 0.5
    total = 0.0
    for k in range(8):
        total += own[k]
    to[i] = total


def numba_stencil(values, to):
    i = cuda.grid(1)
    if 0 < i < values.size - 1:
        to[i] = 0.25 * values[i - 1] + 0.5 * values[i] + 0.25 * values[i + 1]


def numba_swap(values, best):
    i = cuda.grid(1)
    cuda.atomic.max(best, 0, values[i])
    cuda.atomic.min(best, 1, values[i])
    cuda.atomic.cas(best, 2 + i % 4, 0, 7)


def numba_divisions(a, b, to):
    i = cuda.grid(1)
    d = (b[i] & 0xFFFF) + 1
    to[i] = a[i] // d + a[i] % d
