//! Virtual memory: reserved addresses, physical handles, mappings.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"virtual_memory":
    granularity,
    reserve,
    reserve_one_tebibyte,
    create_handles,
    one_handle_at_two_addresses,
    map_a_part,
    map_wrong,
    unmap_a_part,
    unmap,
    access,
    access_wrong,
    unmapped_addresses,
    across_two_mappings,
    release_while_mapped,
    mapped_twice_unmapped_once,
    retain_handle,
    pointer_facts,
    free_addresses,
    not_for_plain_free,
    without_a_context,
}

const HANDLE: usize = 4 * MIB;
const RESERVED: usize = 8 * MIB;

fn read_and_write() -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: device_properties(0).location,
        flags: virtual_memory::ACCESS_READWRITE,
    }
}

fn reserved(c: &Case, bytes: usize) -> CUdeviceptr {
    let mut ptr = 0;
    c.require(
        "cuMemAddressReserve",
        cuMemAddressReserve(&mut ptr, bytes, 0, 0, 0),
    );
    ptr
}

fn handle(c: &Case, bytes: usize) -> CUmemGenericAllocationHandle {
    let mut handle = 0;
    let result = cuMemCreate(&mut handle, bytes, &device_properties(0), 0);
    c.require("cuMemCreate", result);
    handle
}

/// A reservation of 8 MiB whose first half is mapped and may be used.
fn mapped(c: &Case) -> (CUdeviceptr, CUmemGenericAllocationHandle) {
    let (ptr, handle) = (reserved(c, RESERVED), handle(c, HANDLE));
    c.require("cuMemMap", cuMemMap(ptr, HANDLE, 0, handle, 0));
    c.require(
        "cuMemSetAccess",
        cuMemSetAccess(ptr, HANDLE, &read_and_write(), 1),
    );
    (ptr, handle)
}

/// Row: `cuMemGetAllocationGranularity` (minimum) is 2 MiB; the recommended one too.
fn granularity(c: &Case) {
    use virtual_memory::{GRANULARITY_MINIMUM, GRANULARITY_RECOMMENDED};
    primary(c);
    let mut bytes = 0;
    let wanted = device_properties(0);
    let result = cuMemGetAllocationGranularity(&mut bytes, &wanted, GRANULARITY_MINIMUM);
    c.ok("minimum", result);
    c.same("minimum in bytes", bytes, PAGE);
    let result = cuMemGetAllocationGranularity(&mut bytes, &wanted, GRANULARITY_RECOMMENDED);
    c.ok("recommended", result);
    c.same("recommended in bytes", bytes, PAGE);
    c.invalid(
        "option 5",
        cuMemGetAllocationGranularity(&mut bytes, &wanted, 5),
    );
}

/// Addresses are reserved in multiples of the granularity.
fn reserve(c: &Case) {
    primary(c);
    let mut ptr = 0;
    c.invalid("0 bytes", cuMemAddressReserve(&mut ptr, 0, 0, 0, 0));
    c.invalid("1000 bytes", cuMemAddressReserve(&mut ptr, 1000, 0, 0, 0));
    c.invalid(
        "with a flag",
        cuMemAddressReserve(&mut ptr, RESERVED, 0, 0, 1),
    );
    c.invalid(
        "aligned to 3",
        cuMemAddressReserve(&mut ptr, RESERVED, 3, 0, 0),
    );
    let mut result = Code::SUCCESS;
    let taken = taken_kib(c, |_| {
        result = cuMemAddressReserve(&mut ptr, RESERVED, 0, 0, 0)
    });
    c.ok("8 MiB", result);
    c.same("KiB of memory that it takes", taken, 0);
    c.same("its address modulo 2 MiB", ptr % PAGE as u64, 0);
    c.ok("free it", cuMemAddressFree(ptr, RESERVED));
}

/// Row: `cuMemAddressReserve` of 1 TiB succeeds.
fn reserve_one_tebibyte(c: &Case) {
    primary(c);
    let mut ptr = 0;
    c.ok(
        "reserve 1 TiB",
        cuMemAddressReserve(&mut ptr, 1 << 40, 0, 0, 0),
    );
    c.ok("free it", cuMemAddressFree(ptr, 1 << 40));
}

/// Physical memory is made in multiples of 2 MiB, and taken from the device at once.
fn create_handles(c: &Case) {
    primary(c);
    let (mut handle, wanted) = (0, device_properties(0));
    c.invalid("1000 bytes", cuMemCreate(&mut handle, 1000, &wanted, 0));
    c.invalid("0 bytes", cuMemCreate(&mut handle, 0, &wanted, 0));
    let result = cuMemCreate(&mut handle, 1 << 40, &wanted, 0);
    c.expect("1 TiB", result, Code::OUT_OF_MEMORY);
    c.invalid("with a flag", cuMemCreate(&mut handle, HANDLE, &wanted, 1));
    let result = cuMemCreate(&mut handle, PAGE, &device_properties(99), 0);
    c.expect("on device 99", result, Code::INVALID_DEVICE);
    let mut result = Code::SUCCESS;
    let taken = taken_kib(c, |_| result = cuMemCreate(&mut handle, HANDLE, &wanted, 0));
    c.ok("4 MiB", result);
    c.same("KiB that it takes", taken, 4096);
    let mut told = CUmemAllocationProp::default();
    c.ok(
        "ask it",
        cuMemGetAllocationPropertiesFromHandle(&mut told, handle),
    );
    c.same(
        "its type and device",
        (told.type_, told.location.id),
        (1, 0),
    );
    let taken = taken_kib(c, |c| c.ok("release", cuMemRelease(handle)));
    c.same("KiB that come back", taken, -4096);
    c.invalid("release again", cuMemRelease(handle));
}

/// Row: one handle mapped at two addresses at once: both see the same bytes.
fn one_handle_at_two_addresses(c: &Case) {
    primary(c);
    let (ptr, handle) = (reserved(c, RESERVED), handle(c, HANDLE));
    let second = ptr + HANDLE as u64;
    c.ok("map it", cuMemMap(ptr, HANDLE, 0, handle, 0));
    c.ok("map it again", cuMemMap(second, HANDLE, 0, handle, 0));
    c.ok(
        "allow both",
        cuMemSetAccess(ptr, RESERVED, &read_and_write(), 1),
    );
    c.ok("fill at one", cuMemsetD8_v2(ptr, 5, HANDLE));
    c.same("read at the other", read(c, second + 100, 3), vec![5; 3]);
    write(c, second + 200, &[1, 2, 3]);
    c.same(
        "write there, read at the first",
        read(c, ptr + 199, 5),
        vec![5, 1, 2, 3, 5],
    );
    c.ok(
        "copy from one to the other",
        cuMemcpyDtoD_v2(ptr + 3 * MIB as u64, second, MIB),
    );
    c.same(
        "a copy of it",
        read(c, second + 3 * MIB as u64 + 200, 3),
        vec![1, 2, 3],
    );
}

/// Row: mapping a part of a handle is NOT_SUPPORTED: handles are mapped whole.
fn map_a_part(c: &Case) {
    primary(c);
    let (ptr, handle) = (reserved(c, RESERVED), handle(c, HANDLE));
    let want = Code::NOT_SUPPORTED;
    c.expect("the first half", cuMemMap(ptr, PAGE, 0, handle, 0), want);
    c.expect(
        "the second half",
        cuMemMap(ptr, PAGE, PAGE, handle, 0),
        want,
    );
    c.ok("the whole", cuMemMap(ptr, HANDLE, 0, handle, 0));
}

/// A mapping begins at a multiple of 2 MiB, in reserved addresses that are not mapped yet.
fn map_wrong(c: &Case) {
    primary(c);
    let (ptr, handle) = (reserved(c, RESERVED), handle(c, HANDLE));
    c.invalid("at 4096", cuMemMap(ptr + 4096, HANDLE, 0, handle, 0));
    c.invalid(
        "where nothing is reserved",
        cuMemMap(0x100_0000, HANDLE, 0, handle, 0),
    );
    c.ok("where it may", cuMemMap(ptr, HANDLE, 0, handle, 0));
    c.invalid("where it is already", cuMemMap(ptr, HANDLE, 0, handle, 0));
    let across = ptr + PAGE as u64;
    c.invalid("across its end", cuMemMap(across, HANDLE, 0, handle, 0));
}

/// Row: unmapping a part of a mapping is INVALID_VALUE: mappings are unmapped whole.
fn unmap_a_part(c: &Case) {
    primary(c);
    let (ptr, _) = mapped(c);
    c.invalid("the first half", cuMemUnmap(ptr, PAGE));
    c.invalid("the second half", cuMemUnmap(ptr + PAGE as u64, PAGE));
    c.invalid("from the middle on", cuMemUnmap(ptr + PAGE as u64, HANDLE));
    c.ok("the mapping is as it was", cuMemsetD8_v2(ptr, 1, HANDLE));
    c.ok("the whole", cuMemUnmap(ptr, HANDLE));
}

/// Unmapped memory can be mapped again, with its bytes; unmapping nothing is no error.
fn unmap(c: &Case) {
    primary(c);
    let (ptr, handle) = mapped(c);
    c.require("fill", cuMemsetD8_v2(ptr, 7, HANDLE));
    c.ok("unmap", cuMemUnmap(ptr, HANDLE));
    c.ok("unmap again", cuMemUnmap(ptr, HANDLE));
    let second = ptr + HANDLE as u64;
    c.ok("map elsewhere", cuMemMap(second, HANDLE, 0, handle, 0));
    c.ok(
        "allow it",
        cuMemSetAccess(second, HANDLE, &read_and_write(), 1),
    );
    c.same("the bytes are there", read(c, second, 3), vec![7; 3]);
}

/// Mapped memory cannot be used until access is given; what was given can be read back.
fn access(c: &Case) {
    primary(c);
    let (ptr, handle) = (reserved(c, RESERVED), handle(c, HANDLE));
    c.require("cuMemMap", cuMemMap(ptr, HANDLE, 0, handle, 0));
    let (mut given, place) = (99, read_and_write().location);
    c.ok("ask before", cuMemGetAccess(&mut given, &place, ptr));
    c.same("access before", given, 0);
    c.invalid("use it before", cuMemsetD8_v2(ptr, 5, 16));
    c.ok(
        "give access",
        cuMemSetAccess(ptr, HANDLE, &read_and_write(), 1),
    );
    c.ok("ask after", cuMemGetAccess(&mut given, &place, ptr));
    c.same("access after", given, 3);
    c.ok("use it after", cuMemsetD8_v2(ptr, 5, HANDLE));
}

/// Access is given to whole mappings that are there.
fn access_wrong(c: &Case) {
    primary(c);
    let (ptr, _) = mapped(c);
    let wanted = read_and_write();
    c.invalid("at 4096", cuMemSetAccess(ptr + 4096, PAGE, &wanted, 1));
    c.invalid(
        "more than is mapped",
        cuMemSetAccess(ptr, RESERVED, &wanted, 1),
    );
    c.invalid(
        "where nothing is mapped",
        cuMemSetAccess(ptr + HANDLE as u64, HANDLE, &wanted, 1),
    );
    let mut given = 0;
    let result = cuMemGetAccess(&mut given, &wanted.location, 0x1234);
    c.invalid("ask info an address made up", result);
}

/// Reserved addresses without memory cannot be used.
fn unmapped_addresses(c: &Case) {
    primary(c);
    let (ptr, _) = mapped(c);
    let beyond = ptr + HANDLE as u64;
    let mut data = [0_u8; 16];
    c.invalid("fill", cuMemsetD8_v2(beyond, 1, 16));
    c.invalid(
        "copy to the host",
        cuMemcpyDtoH_v2(data.as_mut_ptr().cast(), beyond, 16),
    );
    c.invalid(
        "fill from what is mapped into it",
        cuMemsetD8_v2(ptr, 1, HANDLE + 1),
    );
    c.ok("fill what is mapped", cuMemsetD8_v2(ptr, 1, HANDLE));
    c.ok("unmap", cuMemUnmap(ptr, HANDLE));
    c.invalid("fill what was mapped", cuMemsetD8_v2(ptr, 1, 16));
    c.ok("nothing is broken", cuCtxSynchronize());
}

/// Two mappings side by side are one range.
fn across_two_mappings(c: &Case) {
    primary(c);
    let (ptr, _) = mapped(c);
    let (second, other) = (ptr + HANDLE as u64, handle(c, HANDLE));
    c.require("cuMemMap", cuMemMap(second, HANDLE, 0, other, 0));
    c.ok(
        "give access to both",
        cuMemSetAccess(ptr, RESERVED, &read_and_write(), 1),
    );
    c.ok("fill both", cuMemsetD8_v2(ptr, 6, RESERVED));
    c.same("at the border", read(c, second - 2, 4), vec![6; 4]);
    write(c, second - 2, &[1, 2, 3, 4]);
    c.same(
        "over the border",
        read(c, second - 3, 6),
        vec![6, 1, 2, 3, 4, 6],
    );
    c.ok("unmap both at once", cuMemUnmap(ptr, RESERVED));
}

/// A handle that is released while it is mapped keeps its memory until it is unmapped.
fn release_while_mapped(c: &Case) {
    primary(c);
    let before = free_bytes(c);
    let (ptr, handle) = mapped(c);
    let taken = |c: &Case| (before - free_bytes(c)) / KIB;
    c.same("KiB taken", taken(c), 4096);
    c.ok("release", cuMemRelease(handle));
    c.same("KiB taken then", taken(c), 4096);
    c.ok("the memory works", cuMemsetD8_v2(ptr, 6, HANDLE));
    c.invalid("release again", cuMemRelease(handle));
    c.ok("unmap", cuMemUnmap(ptr, HANDLE));
    c.same("KiB taken when unmapped", taken(c), 0);
}

/// Mapped twice and released, memory stays until both mappings are gone.
fn mapped_twice_unmapped_once(c: &Case) {
    primary(c);
    let before = free_bytes(c);
    let (ptr, handle) = mapped(c);
    let second = ptr + HANDLE as u64;
    c.require("cuMemMap", cuMemMap(second, HANDLE, 0, handle, 0));
    c.require(
        "cuMemSetAccess",
        cuMemSetAccess(second, HANDLE, &read_and_write(), 1),
    );
    c.ok("release", cuMemRelease(handle));
    c.ok("unmap one", cuMemUnmap(ptr, HANDLE));
    let taken = |c: &Case| (before - free_bytes(c)) / KIB;
    c.same("KiB taken then", taken(c), 4096);
    c.ok("the other one works", cuMemsetD8_v2(second, 6, 16));
    c.ok("unmap the other one", cuMemUnmap(second, HANDLE));
    c.same("KiB taken then", taken(c), 0);
}

/// From an address its handle can be had again; it is released as often.
fn retain_handle(c: &Case) {
    primary(c);
    let (ptr, handle) = mapped(c);
    let mut again = 0;
    let inside = (ptr + 5) as *mut c_void;
    c.ok(
        "retain at 5",
        cuMemRetainAllocationHandle(&mut again, inside),
    );
    c.yes("it is the same handle", again == handle);
    c.ok("release", cuMemRelease(again));
    c.ok("release once more", cuMemRelease(handle));
    let plain = alloc(c, MIB) as *mut c_void;
    let result = cuMemRetainAllocationHandle(&mut again, plain);
    c.invalid("retain plain memory", result);
}

/// Mapped memory is device memory that belongs to no context; its extent is the reservation's.
fn pointer_facts(c: &Case) {
    primary(c);
    let (ptr, _) = mapped(c);
    let ask = |which| {
        let mut value = 0_u64;
        let result = cuPointerGetAttribute((&raw mut value).cast(), which, ptr + 5);
        (result, std::hint::black_box(value))
    };
    for (what, which, want) in [
        (
            "memory type",
            pointer_attribute::MEMORY_TYPE,
            u64::from(memory_type::DEVICE),
        ),
        ("context", pointer_attribute::CONTEXT, 0),
        ("is managed", pointer_attribute::IS_MANAGED, 0),
        ("device", pointer_attribute::DEVICE_ORDINAL, 0),
        ("size", pointer_attribute::RANGE_SIZE, RESERVED as u64),
        ("is mapped", pointer_attribute::MAPPED, 1),
    ] {
        let (result, value) = ask(which);
        c.ok(what, result);
        c.same(what, value, want);
    }
    let (result, start) = ask(pointer_attribute::RANGE_START_ADDR);
    c.ok("start", result);
    c.yes("it is that of the reservation", start == ptr);
    c.invalid("host address", ask(pointer_attribute::HOST_POINTER).0);
}

/// Addresses are freed whole, once, and when nothing is mapped there.
fn free_addresses(c: &Case) {
    primary(c);
    let (ptr, _) = mapped(c);
    c.invalid("while mapped", cuMemAddressFree(ptr, RESERVED));
    c.require("cuMemUnmap", cuMemUnmap(ptr, HANDLE));
    c.invalid("the first half", cuMemAddressFree(ptr, HANDLE));
    c.ok("the whole", cuMemAddressFree(ptr, RESERVED));
    c.invalid("again", cuMemAddressFree(ptr, RESERVED));
}

/// `cuMemFree` frees no mapping, and `cuMemUnmap` no plain memory.
fn not_for_plain_free(c: &Case) {
    primary(c);
    let (ptr, _) = mapped(c);
    c.invalid("cuMemFree", cuMemFree_v2(ptr));
    c.invalid("cuMemFreeAsync", cuMemFreeAsync(ptr, CUstream::NULL));
    let plain = alloc(c, HANDLE);
    c.invalid("cuMemUnmap of plain memory", cuMemUnmap(plain, HANDLE));
    c.invalid(
        "cuMemAddressFree of plain memory",
        cuMemAddressFree(plain, HANDLE),
    );
    c.ok("cuMemFree of plain memory", cuMemFree_v2(plain));
}

/// Virtual memory belongs to the device: no context need be current.
fn without_a_context(c: &Case) {
    primary(c);
    pop(c);
    let (mut ptr, mut handle) = (0, 0);
    c.ok("reserve", cuMemAddressReserve(&mut ptr, RESERVED, 0, 0, 0));
    c.ok(
        "create",
        cuMemCreate(&mut handle, HANDLE, &device_properties(0), 0),
    );
    c.ok("map", cuMemMap(ptr, HANDLE, 0, handle, 0));
    c.ok(
        "give access",
        cuMemSetAccess(ptr, HANDLE, &read_and_write(), 1),
    );
    c.ok("unmap", cuMemUnmap(ptr, HANDLE));
    c.ok("release", cuMemRelease(handle));
    c.ok("free the addresses", cuMemAddressFree(ptr, RESERVED));
}
