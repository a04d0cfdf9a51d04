//! Managed memory: one address for host and device.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"managed":
    allocate,
    free_managed,
    shared,
    advice,
}

/// Managed memory has a size and is attached to all streams or to the host.
fn allocate(c: &Case) {
    primary(c);
    let mut ptr = 0;
    c.invalid(
        "0 bytes",
        cuMemAllocManaged(&mut ptr, 0, flags::MEM_ATTACH_GLOBAL),
    );
    c.invalid("no flags", cuMemAllocManaged(&mut ptr, 16, 0));
    c.invalid("flags 7", cuMemAllocManaged(&mut ptr, 16, 7));
    c.ok(
        "attached globally",
        cuMemAllocManaged(&mut ptr, 4096, flags::MEM_ATTACH_GLOBAL),
    );
    c.ok("free it", cuMemFree_v2(ptr));
    c.ok(
        "attached to the host",
        cuMemAllocManaged(&mut ptr, 4096, flags::MEM_ATTACH_HOST),
    );
    c.ok("free it", cuMemFree_v2(ptr));
}

/// Managed memory is freed as device memory is, not as host memory, and not on a stream.
fn free_managed(c: &Case) {
    primary(c);
    let ptr = managed(c, 4096);
    c.invalid("cuMemFreeHost", cuMemFreeHost(ptr as *mut c_void));
    c.invalid("cuMemFree at 1", cuMemFree_v2(ptr + 1));
    let result = cuMemFreeAsync(ptr, CUstream::NULL);
    c.expect("cuMemFreeAsync", result, Code::NOT_SUPPORTED);
    c.ok("cuMemFree", cuMemFree_v2(ptr));
    c.invalid("cuMemFree again", cuMemFree_v2(ptr));
}

/// Host and device see each other's writes.
fn shared(c: &Case) {
    primary(c);
    let (ptr, other) = (managed(c, 5000), alloc(c, 5000));
    poke(ptr, 5);
    poke(ptr + 4999, 6);
    c.ok("copy to the device", cuMemcpyDtoD_v2(other, ptr, 5000));
    c.same(
        "the device has",
        (read(c, other, 1), read(c, other + 4999, 1)),
        (vec![5], vec![6]),
    );
    c.ok("fill it", cuMemsetD8_v2(ptr, 9, 5000));
    synchronize(c);
    c.same("the host has", (peek(ptr), peek(ptr + 4999)), (9, 9));
    c.invalid("fill one byte too much", cuMemsetD8_v2(ptr, 9, 5001));
}

/// Advice and prefetch are for managed memory alone.
fn advice(c: &Case) {
    primary(c);
    let (ptr, other) = (managed(c, MIB), alloc(c, MIB));
    c.ok("advise on managed memory", cuMemAdvise(ptr, MIB, 1, 0));
    c.ok(
        "prefetch managed memory",
        cuMemPrefetchAsync(ptr, MIB, 0, CUstream::NULL),
    );
    c.invalid("advise on device memory", cuMemAdvise(other, MIB, 1, 0));
    let result = cuMemPrefetchAsync(other, MIB, 0, CUstream::NULL);
    c.invalid("prefetch device memory", result);
    synchronize(c);
}
