//! Copies in one dimension.

use crate::case::Case;
use crate::driver::*;
use crate::tools::*;

cases! {"copies":
    all_kinds,
    unified,
    peer,
    on_a_stream,
    zero_size,
    too_large,
    null_addresses,
    wrong_kind_of_address,
    device_address_as_host_address,
    neighbours,
    freed_addresses,
    between_contexts,
    under_another_context,
}

fn address<T>(slice: &[T]) -> u64 {
    slice.as_ptr().addr() as u64
}

fn numbers() -> Vec<u8> {
    (0..5000_u32).map(|i| (i * 7 + 3) as u8).collect()
}

/// Host to device, device to device and device to host carry every byte.
fn all_kinds(c: &Case) {
    primary(c);
    let data = numbers();
    let (one, two) = (alloc(c, 5000), alloc(c, 5000));
    let mut back = vec![0_u8; 5000];
    c.ok(
        "host to device",
        cuMemcpyHtoD_v2(one, data.as_ptr().cast(), 5000),
    );
    c.ok("device to device", cuMemcpyDtoD_v2(two, one, 5000));
    c.ok(
        "device to host",
        cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), two, 5000),
    );
    c.yes("the bytes came back", back == data);
    let mut part = [0_u8; 4];
    c.ok(
        "a part of it",
        cuMemcpyDtoH_v2(part.as_mut_ptr().cast(), one + 1001, 4),
    );
    c.same("the part is from there", part.as_slice(), &data[1001..1005]);
}

/// `cuMemcpy` finds out by itself where an address lies.
fn unified(c: &Case) {
    primary(c);
    let data = numbers();
    let (one, two) = (alloc(c, 5000), alloc(c, 5000));
    let mut back = vec![0_u8; 5000];
    let target = back.as_mut_ptr().addr() as u64;
    c.ok("from the host", cuMemcpy(one, address(&data), 5000));
    c.ok("on the device", cuMemcpy(two, one, 5000));
    c.ok("to the host", cuMemcpy(target, two, 5000));
    // The compiler does not see the driver's writes through a plain number.
    c.yes("the bytes came back", std::hint::black_box(&back) == &data);
    c.ok("within the host", cuMemcpy(target, target + 4096, 100));
    c.same("that was copied too", peek(target), data[4096]);
    c.invalid("more than there is on the device", cuMemcpy(two, one, 5001));
}

/// A copy between contexts names both of them.
fn peer(c: &Case) {
    let context = primary(c);
    let (one, two) = (alloc(c, 5000), alloc(c, 5000));
    write(c, one, &numbers());
    c.ok("copy", cuMemcpyPeer(two, context, one, context, 100));
    c.yes("the bytes are there", read(c, two, 100) == numbers()[..100]);
    let stream = stream(c, 0);
    let result = cuMemcpyPeerAsync(two + 100, context, one + 100, context, 100, stream);
    c.ok("copy on a stream", result);
    wait_for(c, stream);
    c.yes("the bytes are there", read(c, two, 200) == numbers()[..200]);
}

/// The same copies on a stream.
fn on_a_stream(c: &Case) {
    primary(c);
    let data = numbers();
    let stream = independent(c);
    let (one, two, three) = (alloc(c, 5000), alloc(c, 5000), alloc(c, 5000));
    let mut back = vec![0_u8; 5000];
    let source = data.as_ptr().cast();
    c.ok(
        "host to device",
        cuMemcpyHtoDAsync_v2(one, source, 5000, stream),
    );
    c.ok(
        "device to device",
        cuMemcpyDtoDAsync_v2(two, one, 5000, stream),
    );
    c.ok("whichever", cuMemcpyAsync(three, two, 5000, stream));
    let target = back.as_mut_ptr().cast();
    c.ok(
        "device to host",
        cuMemcpyDtoHAsync_v2(target, three, 5000, stream),
    );
    c.ok("wait", cuStreamSynchronize(stream));
    c.yes("the bytes came back", std::hint::black_box(&back) == &data);
}

/// A copy of nothing succeeds, wherever it points.
fn zero_size(c: &Case) {
    primary(c);
    let ptr = alloc(c, 16);
    let data = [0_u8; 16];
    let none = std::ptr::null();
    c.ok(
        "0 bytes to the device",
        cuMemcpyHtoD_v2(ptr, data.as_ptr().cast(), 0),
    );
    c.ok(
        "0 bytes to null",
        cuMemcpyHtoD_v2(0, data.as_ptr().cast(), 0),
    );
    c.ok("0 bytes from null", cuMemcpyHtoD_v2(ptr, none, 0));
    let stream = stream(c, 0);
    c.ok(
        "0 bytes on a stream",
        cuMemcpyHtoDAsync_v2(ptr, none, 0, stream),
    );
    c.ok("wait", cuStreamSynchronize(stream));
}

/// A copy beyond the end of a block fails, were it by one byte, and copies nothing.
fn too_large(c: &Case) {
    primary(c);
    let large = vec![7_u8; 4 * MIB];
    let mut target = vec![0_u8; 4 * MIB];
    let (one, two) = (alloc(c, 5000), alloc(c, 5000));
    let source = large.as_ptr().cast();
    c.ok("fill", cuMemsetD8_v2(one, 1, 5000));
    for bytes in [5001, 5120, 5121, 6000, MIB, 4 * MIB] {
        let result = cuMemcpyHtoD_v2(one, source, bytes);
        c.invalid(format_args!("{bytes} bytes to a block of 5000"), result);
    }
    c.same("the block is as it was", read(c, one, 3), vec![1; 3]);
    for bytes in [5001, 4 * MIB] {
        let result = cuMemcpyDtoH_v2(target.as_mut_ptr().cast(), one, bytes);
        c.invalid(format_args!("{bytes} bytes from a block of 5000"), result);
        let result = cuMemcpyDtoD_v2(one, two, bytes);
        c.invalid(format_args!("{bytes} bytes between blocks of 5000"), result);
    }
    let result = cuMemcpyDtoH_v2(target.as_mut_ptr().cast(), one + 1, 5000);
    c.invalid("5000 bytes from the second one on", result);
    c.yes(
        "the host is as it was",
        target.iter().all(|&byte| byte == 0),
    );
    let stream = stream(c, 0);
    let result = cuMemcpyHtoDAsync_v2(one, source, 5001, stream);
    c.invalid("5001 bytes on a stream", result);
    let result = cuMemcpyDtoDAsync_v2(one, two, 5001, stream);
    c.invalid("5001 bytes between blocks on a stream", result);
    c.ok("the stream is fine", cuStreamSynchronize(stream));
}

/// Null is not an address to copy from or to.
fn null_addresses(c: &Case) {
    primary(c);
    let ptr = alloc(c, 16);
    let mut data = [0_u8; 16];
    c.invalid("from host null", cuMemcpyHtoD_v2(ptr, std::ptr::null(), 16));
    c.invalid(
        "to device null",
        cuMemcpyHtoD_v2(0, data.as_ptr().cast(), 16),
    );
    c.invalid(
        "to an address made up",
        cuMemcpyHtoD_v2(0x1234, data.as_ptr().cast(), 16),
    );
    c.invalid(
        "to host null",
        cuMemcpyDtoH_v2(std::ptr::null_mut(), ptr, 16),
    );
    c.invalid(
        "from device null",
        cuMemcpyDtoH_v2(data.as_mut_ptr().cast(), 0, 16),
    );
}

/// Ordinary host memory is no device memory.
fn wrong_kind_of_address(c: &Case) {
    primary(c);
    let ptr = alloc(c, 5000);
    let mut data = vec![0_u8; 8192];
    let host = address(&data);
    c.invalid(
        "device to device, from the host",
        cuMemcpyDtoD_v2(ptr, host, 100),
    );
    c.invalid(
        "device to device, to the host",
        cuMemcpyDtoD_v2(host, ptr, 100),
    );
    let target = data.as_mut_ptr().cast();
    c.invalid(
        "device to host, from the host",
        cuMemcpyDtoH_v2(target, host + 4096, 100),
    );
    let source = data.as_ptr().wrapping_add(4096).cast();
    c.invalid(
        "host to device, to the host",
        cuMemcpyHtoD_v2(host, source, 100),
    );
}

/// A device address is a fine host address for a copy (unified addressing).
fn device_address_as_host_address(c: &Case) {
    primary(c);
    let (one, two) = (alloc(c, 5000), alloc(c, 5000));
    write(c, one, &numbers());
    c.ok(
        "host to device, from the device",
        cuMemcpyHtoD_v2(two, one as *const c_void, 100),
    );
    c.yes("the bytes are there", read(c, two, 100) == numbers()[..100]);
    c.ok(
        "device to host, to the device",
        cuMemcpyDtoH_v2(two as *mut c_void, one + 8, 100),
    );
    c.yes(
        "the bytes are there",
        read(c, two, 100) == numbers()[8..108],
    );
}

/// A copy may go to the place next to where it comes from, in both directions. (What a copy leaves
/// behind whose two places overlap, the driver's documentation does not say, so no case asks.)
fn neighbours(c: &Case) {
    primary(c);
    let (ptr, data) = (alloc(c, 5000), numbers());
    for (what, from, to) in [("upwards", 1000, 1100), ("downwards", 1100, 1000)] {
        write(c, ptr, &data);
        let mut want = data.clone();
        want.copy_within(from..from + 100, to);
        c.ok(
            format_args!("copy 100 bytes {what}"),
            cuMemcpyDtoD_v2(ptr + to as u64, ptr + from as u64, 100),
        );
        c.yes(
            format_args!("copied {what}, and nothing else changed"),
            read(c, ptr, 5000) == want,
        );
    }
}

/// What was freed is not an address to copy from or to.
fn freed_addresses(c: &Case) {
    primary(c);
    let (ptr, freed) = (alloc(c, 5000), alloc(c, 5000));
    free(c, freed);
    let mut data = [0_u8; 100];
    let host = data.as_mut_ptr().cast();
    c.invalid("from it", cuMemcpyDtoH_v2(host, freed, 100));
    c.invalid("to it", cuMemcpyHtoD_v2(freed, host.cast_const(), 100));
    c.invalid("from it on the device", cuMemcpyDtoD_v2(ptr, freed, 100));
    c.invalid("to it on the device", cuMemcpyDtoD_v2(freed, ptr, 100));
    let stream = stream(c, 0);
    c.invalid(
        "from it on a stream",
        cuMemcpyDtoHAsync_v2(host, freed, 100, stream),
    );
    c.invalid(
        "to it on a stream",
        cuMemcpyDtoDAsync_v2(freed, ptr, 100, stream),
    );
    c.ok("the stream is fine", cuStreamSynchronize(stream));
}

/// Memory of two contexts on one device can be copied to each other.
fn between_contexts(c: &Case) {
    let primary = primary(c);
    let one = alloc(c, 5000);
    write(c, one, &numbers());
    let created = create(c);
    let two = alloc(c, 5000);
    c.ok("device to device", cuMemcpyDtoD_v2(two, one, 5000));
    c.yes("the bytes are there", read(c, two, 5000) == numbers());
    c.ok("by name", cuMemcpyPeer(two, created, one + 1, primary, 100));
    c.yes(
        "the bytes are there",
        read(c, two, 100) == numbers()[1..101],
    );
}

/// A copy does not need the context of its memory to be current, only some context.
fn under_another_context(c: &Case) {
    primary(c);
    let ptr = alloc(c, 5000);
    create(c);
    c.ok(
        "host to device",
        cuMemcpyHtoD_v2(ptr, numbers().as_ptr().cast(), 5000),
    );
    c.yes("device to host", read(c, ptr, 5000) == numbers());
    c.ok("fill", cuMemsetD8_v2(ptr, 1, 16));
    let (mut base, mut size) = (0, 0);
    c.ok(
        "its extent",
        cuMemGetAddressRange_v2(&mut base, &mut size, ptr + 5),
    );
    c.same("its size", size, 5000);
    c.ok("free", cuMemFree_v2(ptr));
}
