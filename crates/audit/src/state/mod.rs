//! The live resources of this process: one registry for all contexts, and the state that decides when a record ends.
//!
//! - [`insert`], [`take`] and [`put_back`] change the records. A free names neither the context nor the function of the
//!   allocation, so [`take`] gets all kinds that the function can free.
//! - `contexts` numbers the contexts: when a context is destroyed, the records of its resources end too.
//! - `counted` has resources that are opened several times and closed as often.
//! - `mappings` has virtual memory: physical memory is alive while it has a handle or is mapped.
//! - `graphs` has the memory that graphs allocate.
//! - `parts` has the functions and variables of modules.
//! - `work` counts what the program launches.
//!
//! No lock of these is held while the driver is called. Must not know the driver's signatures.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "unit tests do not export functions in front of the driver's"
    )
)]

pub(crate) mod contexts;
pub(crate) mod counted;
pub(crate) mod graphs;
pub(crate) mod mappings;
pub(crate) mod parts;
pub(crate) mod work;

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cuguard_registry::{
    Entry, Key, MAX_DEPTH, Owner, Registry, Removed, ResourceKind, TrackingLevel,
};

use crate::origin;

/// The records of this process.
pub(crate) fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| Registry::new(TrackingLevel::Stacks, MAX_DEPTH))
}

/// A record that was removed before the driver frees, because another thread may get the address at that moment.
pub(crate) type Taken = Removed;

/// Whether anything was ever recorded. Otherwise nothing is looked up.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether anything was ever recorded.
pub(crate) fn is_used() -> bool {
    ANY.load(Relaxed)
}

/// What [`begin`] calls.
static BEGIN: OnceLock<fn()> = OnceLock::new();

/// Has this called before the first record, and perhaps again.
pub(crate) fn call_before_first(begin: fn()) {
    let _ = BEGIN.set(begin);
    // Of another thread, which did not wait for this.
    if is_used() {
        begin();
    }
}

/// There is something to record: a resource, a context or a refused allocation.
#[cold]
pub(crate) fn begin() {
    if let Some(begin) = BEGIN.get() {
        begin();
    }
}

/// Records what the driver just allocated or created.
// Not inlined, so that the frames of this library are few.
#[inline(never)]
pub(crate) fn insert(kind: ResourceKind, address: u64, bytes: u64, stream: u64, owner: Owner) {
    if !is_used() {
        begin();
        ANY.store(true, Relaxed);
    }
    let trace = origin::trace();
    let entry = Entry {
        bytes,
        type_name: "",
        stream,
    };
    let key = Key::by_address(kind, address);
    registry().insert_traced(key, entry, trace, owner);
}

/// Whether there is a record.
pub(crate) fn contains(kind: ResourceKind, address: u64) -> bool {
    is_used() && registry().get(Key::by_address(kind, address)).is_some()
}

/// Removes the record of what is about to be freed. Only one of these kinds can be at an address.
#[inline]
pub(crate) fn take(kinds: &[ResourceKind], address: u64) -> Option<Taken> {
    match is_used() && address != 0 {
        true => registry().remove_any(kinds, address),
        // Programs free null pointers.
        false => None,
    }
}

/// Removes the record of what ended in another way than by a free.
pub(crate) fn forget(kind: ResourceKind, address: u64) {
    let _ = take(&[kind], address);
}

/// Inserts what [`take`] removed, because it was not freed.
#[cold]
pub(crate) fn put_back(taken: Option<Taken>) {
    if let Some(taken) = &taken {
        registry().put_back_removed(taken);
    }
}

/// Gives a record another key, with its call site and time as they are.
pub(crate) fn move_record(from: (ResourceKind, u64), to: (ResourceKind, u64)) {
    let key = |(kind, address)| Key::by_address(kind, address);
    registry().rekey(key(from), key(to));
}

/// Writes how much of a kind is alive, and returns 0; returns -1 for a name that is not a kind. For programs that check
/// themselves while they run under `cuguard run`, and for tests.
///
/// # Safety
///
/// `kind` is a C string; the other two are null or can be written to.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn cuguard_audit_live(
    kind: *const c_char,
    count: *mut u64,
    bytes: *mut u64,
) -> i32 {
    if kind.is_null() {
        return -1;
    }
    // SAFETY: as the caller guarantees.
    let name = unsafe { CStr::from_ptr(kind) }.to_bytes();
    let named = |kind: &&ResourceKind| kind.name().as_bytes() == name;
    let Some(kind) = ResourceKind::ALL.iter().find(named) else {
        return -1;
    };
    let live = registry().totals(*kind).live();
    for (out, value) in [(count, live.count), (bytes, live.bytes)] {
        if !out.is_null() {
            // SAFETY: as the caller guarantees.
            unsafe { out.write_unaligned(value) };
        }
    }
    0
}
