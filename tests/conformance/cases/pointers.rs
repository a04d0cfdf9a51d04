//! What the driver reports about an address.

use crate::case::Case;
use crate::driver::*;
use crate::tools::*;

cases! {"pointers":
    device_memory,
    stream_ordered_memory,
    pinned_memory,
    registered_memory,
    managed_memory,
    unknown_addresses,
    buffer_identity,
    many_at_once,
    wrong_questions,
}

/// One attribute of an address, or `None` if the driver does not have it.
fn attribute<T: Default>(ptr: CUdeviceptr, which: u32) -> Option<T> {
    let mut value = T::default();
    let result = cuPointerGetAttribute((&raw mut value).cast(), which, ptr);
    result.is_success().then_some(value)
}

/// What is to be known about an address.
struct Facts {
    kind: u32,
    /// The context, where memory belongs to one.
    context: CUcontext,
    host: bool,
    managed: bool,
    /// How far into the block the address lies.
    offset: u64,
    size: usize,
}

impl Facts {
    fn check(&self, c: &Case, what: &str, ptr: CUdeviceptr) {
        use pointer_attribute::*;
        let kind = attribute::<u32>(ptr, MEMORY_TYPE);
        c.same(format_args!("{what}: memory type"), kind, Some(self.kind));
        let context = attribute::<CUcontext>(ptr, CONTEXT);
        c.yes(
            format_args!("{what}: context"),
            context == Some(self.context),
        );
        let device = attribute::<u64>(ptr, DEVICE_POINTER);
        c.yes(
            format_args!("{what}: its device address is itself"),
            device == Some(ptr),
        );
        let host = attribute::<u64>(ptr, HOST_POINTER);
        c.same(
            format_args!("{what}: has a host address"),
            host.is_some(),
            self.host,
        );
        c.yes(
            format_args!("{what}: which is itself"),
            host.is_none_or(|host| host == ptr),
        );
        let managed = attribute::<u32>(ptr, IS_MANAGED);
        c.same(
            format_args!("{what}: is managed"),
            managed,
            Some(u32::from(self.managed)),
        );
        let ordinal = attribute::<i32>(ptr, DEVICE_ORDINAL);
        c.same(format_args!("{what}: device"), ordinal, Some(0));
        let start = attribute::<u64>(ptr, RANGE_START_ADDR).map(|start| ptr.wrapping_sub(start));
        c.same(
            format_args!("{what}: distance from the start"),
            start,
            Some(self.offset),
        );
        let size = attribute::<usize>(ptr, RANGE_SIZE);
        c.same(format_args!("{what}: size"), size, Some(self.size));
        let mapped = attribute::<i32>(ptr, MAPPED);
        c.same(format_args!("{what}: is mapped"), mapped, Some(1));
        let id = attribute::<u64>(ptr, BUFFER_ID);
        c.yes(format_args!("{what}: has an identity"), id.is_some());
    }
}

/// Device memory belongs to its context and has no host address.
fn device_memory(c: &Case) {
    let context = primary(c);
    let ptr = alloc(c, 5000);
    let mut facts = Facts {
        kind: memory_type::DEVICE,
        context,
        host: false,
        managed: false,
        offset: 0,
        size: 5000,
    };
    facts.check(c, "device memory", ptr);
    facts.offset = 8;
    facts.check(c, "8 bytes into it", ptr + 8);
}

/// Stream-ordered memory belongs to no context.
fn stream_ordered_memory(c: &Case) {
    primary(c);
    let ptr = alloc_async(c, 5000, CUstream::NULL);
    let facts = Facts {
        kind: memory_type::DEVICE,
        context: CUcontext::NULL,
        host: false,
        managed: false,
        offset: 0,
        size: 5000,
    };
    facts.check(c, "stream-ordered memory", ptr);
}

/// Pinned memory is host memory with a device address.
fn pinned_memory(c: &Case) {
    let context = primary(c);
    let p = pinned(c, 5000);
    let facts = Facts {
        kind: memory_type::HOST,
        context,
        host: true,
        managed: false,
        offset: 0,
        size: 5000,
    };
    facts.check(c, "pinned memory", p.addr() as u64);
}

/// Registered memory is host memory with a device address, everywhere within it.
fn registered_memory(c: &Case) {
    let context = primary(c);
    let p = pages(8192);
    c.require("register", cuMemHostRegister_v2(p.cast(), 8192, 0));
    let mut facts = Facts {
        kind: memory_type::HOST,
        context,
        host: true,
        managed: false,
        offset: 0,
        size: 8192,
    };
    facts.check(c, "registered memory", p.addr() as u64);
    facts.offset = 5;
    facts.check(c, "5 bytes into it", p.addr() as u64 + 5);
}

/// Managed memory is device memory with a host address.
fn managed_memory(c: &Case) {
    let context = primary(c);
    let ptr = managed(c, 5000);
    let facts = Facts {
        kind: memory_type::DEVICE,
        context,
        host: true,
        managed: true,
        offset: 0,
        size: 5000,
    };
    facts.check(c, "managed memory", ptr);
}

/// The driver has no attributes of addresses outside of its memory, were it by one byte.
fn unknown_addresses(c: &Case) {
    primary(c);
    let (ptr, freed) = (alloc(c, 5000), alloc(c, 5000));
    free(c, freed);
    let pageable = Box::new(0_u64);
    let pageable = std::ptr::from_ref(&*pageable).addr() as u64;
    use pointer_attribute::*;
    for (what, address) in [
        ("the byte after a block", ptr + 5000),
        ("a freed block", freed),
        ("ordinary host memory", pageable),
        ("null", 0),
        ("an address made up", 0x1234_5678),
    ] {
        let mut value = 0_u64;
        for (name, which) in [
            ("memory type", MEMORY_TYPE),
            ("context", CONTEXT),
            ("device address", DEVICE_POINTER),
            ("host address", HOST_POINTER),
            ("is managed", IS_MANAGED),
            ("device", DEVICE_ORDINAL),
            ("start", RANGE_START_ADDR),
            ("size", RANGE_SIZE),
            ("identity", BUFFER_ID),
            ("is mapped", MAPPED),
        ] {
            let result = cuPointerGetAttribute((&raw mut value).cast(), which, address);
            c.invalid(format_args!("{what}: {name}"), result);
        }
    }
}

/// Every block has an identity of its own, even at an address that had another block before.
fn buffer_identity(c: &Case) {
    primary(c);
    let identity = |ptr| attribute::<u64>(ptr, pointer_attribute::BUFFER_ID);
    let (one, two) = (alloc(c, 1000), alloc(c, 1000));
    let (first, second) = (identity(one), identity(two));
    c.yes("both have one", first.is_some() && second.is_some());
    c.yes("they differ", first != second);
    c.yes(
        "it is the same everywhere in a block",
        identity(one + 999) == first,
    );
    free(c, one);
    let again = alloc(c, 1000);
    c.yes("a new block has a new one", identity(again) != first);
}

/// Asked for many attributes at once, the driver returns zero for what it does not know.
fn many_at_once(c: &Case) {
    primary(c);
    let ptr = managed(c, 5000);
    let pageable = Box::new(0_u64);
    let pageable = std::ptr::from_ref(&*pageable).addr() as u64;
    for (what, address, want) in [
        ("managed memory", ptr, (memory_type::DEVICE, 1)),
        ("ordinary host memory", pageable, (0, 0)),
    ] {
        let (mut kind, mut managed) = (77_u32, 77_u32);
        let mut which = [
            pointer_attribute::MEMORY_TYPE,
            pointer_attribute::IS_MANAGED,
        ];
        let mut places = [(&raw mut kind).cast(), (&raw mut managed).cast()];
        let result = cuPointerGetAttributes(2, which.as_mut_ptr(), places.as_mut_ptr(), address);
        c.ok(format_args!("ask info {what}"), result);
        c.same(format_args!("{what}: type, managed"), (kind, managed), want);
    }
}

/// Attributes that do not exist fail; one can be set, on memory that is there.
fn wrong_questions(c: &Case) {
    primary(c);
    let ptr = alloc(c, 100);
    let mut value = 0_u64;
    c.invalid(
        "attribute 99",
        cuPointerGetAttribute((&raw mut value).cast(), 99, ptr),
    );
    let result = cuPointerGetAttribute(std::ptr::null_mut(), 2, ptr);
    c.invalid("an attribute into null", result);
    let on = 1_i32;
    let set =
        |ptr| cuPointerSetAttribute((&raw const on).cast(), pointer_attribute::SYNC_MEMOPS, ptr);
    c.ok("set SYNC_MEMOPS", set(ptr));
    free(c, ptr);
    c.invalid("set it on freed memory", set(ptr));
}
