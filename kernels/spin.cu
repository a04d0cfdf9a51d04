// Keeps the GPU busy for a given time, so that a test can look at work that is really in flight.

// Returns after `nanoseconds` of the GPU's global timer (which may tick as coarsely as 1 us).
extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}
