// A kernel that does what no kernel may: it writes to an address that belongs to nobody. The
// context, and with it every context of the process, is unusable afterwards.

extern "C" __global__ void write_to(unsigned *address) { *(volatile unsigned *)address = 1; }
