//! The address ranges of the driver's libraries: whose calls of `malloc` the arena serves.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::lock::Lock;
use super::objects;

/// More ranges than a driver has; what is beyond is not recognised.
const CAPACITY: usize = 64;

/// The lowest address of all ranges, and the distance from it to the highest. The stubs compare with these first.
pub(super) static LOW: AtomicUsize = AtomicUsize::new(0);
pub(super) static SPAN: AtomicUsize = AtomicUsize::new(0);

/// Starts and ends of the executable segments.
static RANGES: [[AtomicUsize; 2]; CAPACITY] =
    [const { [const { AtomicUsize::new(0) }; 2] }; CAPACITY];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The state of the list of objects that the ranges were read from.
static GENERATION: AtomicU64 = AtomicU64::new(u64::MAX);
static REFRESH: Lock = Lock::new();

/// Whether a library with this file name belongs to the driver. `libcudart` does not: it is the program's.
pub(crate) fn is_driver(file_name: &[u8]) -> bool {
    // `libcuda_sim` is the simulated driver where it is loaded by its own name.
    let prefixes: [&[u8]; 5] = [
        b"libcuda.so",
        b"libcuda_sim.so",
        b"libcudadebugger.so",
        b"libnvidia-",
        b"libnvrm",
    ];
    prefixes.iter().any(|prefix| file_name.starts_with(prefix))
}

/// Whether this library of the driver keeps addresses of the program's resources. Others, such as its compiler, do not; and
/// with all of them, most libraries of a program would lie in between, and the stubs could not tell their calls by one
/// comparison.
fn keeps_addresses(file_name: &[u8]) -> bool {
    let prefixes: [&[u8]; 2] = [b"libcuda.so", b"libcuda_sim.so"];
    prefixes.iter().any(|prefix| file_name.starts_with(prefix))
}

/// Whether the address is code of the driver.
pub(super) fn contains(address: usize) -> bool {
    let ranges = &RANGES[..COUNT.load(Ordering::Acquire)];
    ranges.iter().any(|[start, end]| {
        (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&address)
    })
}

/// Reads the ranges again if objects were loaded or unloaded.
pub(super) fn refresh() {
    let generation = objects::generation();
    if GENERATION.load(Ordering::Acquire) == generation {
        return;
    }
    let mut found: [Range<usize>; CAPACITY] = [const { 0..0 }; CAPACITY];
    let mut count = 0;
    objects::for_each(|object| {
        if keeps_addresses(object.file_name()) {
            for segment in object.segments(libc::PF_X) {
                if count < CAPACITY {
                    found[count] = segment;
                    count += 1;
                }
            }
        }
        true
    });
    let found = &found[..count];
    let low = found.iter().map(|range| range.start).min().unwrap_or(0);
    let high = found.iter().map(|range| range.end).max().unwrap_or(0);
    // A call in another thread that sees a mixture of old and new is served by the other allocator. Both work.
    let _held = REFRESH.hold();
    for (range, [start, end]) in found.iter().zip(&RANGES) {
        start.store(range.start, Ordering::Relaxed);
        end.store(range.end, Ordering::Relaxed);
    }
    COUNT.store(count, Ordering::Release);
    LOW.store(low, Ordering::Release);
    SPAN.store(high - low, Ordering::Release);
    GENERATION.store(generation, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::is_driver;

    #[test]
    fn the_runtime_is_not_the_driver() {
        for name in [
            "libcuda.so.1",
            "libnvidia-ptxjitcompiler.so.580.1",
            "libcuda_sim.so",
        ] {
            assert!(is_driver(name.as_bytes()), "{name}");
        }
        for name in [
            "libcudart.so.13",
            "libcublas.so",
            "libc.so.6",
            "",
            "libtorch_cuda.so",
        ] {
            assert!(!is_driver(name.as_bytes()), "{name}");
        }
    }
}
