// Kernels of common algorithms. The .ptx beside this file is made of it by scripts/kernel-corpus.sh.

extern "C" __global__ void scan(const unsigned *from, unsigned *to, unsigned *totals, unsigned count) {
    __shared__ unsigned partial[32];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned own = i < count ? from[i] : 0;
    for (int by = 1; by < 32; by *= 2) {
        unsigned other = __shfl_up_sync(~0u, own, by);
        if (lane >= by) own += other;
    }
    if (lane == 31) partial[warp] = own;
    __syncthreads();
    if (warp == 0) {
        unsigned sum = lane < blockDim.x / 32 ? partial[lane] : 0;
        for (int by = 1; by < 32; by *= 2) {
            unsigned other = __shfl_up_sync(~0u, sum, by);
            if (lane >= by) sum += other;
        }
        partial[lane] = sum;
    }
    __syncthreads();
    if (warp > 0) own += partial[warp - 1];
    if (i < count) to[i] = own;
    if (threadIdx.x == blockDim.x - 1) totals[blockIdx.x] = own;
}

extern "C" __global__ void bitonic_sort(int *keys) {
    __shared__ int own[512];
    own[threadIdx.x] = keys[threadIdx.x];
    for (unsigned size = 2; size <= blockDim.x; size *= 2)
        for (unsigned by = size / 2; by > 0; by /= 2) {
            __syncthreads();
            unsigned other = threadIdx.x ^ by;
            if (other > threadIdx.x && (own[threadIdx.x] > own[other]) == ((threadIdx.x & size) == 0)) {
                int kept = own[threadIdx.x];
                own[threadIdx.x] = own[other];
                own[other] = kept;
            }
        }
    __syncthreads();
    keys[threadIdx.x] = own[threadIdx.x];
}

extern "C" __global__ void transpose(const double *from, double *to, unsigned side) {
    __shared__ double tile[16][17];
    unsigned x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < side && y < side) tile[threadIdx.y][threadIdx.x] = from[y * side + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x, y = blockIdx.x * 16 + threadIdx.y;
    if (x < side && y < side) to[y * side + x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void mandelbrot(unsigned *steps, unsigned width, unsigned height) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    double re = -2.0 + 3.0 * x / width, im = -1.0 + 2.0 * y / height, a = 0, b = 0;
    unsigned count = 0;
    while (count < 200 && __dadd_rn(__dmul_rn(a, a), __dmul_rn(b, b)) < 4) {
        double next = __dadd_rn(__dsub_rn(__dmul_rn(a, a), __dmul_rn(b, b)), re);
        b = __dadd_rn(__dmul_rn(__dmul_rn(2, a), b), im);
        a = next;
        count++;
    }
    steps[y * width + x] = count;
}

struct Body {
    float x, y, z, mass;
};

extern "C" __global__ void n_body(const Body *bodies, float3 *forces, unsigned count) {
    extern __shared__ Body tile[];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    Body own = i < count ? bodies[i] : Body{0, 0, 0, 0};
    float3 sum = make_float3(0, 0, 0);
    for (unsigned start = 0; start < count; start += blockDim.x) {
        unsigned j = start + threadIdx.x;
        tile[threadIdx.x] = j < count ? bodies[j] : Body{0, 0, 0, 0};
        __syncthreads();
        for (unsigned k = 0; k < blockDim.x; k++) {
            float x = tile[k].x - own.x, y = tile[k].y - own.y, z = tile[k].z - own.z;
            float inverse = rsqrtf(x * x + y * y + z * z + 0.01f);
            float scale = tile[k].mass * inverse * inverse * inverse;
            sum.x += x * scale, sum.y += y * scale, sum.z += z * scale;
        }
        __syncthreads();
    }
    if (i < count) forces[i] = sum;
}

// Radix 2, one block, 2 values per thread.
extern "C" __global__ void fft(float2 *values, unsigned log) {
    __shared__ float2 own[1024];
    unsigned count = 1 << log;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) own[__brev(i) >> (32 - log)] = values[i];
    for (unsigned half = 1; half < count; half *= 2) {
        __syncthreads();
        unsigned k = threadIdx.x % half, i = threadIdx.x / half * 2 * half + k;
        float sine, cosine;
        sincospif(-(float)k / half, &sine, &cosine);
        float2 a = own[i], b = own[i + half];
        // Products that no compiler fuses with a sum: it may choose either of two.
        float2 c = make_float2(fmaf(b.x, cosine, -__fmul_rn(b.y, sine)), fmaf(b.x, sine, __fmul_rn(b.y, cosine)));
        own[i] = make_float2(a.x + c.x, a.y + c.y);
        own[i + half] = make_float2(a.x - c.x, a.y - c.y);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) values[i] = own[i];
}

// Open addressing with compare-and-swap: counts how often each key occurs.
extern "C" __global__ void count_keys(const unsigned *keys, unsigned count, unsigned *slots, unsigned *counts, unsigned mask) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        unsigned key = keys[i];
        for (unsigned slot = key * 2654435761u;; slot++) {
            unsigned old = atomicCAS(&slots[slot & mask], 0, key);
            if (old == 0 || old == key) {
                atomicAdd(&counts[slot & mask], 1);
                break;
            }
        }
    }
}

extern "C" __global__ void collatz(const unsigned long long *from, unsigned *steps, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    unsigned long long value = from[i];
    unsigned found = 0;
    for (; value > 1; found++) value = value % 2 ? 3 * value + 1 : value / 2;
    steps[i] = found;
}

// Of text a and b, by diagonals.
extern "C" __global__ void edit_distance(const char *a, const char *b, unsigned len, unsigned *distance) {
    __shared__ unsigned short rows[3][257];
    unsigned i = threadIdx.x;
    for (unsigned sum = 0; sum <= 2 * len; sum++) {
        unsigned j = sum - i;
        if (i <= sum && i <= len && j <= len) {
            unsigned short *last = rows[(sum + 2) % 3], *before = rows[(sum + 1) % 3];
            unsigned own = i == 0 ? j : j == 0 ? i : before[i - 1] + (a[i - 1] != b[j - 1]);
            if (i > 0 && j > 0) own = min(own, min(last[i - 1], last[i]) + 1u);
            rows[sum % 3][i] = own;
        }
        __syncthreads();
    }
    if (i == len) *distance = rows[2 * len % 3][len];
}

// Sums in order of arrival: the last block to arrive adds up the others.
__device__ unsigned arrived;

extern "C" __global__ void sum_last_block(const float *values, unsigned count, double *partial, double *sum) {
    __shared__ double own[256];
    __shared__ bool is_last;
    double mine = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) mine += values[i];
    own[threadIdx.x] = mine;
    for (unsigned by = blockDim.x / 2; by > 0; by /= 2) {
        __syncthreads();
        if (threadIdx.x < by) own[threadIdx.x] += own[threadIdx.x + by];
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = own[0];
        __threadfence();
        is_last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        double all = 0;
        for (unsigned i = 0; i < gridDim.x; i++) all += ((volatile double *)partial)[i];
        *sum = all;
    }
}

extern "C" __global__ void dot_bytes(const int *a, const int *b, int *to, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = __dp4a(a[i], b[i], (int)i) + __popc(a[i]) + __clz(b[i]) + __ffs(a[i] ^ b[i]);
}
