// Atomic operations whose results do not depend on the order. Compiled by NVRTC.
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL extern "C" __global__ void

KERNEL atomic_integers(const unsigned *from, unsigned *to) {
    unsigned own = from[INDEX];
    atomicAdd(&to[0], own), atomicSub(&to[1], own), atomicMin(&to[2], own), atomicMax(&to[3], own);
    atomicAnd(&to[4], own | 0xff), atomicOr(&to[5], own & 0xffff), atomicXor(&to[6], own), atomicInc(&to[7], 10), atomicDec(&to[8], 12);
    atomicMin((int *)&to[9], (int)own), atomicMax((int *)&to[10], (int)own);
}

KERNEL atomic_longs(const unsigned long long *from, unsigned long long *to) {
    unsigned long long own = from[INDEX];
    atomicAdd(&to[0], own), atomicMin(&to[1], own), atomicMax(&to[2], own), atomicXor(&to[3], own);
    atomicAnd(&to[4], own | 0xff), atomicOr(&to[5], own & 0xffff), atomicMax((long long *)&to[6], (long long)own);
}

KERNEL atomic_floats(const float *from, float *to, double *sums) {
    // Sixteenths: sums are exact in any order.
    atomicAdd(&to[threadIdx.x % 4], from[INDEX]);
    atomicAdd(&sums[threadIdx.x % 4], (double)from[INDEX]);
}

KERNEL atomic_shared(const unsigned *from, unsigned *to) {
    __shared__ unsigned own[16];
    if (threadIdx.x < 16) own[threadIdx.x] = 0;
    __syncthreads();
    // One operation on each number: sums, the greatest, and differences do not commute with each other.
    atomicAdd(&own[from[INDEX] % 14], 1), atomicMax(&own[15], threadIdx.x), atomicXor(&own[14], from[INDEX]);
    __syncthreads();
    if (threadIdx.x < 16) to[blockIdx.x * 16 + threadIdx.x] = own[threadIdx.x];
}

KERNEL tickets(unsigned *counter, unsigned *taken) {
    taken[atomicAdd(counter, 1)] = 1;
}

KERNEL spin_lock(unsigned *lock, unsigned *value) {
    for (bool done = false; !done;) {
        if (atomicCAS(lock, 0u, 1u) == 0) {
            __threadfence();
            *(volatile unsigned *)value = *(volatile unsigned *)value + 3;
            __threadfence();
            atomicExch(lock, 0u);
            done = true;
        }
    }
}

KERNEL multiply_by_swap(unsigned long long *product) {
    unsigned long long old = *product, seen;
    do {
        seen = old;
        old = atomicCAS(product, seen, seen * (2 * INDEX + 1));
    } while (old != seen);
}

KERNEL short_swaps(unsigned short *to) {
    unsigned short old = to[threadIdx.x % 4], seen;
    do {
        seen = old;
        old = atomicCAS(&to[threadIdx.x % 4], seen, (unsigned short)(seen + threadIdx.x));
    } while (old != seen);
}
