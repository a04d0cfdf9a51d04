//! Host memory that the device can reach: pinned, and registered.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"host_memory":
    pinned_zero_size,
    pinned_free,
    pinned_flags,
    pinned_is_shared,
    pinned_is_not_device_memory,
    register,
    register_overlap,
    unregister,
    register_part_of_a_page,
    register_nonsense,
    pinned_and_registered_are_two_things,
    registered_in_another_context,
}

fn null() -> *mut c_void {
    std::ptr::null_mut()
}

/// To pin 0 bytes is no error, unlike to allocate 0 bytes on the device.
fn pinned_zero_size(c: &Case) {
    primary(c);
    let mut p = null();
    c.ok("cuMemHostAlloc of 0 bytes", cuMemHostAlloc(&mut p, 0, 0));
    c.ok("cuMemAllocHost of 0 bytes", cuMemAllocHost_v2(&mut p, 0));
}

/// Pinned memory is freed once, at its start; null is no error.
fn pinned_free(c: &Case) {
    primary(c);
    let p = pinned(c, 4096);
    c.invalid("free it at 16", cuMemFreeHost(p.wrapping_byte_add(16)));
    c.ok("free it", cuMemFreeHost(p));
    c.invalid("free it again", cuMemFreeHost(p));
    c.ok("free null", cuMemFreeHost(null()));
    let mut local = 0_u64;
    let local: *mut c_void = (&raw mut local).cast();
    c.invalid("free an address on the stack", cuMemFreeHost(local));
}

/// Pinned memory is mapped for the device whether or not one asks; unknown flags fail.
fn pinned_flags(c: &Case) {
    primary(c);
    let (mut p, mut flags) = (null(), 99);
    c.invalid("pin with flags ff", cuMemHostAlloc(&mut p, 4096, 0xff));
    let p = pinned(c, 100);
    c.ok("read its flags", cuMemHostGetFlags(&mut flags, p));
    c.same("flags", flags, flags::MEMHOSTALLOC_DEVICEMAP);
    let mut ptr = 0;
    c.ok(
        "device address",
        cuMemHostGetDevicePointer_v2(&mut ptr, p, 0),
    );
    c.yes("it is the host's address", ptr == p.addr() as u64);
    c.ok("free it", cuMemFreeHost(p));
}

/// What the device writes to pinned memory, the host reads, and the other way round.
fn pinned_is_shared(c: &Case) {
    primary(c);
    let p = pinned(c, 4096).addr() as u64;
    let ptr = alloc(c, 4096);
    c.ok("fill it as device memory", cuMemsetD8_v2(p, 3, 4096));
    synchronize(c);
    c.same("the host sees", (peek(p), peek(p + 4095)), (3, 3));
    poke(p + 7, 9);
    c.ok("copy it to the device", cuMemcpyDtoD_v2(ptr, p, 4096));
    c.same("the device has", read(c, ptr + 6, 3), vec![3, 9, 3]);
    c.invalid("fill one byte too much", cuMemsetD8_v2(p, 3, 4097));
}

/// `cuMemFree` does not free pinned memory.
fn pinned_is_not_device_memory(c: &Case) {
    primary(c);
    let p = pinned(c, 4096);
    c.invalid("cuMemFree of pinned memory", cuMemFree_v2(p.addr() as u64));
    let result = cuMemFreeAsync(p.addr() as u64, CUstream::NULL);
    c.invalid("cuMemFreeAsync of pinned memory", result);
    c.ok("cuMemFreeHost", cuMemFreeHost(p));
}

/// Ordinary memory can be registered; then the device can use it.
fn register(c: &Case) {
    primary(c);
    let m = pages(65536);
    let p: *mut c_void = m.cast();
    c.invalid("register 0 bytes", cuMemHostRegister_v2(p, 0, 0));
    c.invalid("register null", cuMemHostRegister_v2(null(), 16, 0));
    c.ok("register 64 KiB", cuMemHostRegister_v2(p, 65536, 0));
    let address = p.addr() as u64;
    c.ok("fill it as device memory", cuMemsetD8_v2(address, 6, 65536));
    synchronize(c);
    c.same(
        "the host sees",
        (peek(address), peek(address + 65535)),
        (6, 6),
    );
    c.ok("unregister", cuMemHostUnregister(p));
    c.same("the bytes are still there", peek(address), 6);
    c.invalid(
        "fill it as device memory then",
        cuMemsetD8_v2(address, 7, 16),
    );
}

/// Memory is registered once, even in part.
fn register_overlap(c: &Case) {
    primary(c);
    let p: *mut c_void = pages(65536).cast();
    let want = Code::HOST_MEMORY_ALREADY_REGISTERED;
    c.ok("register", cuMemHostRegister_v2(p, 65536, 0));
    c.expect("register again", cuMemHostRegister_v2(p, 65536, 0), want);
    let inside = p.wrapping_byte_add(4096);
    c.expect(
        "register a part",
        cuMemHostRegister_v2(inside, 100, 0),
        want,
    );
    c.ok("unregister", cuMemHostUnregister(p));
    c.ok("register a part then", cuMemHostRegister_v2(inside, 100, 0));
    c.ok("unregister the part", cuMemHostUnregister(inside));
}

/// Memory is unregistered at its start, once; it is not freed by the driver.
fn unregister(c: &Case) {
    primary(c);
    let p: *mut c_void = pages(65536).cast();
    c.ok("register", cuMemHostRegister_v2(p, 65536, 0));
    c.invalid(
        "unregister at 4096",
        cuMemHostUnregister(p.wrapping_byte_add(4096)),
    );
    c.invalid("cuMemFreeHost", cuMemFreeHost(p));
    c.invalid("cuMemFree", cuMemFree_v2(p.addr() as u64));
    c.ok("unregister", cuMemHostUnregister(p));
    let want = Code::HOST_MEMORY_NOT_REGISTERED;
    c.expect("unregister again", cuMemHostUnregister(p), want);
    c.invalid("unregister null", cuMemHostUnregister(null()));
}

/// What is registered need not begin on a page, and has the addresses that it has on the host.
fn register_part_of_a_page(c: &Case) {
    primary(c);
    let m: *mut c_void = pages(65536).cast();
    let p = m.wrapping_byte_add(100);
    let (mut ptr, mut flags) = (0, 99);
    c.ok(
        "register 1000 bytes at 100",
        cuMemHostRegister_v2(p, 1000, 0),
    );
    c.ok(
        "device address",
        cuMemHostGetDevicePointer_v2(&mut ptr, p, 0),
    );
    c.yes("it is the host's address", ptr == p.addr() as u64);
    let inside = p.wrapping_byte_add(200);
    c.ok(
        "device address inside",
        cuMemHostGetDevicePointer_v2(&mut ptr, inside, 0),
    );
    c.yes("it is the host's address", ptr == inside.addr() as u64);
    let outside = m.wrapping_byte_add(8000);
    c.invalid(
        "device address outside",
        cuMemHostGetDevicePointer_v2(&mut ptr, outside, 0),
    );
    c.invalid(
        "device address with a flag",
        cuMemHostGetDevicePointer_v2(&mut ptr, p, 1),
    );
    c.ok("read its flags", cuMemHostGetFlags(&mut flags, p));
    c.same("flags", flags, flags::MEMHOSTALLOC_DEVICEMAP);
    c.ok("unregister", cuMemHostUnregister(p));
    c.invalid("read its flags then", cuMemHostGetFlags(&mut flags, p));
}

/// Flags that do not exist and memory that does not exist fail.
fn register_nonsense(c: &Case) {
    primary(c);
    let p: *mut c_void = pages(65536).cast();
    c.invalid(
        "register with flags f0",
        cuMemHostRegister_v2(p, 65536, 0xf0),
    );
    let nowhere = std::ptr::without_provenance_mut(0x1000);
    c.invalid(
        "register memory that is not there",
        cuMemHostRegister_v2(nowhere, 4096, 0),
    );
}

/// Pinned memory cannot be registered or unregistered.
fn pinned_and_registered_are_two_things(c: &Case) {
    primary(c);
    let p = pinned(c, 100);
    c.invalid("unregister pinned memory", cuMemHostUnregister(p));
    c.invalid("register pinned memory", cuMemHostRegister_v2(p, 100, 0));
    c.ok("free it", cuMemFreeHost(p));
}

/// Memory that one context registered is page-locked for another one too, which can also unregister it. It is pageable then,
/// and the end of its context changes nothing.
fn registered_in_another_context(c: &Case) {
    let user = primary(c);
    let (stream, ptr) = (independent(c), alloc(c, 4096));
    let owner = create(c);
    let p: *mut c_void = pages(4096).cast();
    let address = p.addr() as u64;
    c.ok("register", cuMemHostRegister_v2(p, 4096, 1));
    c.require("cuCtxSetCurrent", cuCtxSetCurrent(user));
    let mut device = 0;
    c.ok(
        "its address",
        cuMemHostGetDevicePointer_v2(&mut device, p, 0),
    );
    c.yes("is the host's", device == address);
    c.ok("fill it", cuMemsetD8Async(address, 5, 4096, stream));
    c.ok("copy it", cuMemcpyHtoDAsync_v2(ptr, p, 4096, stream));
    wait_for(c, stream);
    c.same("the device has", read(c, ptr, 2), vec![5, 5]);
    c.ok("unregister", cuMemHostUnregister(p));
    c.invalid(
        "its address then",
        cuMemHostGetDevicePointer_v2(&mut device, p, 0),
    );
    poke(address, 6);
    c.ok("copy it then", cuMemcpyHtoDAsync_v2(ptr, p, 4096, stream));
    poke(address, 7);
    c.ok("destroy its context", cuCtxDestroy_v2(owner));
    c.require("cuCtxSetCurrent", cuCtxSetCurrent(user));
    wait_for(c, stream);
    c.same("the device has then", read(c, ptr, 2), vec![6, 5]);
}
