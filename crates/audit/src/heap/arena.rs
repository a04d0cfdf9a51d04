//! Allocate, free and reallocate in the reserved range. Falls back to the next `malloc` when it is exhausted.
//!
//! Lock order: a class of a shard, then the runs.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lock::Lock;
use super::range::{self, Reserved, UNIT, Use};
use super::runs::Runs;
use super::slabs::{Freed, Slabs};
use super::user::{SHARDS, User};
use super::{cache, classes, next};

/// Large blocks from this size on return their pages to the system when they are freed.
const DISCARD: usize = 128 << 10;

struct Protected<T> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used only while the lock is held.
unsafe impl<T: Send> Sync for Protected<T> {}

impl<T> Protected<T> {
    const fn new(value: T) -> Protected<T> {
        Protected {
            lock: Lock::new(),
            value: UnsafeCell::new(value),
        }
    }

    fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        if is_held_here() {
            // SAFETY: this thread holds all locks, and no body uses the same value again.
            return body(unsafe { &mut *self.value.get() });
        }
        // One access of thread-local storage, which is a call in a library.
        HELD.with(|count| {
            count.set(count.get() + 1);
            let held = self.lock.hold();
            // SAFETY: the lock is held, and no body uses the same value again.
            let result = body(unsafe { &mut *self.value.get() });
            drop(held);
            count.set(count.get() - 1);
            result
        })
    }
}

thread_local! {
    /// How many locks of the arena the calling thread holds or waits for.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Whether the calling thread is inside the arena: a signal handler that waits for another thread must not wait then.
pub(crate) fn is_inside() -> bool {
    HELD.get() != 0
}

static RUNS: Protected<Runs> = Protected::new(Runs::new());
static SLABS: [[Protected<Slabs>; classes::COUNT]; SHARDS * User::COUNT] =
    [const { [const { Protected::new(Slabs::new()) }; classes::COUNT] }; SHARDS * User::COUNT];

/// The thread that holds all locks, as `pthread_self`, which a child of `fork` keeps; or 0.
static HOLDER: AtomicUsize = AtomicUsize::new(0);

/// Whether the calling thread holds all locks: it allocates without. Handlers of `fork` that run between those of this
/// library may be the driver's, and allocate.
fn is_held_here() -> bool {
    let holder = HOLDER.load(Ordering::Relaxed);
    // SAFETY: no requirements. It reads the thread pointer.
    holder != 0 && holder == unsafe { libc::pthread_self() } as usize
}

/// Takes all locks. For `fork`, and before threads are stopped.
pub(super) fn lock_all() {
    for slabs in SLABS.iter().flatten() {
        slabs.lock.lock();
    }
    RUNS.lock.lock();
    // SAFETY: as above.
    HOLDER.store(unsafe { libc::pthread_self() } as usize, Ordering::Relaxed);
}

/// Ends [`lock_all`].
pub(super) fn unlock_all() {
    HOLDER.store(0, Ordering::Relaxed);
    RUNS.lock.unlock();
    for slabs in SLABS.iter().flatten() {
        slabs.lock.unlock();
    }
}

fn reserved() -> Option<Reserved> {
    Reserved::get().or_else(|| RUNS.with(|_| Reserved::create()))
}

/// Whether the block lies in the arena's range.
pub(super) fn owns(block: *const c_void) -> bool {
    range::contains(block.addr())
}

/// A block of at least this size and alignment (a power of two), or null.
pub(super) fn allocate(user: User, size: usize, align: usize) -> *mut c_void {
    match allocate_here(user, size, align) {
        Some(block) => block,
        None => next::memory(size, align),
    }
}

fn allocate_here(user: User, size: usize, align: usize) -> Option<*mut c_void> {
    let reserved = reserved()?;
    let block = match classes::aligned(size, align) {
        Some(class) => allocate_small(user, reserved, class),
        None => allocate_large(user, reserved, size, align),
    };
    block.map(|block| block.cast())
}

fn allocate_small(user: User, reserved: Reserved, class: usize) -> Option<*mut u8> {
    if let Some(block) = cache::pop(user, class) {
        return Some(block);
    }
    let shard = user.shard();
    SLABS[shard][class].with(|slabs| {
        if let Some(block) = slabs.allocate(reserved, class) {
            return Some(block);
        }
        let unit = RUNS.with(|runs| runs.allocate(reserved, 1))?;
        slabs.add(reserved, unit, class, shard);
        slabs.allocate(reserved, class)
    })
}

fn allocate_large(user: User, reserved: Reserved, size: usize, align: usize) -> Option<*mut u8> {
    let length = u32::try_from(size.div_ceil(UNIT).max(1)).ok()?;
    let align = u32::try_from(align.div_ceil(UNIT)).ok()?;
    RUNS.with(|runs| {
        // Longer by the alignment; what is in front of the aligned block and behind it is freed again.
        let whole = length.checked_add(align - 1)?;
        let start = runs.allocate(reserved, whole)?;
        let address = reserved.address(start).addr();
        let skipped = (address.next_multiple_of(align as usize * UNIT) - address) / UNIT;
        let first = start + skipped as u32;
        // SAFETY: the run was just allocated.
        unsafe {
            let tail = reserved.entry(first + length - 1);
            (*tail).usage = Use::Tail;
            let head = reserved.entry(first);
            (*head).usage = Use::Large;
            (*head).length = length;
            (*head).shard = user.shard() as u8;
        }
        if skipped > 0 {
            runs.free(reserved, start, skipped as u32);
        }
        let rest = whole - length - skipped as u32;
        if rest > 0 {
            runs.free(reserved, first + length, rest);
        }
        Some(reserved.address(first))
    })
}

/// As [`allocate`], and the memory is zero.
pub(super) fn allocate_zeroed(user: User, size: usize, align: usize) -> *mut c_void {
    let block = allocate(user, size, align);
    if block.is_null() {
        return block;
    }
    if size >= DISCARD
        && owns(block)
        && let Some(reserved) = Reserved::get()
    {
        let first = reserved.unit_of(block.addr());
        // SAFETY: a large block that was just allocated. Untouched pages cost nothing to discard.
        unsafe { reserved.discard(first, (*reserved.entry(first)).length) };
        return block;
    }
    // SAFETY: the block has at least this size.
    unsafe { ptr::write_bytes(block.cast::<u8>(), 0, size) };
    block
}

/// Frees a block of the arena, or of the next `malloc`. Null is ignored.
///
/// # Safety
/// The caller owns the block.
pub(super) unsafe fn free(block: *mut c_void) {
    let Some(reserved) = Reserved::get().filter(|_| owns(block)) else {
        // SAFETY: as promised by the caller; not of the arena, so of the next `malloc`.
        return unsafe { next::free(block) };
    };
    let unit = reserved.unit_of(block.addr());
    let entry = reserved.entry(unit);
    // SAFETY: the block is in use, so its unit keeps its use, class and shard until it is freed here.
    unsafe {
        match (*entry).usage {
            Use::Slab => {
                let (class, shard) = ((*entry).class as usize, (*entry).shard);
                if cache::push(User::of_shard(shard), class, block.cast()) {
                    return;
                }
                SLABS[shard as usize][class].with(|slabs| {
                    if let Freed::Empty(unit) = slabs.free(reserved, block.cast(), class) {
                        RUNS.with(|runs| runs.free(reserved, unit, 1));
                    }
                });
            }
            Use::Large => {
                let length = (*entry).length;
                // Before others can allocate it.
                if length as usize * UNIT >= DISCARD {
                    reserved.discard(unit, length);
                }
                RUNS.with(|runs| runs.free(reserved, unit, length));
            }
            Use::Untouched | Use::Free | Use::Tail => invalid("free(): invalid pointer"),
        }
    }
}

/// The size that may be used of a block of the arena.
///
/// # Safety
/// The caller owns the block, which is of the arena.
pub(super) unsafe fn usable_size(block: *const c_void) -> usize {
    let Some(reserved) = Reserved::get() else {
        return 0;
    };
    let entry = reserved.entry(reserved.unit_of(block.addr()));
    // SAFETY: the block is in use, so its unit keeps its use.
    unsafe {
        match (*entry).usage {
            Use::Slab => classes::size((*entry).class as usize),
            Use::Large => (*entry).length as usize * UNIT,
            Use::Untouched | Use::Free | Use::Tail => {
                invalid("malloc_usable_size(): invalid pointer")
            }
        }
    }
}

/// The memory of the driver: units with blocks of its own, free ones among them. For a search, while no thread allocates.
pub(super) fn driver_units() -> Vec<Range<usize>> {
    let Some(reserved) = Reserved::get() else {
        return Vec::new();
    };
    let (mut units, mut unit) = (Vec::new(), reserved.table_units());
    let top = RUNS.with(|runs| runs.top());
    while unit < top {
        let entry = reserved.entry(unit);
        // SAFETY: units below the top have entries, which nobody changes now.
        let (usage, length, shard) = unsafe { ((*entry).usage, (*entry).length, (*entry).shard) };
        let length = length.clamp(1, top - unit);
        let is_used = matches!(usage, Use::Slab | Use::Large);
        if is_used && User::of_shard(shard) == User::Driver {
            let start = reserved.address(unit).addr();
            units.push(start..start + length as usize * UNIT);
        }
        unit += length;
    }
    units
}

/// Changes the size of a block of the arena or of the next `malloc`; the result is of the arena where it has room.
/// Null, and the block untouched, when there is no memory.
///
/// # Safety
/// The caller owns the block, which is not null.
pub(super) unsafe fn reallocate(
    user: User,
    block: *mut c_void,
    size: usize,
    align: usize,
) -> *mut c_void {
    // SAFETY: as promised by the caller.
    let old = unsafe {
        if owns(block) {
            usable_size(block)
        } else {
            next::usable_size(block)
        }
    };
    if owns(block) && size <= old && (size >= old / 2 || old <= 64) {
        return block;
    }
    let new = allocate(user, size, align);
    if !new.is_null() {
        // SAFETY: both blocks have at least this size, and are different.
        unsafe {
            ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast::<u8>(), old.min(size));
            free(block);
        }
    }
    new
}

/// Ends the process, as glibc does: the program's memory is corrupt.
#[cold]
fn invalid(message: &str) -> ! {
    let line = [b"cuguard: ", message.as_bytes(), b"\n"];
    for part in line {
        // SAFETY: the buffer is valid. Nothing can be done about a failure.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
    // SAFETY: no requirements.
    unsafe { libc::abort() }
}
