// A kernel whose threads have much memory each, which the driver takes from the device when it is
// launched: so many bytes for every thread that can be resident on the whole device.

// Each thread writes an array of its own, in an order that nobody can foresee, and adds up some of
// it. The array does not fit into registers.
extern "C" __global__ void use_local(unsigned seed, unsigned *sum) {
    unsigned words[16384];
#pragma unroll 1
    for (unsigned i = 0; i < 16384; i++) words[(i * 2654435761u ^ seed) % 16384] = i;
    unsigned found = 0;
#pragma unroll 1
    for (unsigned i = 0; i < 64; i++) found += words[(found + i * seed) % 16384];
    atomicAdd(sum, found);
}
