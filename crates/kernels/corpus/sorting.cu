// Sorting, hashing, graphs. Compiled by nvcc.
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL extern "C" __global__ void

KERNEL odd_even_sort(unsigned *keys) {
    __shared__ unsigned own[128];
    own[threadIdx.x] = keys[INDEX];
    for (unsigned round = 0; round < 128; round++) {
        __syncthreads();
        unsigned i = 2 * threadIdx.x + round % 2;
        if (threadIdx.x < 64 && i + 1 < 128 && own[i] > own[i + 1]) {
            unsigned kept = own[i];
            own[i] = own[i + 1], own[i + 1] = kept;
        }
    }
    __syncthreads();
    keys[INDEX] = own[threadIdx.x];
}

// A bit per round, by ballots: stable.
KERNEL radix_sort(unsigned *keys) {
    __shared__ unsigned own[256], zeros[8];
    unsigned key = keys[threadIdx.x], lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (unsigned bit = 0; bit < 32; bit++) {
        bool one = key >> bit & 1;
        unsigned ballot = __ballot_sync(~0u, !one);
        if (!lane) zeros[warp] = __popc(ballot);
        __syncthreads();
        unsigned before = __popc(ballot & (1u << lane) - 1), all = 0;
        for (unsigned i = 0; i < 8; i++) before += i < warp ? zeros[i] : 0, all += zeros[i];
        own[one ? all + threadIdx.x - before : before] = key;
        __syncthreads();
        key = own[threadIdx.x];
    }
    keys[threadIdx.x] = key;
}

KERNEL rank_sort(const float *from, float *to, unsigned count) {
    if (INDEX >= count) return;
    float own = from[INDEX];
    unsigned rank = 0;
    for (unsigned i = 0; i < count; i++) rank += from[i] < own || (from[i] == own && i < INDEX);
    to[rank] = own;
}

KERNEL merge_sorted(const unsigned *a, const unsigned *b, unsigned *to, unsigned count) {
    if (INDEX >= count) return;
    // Each element's place is its own index and how many of the other are less.
    for (int side = 0; side < 2; side++) {
        const unsigned *mine = side ? b : a, *other = side ? a : b;
        unsigned own = mine[INDEX] * 2 + side, low = 0, high = count;
        while (low < high) {
            unsigned middle = (low + high) / 2, value = other[middle] * 2 + side;
            if (value < own || (value == own && side)) low = middle + 1;
            else high = middle;
        }
        to[INDEX + low] = own;
    }
}

KERNEL binary_search(const unsigned *sorted, const unsigned *keys, unsigned *to, unsigned count) {
    unsigned low = 0, high = count, key = keys[INDEX] % (2 * count);
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (sorted[middle] * 2 < key) low = middle + 1;
        else high = middle;
    }
    to[INDEX] = low;
}

// Inserts by compare-and-swap, then looks up each key: how often it was found does not depend on the order.
KERNEL hash_insert(const unsigned *keys, unsigned long long *table, unsigned mask, unsigned *inserted) {
    unsigned long long key = keys[INDEX] % 300 + 1;
    for (unsigned slot = (unsigned)key * 2654435761u;; slot++) {
        unsigned long long old = atomicCAS(&table[slot & mask], 0ull, key << 32);
        if (old == 0) atomicAdd(inserted, 1);
        if (old == 0 || old >> 32 == key) {
            atomicAdd(&table[slot & mask], 1ull);
            break;
        }
    }
}

// One block: all threads insert, then each reads its key's count and clears nothing.
KERNEL hash_table(const unsigned *keys, unsigned *counts) {
    __shared__ unsigned slots[512], numbers[512];
    for (unsigned i = threadIdx.x; i < 512; i += blockDim.x) slots[i] = ~0u, numbers[i] = 0;
    __syncthreads();
    unsigned key = keys[threadIdx.x] % 97, slot = key * 2654435761u >> 23;
    while (true) {
        unsigned old = atomicCAS(&slots[slot], ~0u, key);
        if (old == ~0u || old == key) break;
        slot = (slot + 1) % 512;
    }
    atomicAdd(&numbers[slot], 1);
    __syncthreads();
    counts[threadIdx.x] = numbers[slot];
}

// Breadth first over a graph whose edges are computed; one block.
KERNEL breadth_first(unsigned *distance, unsigned count) {
    __shared__ int changed;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) distance[i] = i ? ~0u : 0;
    unsigned level = 0;
    do {
        __syncthreads();
        if (!threadIdx.x) changed = 0;
        __syncthreads();
        for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
            if (distance[i] == level)
                for (unsigned edge = 1; edge <= 3; edge++) {
                    unsigned to = (i * edge * 17 + edge * 5) % count;
                    if (atomicCAS(&distance[to], ~0u, level + 1) == ~0u) changed = 1;
                }
        level++;
        __syncthreads();
    } while (changed);
}

KERNEL prime_sieve(unsigned *bits, unsigned count) {
    for (unsigned p = 2 + threadIdx.x; p * p < count; p += blockDim.x)
        for (unsigned q = p * p; q < count; q += p) atomicOr(&bits[q / 32], 1u << q % 32);
}

KERNEL crc32(const unsigned char *bytes, unsigned *to, unsigned each) {
    unsigned sum = ~0u;
    for (unsigned i = 0; i < each; i++) {
        sum ^= bytes[INDEX * each + i];
        for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
    }
    to[INDEX] = ~sum;
}

__constant__ unsigned rounds[8] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5};

KERNEL mix_rounds(const unsigned *from, unsigned *to) {
    unsigned a = from[INDEX], b = a ^ 0x6a09e667, c = a + 0xbb67ae85, d = ~a;
    for (int i = 0; i < 64; i++) {
        unsigned s = __funnelshift_r(a, a, 2) ^ __funnelshift_r(a, a, 13) ^ __funnelshift_r(a, a, 22);
        unsigned next = s + ((a & b) ^ (a & c) ^ (b & c)) + rounds[i % 8] + d;
        d = c, c = b, b = a, a = next;
    }
    to[INDEX] = a;
}

KERNEL queens(unsigned *solutions, unsigned side) {
    unsigned all = (1u << side) - 1, rows[12], columns[12], left[12], right[12];
    int depth = 0;
    unsigned found = 0;
    columns[0] = 1u << threadIdx.x, left[0] = columns[0] << 1, right[0] = columns[0] >> 1;
    rows[0] = all & ~(columns[0] | left[0] | right[0]);
    while (depth >= 0) {
        if (!rows[depth]) {
            depth--;
            continue;
        }
        unsigned bit = rows[depth] & -rows[depth];
        rows[depth] ^= bit;
        unsigned c = columns[depth] | bit, l = (left[depth] | bit) << 1, r = (right[depth] | bit) >> 1;
        if (c == all) {
            found++;
            continue;
        }
        depth++;
        columns[depth] = c, left[depth] = l, right[depth] = r, rows[depth] = all & ~(c | l | r);
    }
    solutions[threadIdx.x] = found;
}
