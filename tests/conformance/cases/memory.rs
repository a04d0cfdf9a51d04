//! Device memory: allocate, free, ask for its extent.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"memory":
    zero_size,
    over_size,
    null_out_pointer,
    failure_leaves_null,
    zero_bytes_of_other_kinds,
    free_null,
    double_free,
    foreign_free,
    interior_free,
    alignment,
    address_is_reused,
    contents_do_not_move,
    pitch,
    address_range,
}

/// Memory of size 0 cannot be allocated.
fn zero_size(c: &Case) {
    primary(c);
    let mut ptr = 0;
    c.invalid("allocate 0 bytes", cuMemAlloc_v2(&mut ptr, 0));
}

/// What does not fit is OUT_OF_MEMORY, up to the largest number there is; the driver goes on.
fn over_size(c: &Case) {
    primary(c);
    let mut ptr = 0;
    let want = Code::OUT_OF_MEMORY;
    c.expect("allocate 1 TiB", cuMemAlloc_v2(&mut ptr, 1 << 40), want);
    c.expect(
        "allocate the largest number",
        cuMemAlloc_v2(&mut ptr, usize::MAX),
        want,
    );
    c.expect(
        "allocate 4095 less",
        cuMemAlloc_v2(&mut ptr, usize::MAX - 4095),
        want,
    );
    let (_, total) = memory(c);
    c.expect(
        "allocate the whole card",
        cuMemAlloc_v2(&mut ptr, total),
        want,
    );
    c.ok("allocate 1 byte after that", cuMemAlloc_v2(&mut ptr, 1));
    c.ok("free it", cuMemFree_v2(ptr));
}

/// There must be a place for the address.
fn null_out_pointer(c: &Case) {
    primary(c);
    c.invalid(
        "allocate into null",
        cuMemAlloc_v2(std::ptr::null_mut(), 16),
    );
}

/// An allocation that fails writes null.
fn failure_leaves_null(c: &Case) {
    const TOO_MUCH: usize = 1 << 50;
    primary(c);
    let mut ptr = 77;
    c.invalid("no bytes", cuMemAlloc_v2(&mut ptr, 0));
    c.same("the address then", ptr, 0);
    let want = Code::OUT_OF_MEMORY;
    ptr = 77;
    c.expect("too much", cuMemAlloc_v2(&mut ptr, TOO_MUCH), want);
    c.same("the address then", ptr, 0);
    ptr = 77;
    let result = cuMemAllocAsync(&mut ptr, TOO_MUCH, CUstream::NULL);
    c.expect("too much on a stream", result, want);
    c.same("the address then", ptr, 0);
    let mut host = std::ptr::without_provenance_mut(77);
    let result = cuMemHostAlloc(&mut host, TOO_MUCH, 0);
    c.expect("too much pinned memory", result, want);
    c.yes("the pointer is null then", host.is_null());
}

/// No bytes of stream-ordered or pinned memory are null, and no error.
fn zero_bytes_of_other_kinds(c: &Case) {
    primary(c);
    let mut ptr = 77;
    let result = cuMemAllocAsync(&mut ptr, 0, CUstream::NULL);
    c.ok("no bytes on a stream", result);
    c.same("the address", ptr, 0);
    let mut host = std::ptr::without_provenance_mut(77);
    c.ok("no bytes of pinned memory", cuMemHostAlloc(&mut host, 0, 0));
    c.yes("the pointer is null", host.is_null());
}

/// To free null does nothing.
fn free_null(c: &Case) {
    primary(c);
    c.ok("free null", cuMemFree_v2(0));
    c.ok("free null again", cuMemFree_v2(0));
}

/// Row: `cuMemFree` twice is INVALID_VALUE.
fn double_free(c: &Case) {
    primary(c);
    for bytes in [1, 4096, MIB, 3 * MIB, 64 * MIB] {
        let ptr = alloc(c, bytes);
        c.ok(format_args!("free {bytes} bytes"), cuMemFree_v2(ptr));
        c.invalid(format_args!("free {bytes} bytes again"), cuMemFree_v2(ptr));
    }
}

/// Row: `cuMemFree` of an address never allocated is INVALID_VALUE.
fn foreign_free(c: &Case) {
    primary(c);
    c.invalid("free an address made up", cuMemFree_v2(0x1234_5678));
    let local = 0_u64;
    let address = std::ptr::from_ref(&local).addr() as u64;
    c.invalid("free an address on the stack", cuMemFree_v2(address));
    let heap = Box::new(0_u64);
    let address = std::ptr::from_ref(&*heap).addr() as u64;
    c.invalid("free an address on the heap", cuMemFree_v2(address));
    c.invalid("free the largest address", cuMemFree_v2(u64::MAX));
}

/// Only the address that was returned frees a block.
fn interior_free(c: &Case) {
    primary(c);
    for bytes in [4096, 3 * MIB] {
        let ptr = alloc(c, bytes);
        c.invalid(
            format_args!("free {bytes} bytes at 16"),
            cuMemFree_v2(ptr + 16),
        );
        let last = ptr + bytes as u64 - 1;
        c.invalid(
            format_args!("free {bytes} bytes at the last one"),
            cuMemFree_v2(last),
        );
        c.ok(
            format_args!("free {bytes} bytes at the first one"),
            cuMemFree_v2(ptr),
        );
    }
}

/// Addresses are multiples of 512; small blocks follow each other in steps of 512.
fn alignment(c: &Case) {
    primary(c);
    // The first blocks of a context: they share its first page.
    for (bytes, step) in [
        (1, 512),
        (256, 512),
        (512, 512),
        (513, 1024),
        (1024, 1024),
        (4096, 4096),
    ] {
        let blocks: Vec<_> = (0..4).map(|_| alloc(c, bytes)).collect();
        let steps: Vec<_> = blocks.windows(2).map(|pair| pair[1] - pair[0]).collect();
        c.same(format_args!("steps of {bytes} bytes"), steps, vec![step; 3]);
    }
    for bytes in [1, 1000, 100_000, MIB, 3 * MIB, 10 * MIB] {
        let ptr = alloc(c, bytes);
        c.same(
            format_args!("address of {bytes} bytes modulo 512"),
            ptr % 512,
            0,
        );
    }
}

/// A block that was freed is handed out again at once.
fn address_is_reused(c: &Case) {
    primary(c);
    alloc(c, 16);
    let old = alloc(c, 1000);
    free(c, old);
    let new = alloc(c, 1000);
    c.yes("the address is the same", old == new);
    c.ok("free it", cuMemFree_v2(new));
}

/// Blocks keep their bytes while others come and go.
fn contents_do_not_move(c: &Case) {
    primary(c);
    let sizes = [1, 700, 4096, 70_000, MIB, MIB + 1, 3 * MIB];
    let mut blocks = Vec::new();
    for round in 0..3_u8 {
        for (index, bytes) in sizes.into_iter().enumerate() {
            let value = round * 16 + index as u8 + 1;
            let (keep, drop) = (alloc(c, bytes), alloc(c, bytes));
            c.require("fill", cuMemsetD8_v2(keep, value, bytes));
            c.require("fill", cuMemsetD8_v2(drop, 255, bytes));
            free(c, drop);
            blocks.push((keep, bytes, value));
        }
    }
    let mut intact = 0;
    for &(ptr, bytes, value) in &blocks {
        intact += usize::from(read(c, ptr, bytes).iter().all(|&byte| byte == value));
    }
    c.same("blocks that are intact", intact, blocks.len());
}

/// A pitch is a multiple of 512 that holds a row; element sizes are 4, 8 and 16.
fn pitch(c: &Case) {
    primary(c);
    let (mut ptr, mut pitch) = (0, 0);
    c.ok(
        "10 rows of 100",
        cuMemAllocPitch_v2(&mut ptr, &mut pitch, 100, 10, 4),
    );
    c.same("pitch", pitch, 512);
    c.ok("fill them", cuMemsetD2D8_v2(ptr, pitch, 1, 100, 10));
    c.ok("free them", cuMemFree_v2(ptr));
    c.ok(
        "10 rows of 513",
        cuMemAllocPitch_v2(&mut ptr, &mut pitch, 513, 10, 16),
    );
    c.same("pitch", pitch, 1024);
    c.ok("free them", cuMemFree_v2(ptr));
    c.invalid(
        "elements of 3 bytes",
        cuMemAllocPitch_v2(&mut ptr, &mut pitch, 100, 10, 3),
    );
    c.invalid(
        "rows of 0 bytes",
        cuMemAllocPitch_v2(&mut ptr, &mut pitch, 0, 10, 4),
    );
    c.invalid(
        "no rows",
        cuMemAllocPitch_v2(&mut ptr, &mut pitch, 10, 0, 4),
    );
    c.invalid(
        "more bytes than there are addresses",
        cuMemAllocPitch_v2(&mut ptr, &mut pitch, 1 << 62, 8, 4),
    );
}

/// `cuMemGetAddressRange` finds the block around an address; outside of blocks is NOT_FOUND.
fn address_range(c: &Case) {
    primary(c);
    let ptr = alloc(c, MIB);
    let (mut base, mut size) = (0, 0);
    c.ok(
        "range at 100",
        cuMemGetAddressRange_v2(&mut base, &mut size, ptr + 100),
    );
    c.yes("its start is the block's", base == ptr);
    c.same("its size", size, MIB);
    let (no_base, no_size) = (std::ptr::null_mut(), std::ptr::null_mut());
    c.ok(
        "range into null",
        cuMemGetAddressRange_v2(no_base, no_size, ptr),
    );
    let want = Code::NOT_FOUND;
    let result = cuMemGetAddressRange_v2(&mut base, &mut size, 0x1234);
    c.expect("range of an address made up", result, want);
    let result = cuMemGetAddressRange_v2(&mut base, &mut size, ptr + MIB as u64);
    c.expect("range of the address after the block", result, want);
    c.invalid(
        "cuMemFreeHost of a device address",
        cuMemFreeHost(ptr as *mut c_void),
    );
    free(c, ptr);
    let result = cuMemGetAddressRange_v2(&mut base, &mut size, ptr);
    c.expect("range of a freed block", result, want);
}
