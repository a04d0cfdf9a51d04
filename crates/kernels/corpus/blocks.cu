// What the threads of a block and a warp do together. Compiled by nvcc.
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL extern "C" __global__ void

KERNEL reduce_shared(const unsigned *from, unsigned *sums) {
    __shared__ unsigned own[256];
    own[threadIdx.x] = from[INDEX];
    for (unsigned by = blockDim.x / 2; by; by /= 2) {
        __syncthreads();
        if (threadIdx.x < by) own[threadIdx.x] += own[threadIdx.x + by];
    }
    if (!threadIdx.x) sums[blockIdx.x] = own[0];
}

KERNEL reduce_shuffles(const int *from, int *results) {
    int sum = from[INDEX], least = sum, most = sum;
    for (int by = 16; by; by /= 2) {
        sum += __shfl_down_sync(~0u, sum, by);
        least = min(least, __shfl_xor_sync(~0u, least, by));
        most = max(most, __shfl_xor_sync(~0u, most, by));
    }
    if (threadIdx.x % 32 == 0) atomicAdd(&results[0], sum), atomicMin(&results[1], least), atomicMax(&results[2], most);
}

KERNEL reduce_dynamic(const double *from, double *sums) {
    extern __shared__ double values[];
    values[threadIdx.x] = from[INDEX];
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0;
        for (unsigned i = 0; i < blockDim.x; i++) sum += values[i];
        sums[blockIdx.x] = sum;
    }
}

// Blelloch's scan of 2 values per thread.
KERNEL scan_blelloch(const unsigned *from, unsigned *to) {
    __shared__ unsigned own[512];
    unsigned n = 2 * blockDim.x, offset = 1, t = threadIdx.x;
    own[2 * t] = from[2 * t], own[2 * t + 1] = from[2 * t + 1];
    for (unsigned d = n >> 1; d; d >>= 1, offset *= 2) {
        __syncthreads();
        if (t < d) own[offset * (2 * t + 2) - 1] += own[offset * (2 * t + 1) - 1];
    }
    if (!t) own[n - 1] = 0;
    for (unsigned d = 1; d < n; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            unsigned a = offset * (2 * t + 1) - 1, b = offset * (2 * t + 2) - 1, kept = own[a];
            own[a] = own[b], own[b] += kept;
        }
    }
    __syncthreads();
    to[2 * t] = own[2 * t], to[2 * t + 1] = own[2 * t + 1];
}

KERNEL scan_hillis(const int *from, int *to) {
    __shared__ int own[2][128];
    int t = threadIdx.x, in = 0;
    own[0][t] = from[INDEX];
    for (int by = 1; by < 128; by *= 2, in ^= 1) {
        __syncthreads();
        own[in ^ 1][t] = own[in][t] + (t >= by ? own[in][t - by] : 0);
    }
    to[INDEX] = own[in][t];
}

KERNEL segmented_scan(const unsigned *heads, const unsigned *from, unsigned *to) {
    unsigned value = from[threadIdx.x], lane = threadIdx.x % 32;
    unsigned starts = __ballot_sync(~0u, heads[threadIdx.x] % 5 == 0) | 1;
    int start = 31 - __clz(starts & (2u << lane) - 1);
    for (int by = 1; by < 32; by *= 2) {
        unsigned other = __shfl_up_sync(~0u, value, by);
        if ((int)lane - by >= start) value += other;
    }
    to[threadIdx.x] = value;
}

KERNEL histogram(const unsigned *from, unsigned *counts, unsigned count) {
    __shared__ unsigned own[64];
    if (threadIdx.x < 64) own[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned i = INDEX; i < count; i += gridDim.x * blockDim.x) atomicAdd(&own[from[i] % 64], 1);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&counts[threadIdx.x], own[threadIdx.x]);
}

KERNEL histogram_by_match(const unsigned char *from, unsigned *counts) {
    unsigned key = from[INDEX] % 16, peers = __match_any_sync(~0u, key);
    if (__ffs(peers) - 1 == threadIdx.x % 32) atomicAdd(&counts[key], __popc(peers));
}

KERNEL tiled_product(const float *a, const float *b, float *c, unsigned side) {
    __shared__ float left[16][16], right[16][16];
    unsigned x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    float sum = 0;
    for (unsigned k = 0; k < side; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[y * side + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * side + x];
        __syncthreads();
        for (unsigned i = 0; i < 16; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    c[y * side + x] = sum;
}

KERNEL product_of_vectors(const double *matrix, const double *vector, double *to, unsigned columns) {
    double sum = 0;
    for (unsigned k = threadIdx.x; k < columns; k += 32) sum += matrix[blockIdx.x * columns + k] * vector[k];
    for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(~0u, sum, by);
    if (!threadIdx.x) to[blockIdx.x] = sum;
}

KERNEL rotate(const unsigned long long *from, unsigned long long *to) {
    unsigned long long own = __shfl_sync(~0u, from[threadIdx.x], threadIdx.x + 5);
    to[threadIdx.x] = __shfl_sync(~0u, own, threadIdx.x % 8, 8) + __shfl_up_sync(~0u, own, 3, 16);
}

KERNEL votes(const int *from, unsigned *to) {
    int own = from[threadIdx.x];
    to[threadIdx.x] = __ballot_sync(~0u, own & 1) ^ __all_sync(~0u, own >= 0) ^ __any_sync(~0u, own == 50) << 1 ^
                      __syncthreads_count(own > 30) << 2 ^ __syncthreads_or(own == 7) << 12 ^ __syncthreads_and(own < 99) << 13;
}

KERNEL reductions(const unsigned *from, unsigned *to) {
    unsigned own = from[threadIdx.x], mask = threadIdx.x % 32 < 16 ? 0xffff : 0xffff0000;
    to[6 * threadIdx.x] = __reduce_add_sync(mask, own);
    to[6 * threadIdx.x + 1] = __reduce_min_sync(mask, (int)own);
    to[6 * threadIdx.x + 2] = __reduce_max_sync(mask, own);
    to[6 * threadIdx.x + 3] = __reduce_and_sync(mask, own);
    to[6 * threadIdx.x + 4] = __reduce_or_sync(mask, own);
    to[6 * threadIdx.x + 5] = __reduce_xor_sync(mask, own);
}

// Half of the warps produce, the others consume: named barriers.
KERNEL named_barriers(const unsigned *from, unsigned *to) {
    __shared__ unsigned own[32];
    bool produces = threadIdx.x < 32;
    unsigned lane = threadIdx.x % 32;
    for (unsigned round = 0; round < 4; round++) {
        if (produces) {
            own[lane] = from[round * 32 + lane] * 3;
            asm volatile("bar.arrive 1, 64;" ::: "memory");
            asm volatile("bar.sync 2, 64;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            to[round * 32 + lane] = own[31 - lane] + round;
            asm volatile("bar.arrive 2, 64;" ::: "memory");
        }
    }
}

// Where lanes diverge and meet again.
KERNEL divergence(const unsigned *from, unsigned *to) {
    unsigned own = from[INDEX], steps = 0;
    while (own != 1 && steps < 200) {
        if (own % 2) {
            if (own % 3 == 0) own = own / 3 + 1;
            else own = own * 3 + 1 & 0xfffff;
        } else own /= 2;
        steps++;
        if (own == 0) break;
    }
    to[INDEX] = steps * 1000 + own % 1000;
}

KERNEL three_dimensions(unsigned *to) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
    to[(z * gridDim.y * blockDim.y + y) * gridDim.x * blockDim.x + x] = x | y << 8 | z << 16 | threadIdx.z << 24;
}

KERNEL async_copies(const float4 *from, float4 *to) {
    __shared__ float4 own[64];
    unsigned at = (unsigned)__cvta_generic_to_shared(&own[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from + INDEX) : "memory");
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    to[INDEX] = own[63 - threadIdx.x];
}
