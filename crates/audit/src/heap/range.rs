//! The reserved address range, and a table with an entry for each of its units of 64 KiB.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a unit. Slabs are one unit, so a block's slab follows from its address.
pub(super) const UNIT: usize = 64 << 10;

/// The reservations that are tried, largest first: a limit on the address space may forbid the larger ones.
const SIZES: [usize; 5] = [64 << 30, 8 << 30, 1 << 30, 128 << 20, 16 << 20];

/// Where the range is wanted: far from libraries, heap and stack. At an address that the kernel selects it would lie between the
/// libraries that are loaded before this and those that are loaded later, and a PyTorch step took 3 % longer: it seems that
/// processors predict branches over more than 4 GiB less well. It is also far from 1 TiB, where the driver has ranges of its
/// own, and below a third of the address space, where libraries begin without a limit for the stack.
const WANTED: usize = 32 << 40;

/// [`WANTED`], and up to 8 TiB as random as the addresses of libraries.
fn wanted() -> *mut c_void {
    let random = ptr::from_ref(&START).addr() >> 12 & 0x7fff;
    ptr::without_provenance_mut(WANTED + (random << 28))
}

/// [`START`] before the reservation, and where none succeeded. No address of a program is within any range behind them: a thread
/// may read one of these and then the length of a reservation that another thread makes.
const NOT_RESERVED: usize = 1 << (usize::BITS - 1);
const REFUSED: usize = NOT_RESERVED + 1;

/// Where the range begins, or one of the above. The stubs compare with it.
pub(super) static START: AtomicUsize = AtomicUsize::new(NOT_RESERVED);
/// The range's bytes; zero before the reservation. The stubs compare with it.
pub(super) static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// What a unit is used for. Zeroed memory is `Untouched`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Use {
    #[allow(dead_code, reason = "what zeroed memory is")]
    Untouched = 0,
    /// First or last unit of a free run.
    Free,
    /// A slab of small blocks.
    Slab,
    /// First unit of a large block.
    Large,
    /// Last unit of a large block of several units.
    Tail,
}

/// The table's entry of a unit.
#[repr(C)]
pub(super) struct Unit {
    pub(super) usage: Use,
    pub(super) class: u8,
    pub(super) shard: u8,
    /// Units of the run, in the first and last unit of a free run and the first of a large block.
    pub(super) length: u32,
    /// Slab: blocks in use.
    pub(super) used: u32,
    /// Slab: blocks that were handed out at least once; behind them nothing was touched.
    pub(super) touched: u32,
    /// Slab: the first freed block as its number plus one; each holds the number of the next.
    pub(super) freed: u32,
    /// Neighbours in the list of free runs of a bin, or of slabs with free blocks. Zero ends it: unit 0 is the table.
    pub(super) next: u32,
    pub(super) previous: u32,
}

/// The range, once it is reserved.
#[derive(Clone, Copy)]
pub(super) struct Reserved {
    start: usize,
    units: u32,
}

/// The most that is reserved: where the address space is limited, a sixteenth of it. The rest is the program's.
fn most() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the structure can be written to.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
    match limit.rlim_cur {
        libc::RLIM_INFINITY => usize::MAX,
        limit => usize::try_from(limit / 16).unwrap_or(usize::MAX),
    }
}

impl Reserved {
    /// The range, if it was reserved.
    pub(super) fn get() -> Option<Reserved> {
        let units = LENGTH.load(Ordering::Acquire) / UNIT;
        let start = START.load(Ordering::Relaxed);
        (units != 0).then_some(Reserved {
            start,
            units: units as u32,
        })
    }

    /// Reserves the range. `None` when the system refuses, now and in all later calls. One thread at a time.
    pub(super) fn create() -> Option<Reserved> {
        if START.load(Ordering::Relaxed) != NOT_RESERVED {
            return Reserved::get();
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let most = most();
        for size in SIZES.into_iter().filter(|size| *size <= most) {
            // SAFETY: a new mapping; where the wanted address is not free, the kernel selects another.
            let at = unsafe { libc::mmap(wanted(), size + UNIT, libc::PROT_NONE, flags, -1, 0) };
            if at == libc::MAP_FAILED {
                continue;
            }
            let start = at.addr().next_multiple_of(UNIT);
            let reserved = Reserved {
                start,
                units: (size / UNIT) as u32,
            };
            if !reserved.make_usable(0..reserved.table_units()) {
                break;
            }
            START.store(start, Ordering::Relaxed);
            LENGTH.store(size, Ordering::Release);
            return Some(reserved);
        }
        START.store(REFUSED, Ordering::Relaxed);
        None
    }

    /// A range of its own.
    #[cfg(test)]
    pub(super) fn for_test(units: u32) -> Reserved {
        let size = (units as usize + 1) * UNIT;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel selects.
        let at = unsafe { libc::mmap(ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let start = at.expose_provenance().next_multiple_of(UNIT);
        let reserved = Reserved { start, units };
        assert!(reserved.make_usable(0..reserved.table_units()));
        reserved
    }

    pub(super) fn units(self) -> u32 {
        self.units
    }

    /// Units that the table itself occupies.
    pub(super) fn table_units(self) -> u32 {
        (self.units as usize * size_of::<Unit>()).div_ceil(UNIT) as u32
    }

    /// Makes units readable and writable. Whether the system agreed.
    pub(super) fn make_usable(self, units: Range<u32>) -> bool {
        let length = (units.end - units.start) as usize * UNIT;
        // SAFETY: the units are in the reserved range, and in use by nothing yet.
        unsafe {
            libc::mprotect(
                self.address(units.start).cast(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
            ) == 0
        }
    }

    /// Returns the units' pages to the system; they read as zero then.
    ///
    /// # Safety
    /// Nothing uses the units' contents.
    pub(super) unsafe fn discard(self, first: u32, count: u32) {
        let length = count as usize * UNIT;
        // SAFETY: see the function's own requirement.
        unsafe {
            libc::madvise(self.address(first).cast(), length, libc::MADV_DONTNEED);
        }
    }

    pub(super) fn address(self, unit: u32) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.start + unit as usize * UNIT)
    }

    /// The unit of an address in the range.
    pub(super) fn unit_of(self, address: usize) -> u32 {
        ((address - self.start) / UNIT) as u32
    }

    /// The table's entry. Valid for units below the table's length; which lock protects it depends on its use.
    pub(super) fn entry(self, unit: u32) -> *mut Unit {
        debug_assert!(unit < self.units);
        let table: *mut Unit = ptr::with_exposed_provenance_mut(self.start);
        // SAFETY: the table has an entry for each unit of the range.
        unsafe { table.add(unit as usize) }
    }
}

/// Whether the range was reserved.
#[inline]
pub(super) fn is_reserved() -> bool {
    LENGTH.load(Ordering::Relaxed) != 0
}

/// Whether the address lies in the range.
pub(super) fn contains(address: usize) -> bool {
    address.wrapping_sub(START.load(Ordering::Relaxed)) < LENGTH.load(Ordering::Relaxed)
}

pub(super) fn addresses() -> Range<usize> {
    let start = START.load(Ordering::Relaxed);
    start..start + LENGTH.load(Ordering::Relaxed)
}
