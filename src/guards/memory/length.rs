//! Checks of lengths, sizes and alignments, for all guards.

use std::ops::{Bound, Range, RangeBounds};

use cuguard_driver::sys::CUdeviceptr;

use crate::error::{Error, Result};

/// The size of `count` values of `T` in bytes.
#[inline]
pub(crate) fn bytes_of<T>(operation: &'static str, count: usize) -> Result<usize> {
    let size = size_of::<T>();
    // A slice has at most isize::MAX bytes.
    match count.checked_mul(size) {
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok(bytes),
        _ => Err(overflow(operation, count, size)),
    }
}

/// Out of line, because every allocation has the path that does not need it.
#[cold]
#[inline(never)]
fn overflow(operation: &'static str, count: usize, size: usize) -> Error {
    Error::SizeOverflow {
        operation,
        count,
        size,
    }
}

/// Fails with [`Error::Misaligned`] unless memory that was just allocated is aligned for `T`. (Address 0 is no memory.) The
/// caller frees it then.
#[inline]
pub(crate) fn check_alignment<T>(operation: &'static str, address: CUdeviceptr) -> Result<()> {
    if address.is_multiple_of(align_of::<T>() as u64) {
        return Ok(());
    }
    Err(misaligned::<T>(operation, address))
}

#[cold]
#[inline(never)]
fn misaligned<T>(operation: &'static str, address: CUdeviceptr) -> Error {
    Error::Misaligned {
        operation,
        type_name: std::any::type_name::<T>(),
        align: align_of::<T>(),
        address,
    }
}

/// Fails with [`Error::LengthMismatch`] unless the argument and the resource have equally many elements. Both are given
/// by name and length.
pub(crate) fn check_len(
    operation: &'static str,
    (argument, actual): (&'static str, usize),
    (resource, expected): (&'static str, usize),
) -> Result<()> {
    if actual == expected {
        return Ok(());
    }
    Err(Error::LengthMismatch {
        operation,
        unit: "element",
        argument,
        actual,
        resource,
        expected,
    })
}

/// The elements that a range selects of a resource, given by name and length. Fails with [`Error::RangeOutOfBounds`] if
/// it does not have them all.
pub(crate) fn check_range(
    operation: &'static str,
    range: impl RangeBounds<usize>,
    resource: &'static str,
    len: usize,
) -> Result<Range<usize>> {
    // Saturates: no resource has `usize::MAX` elements of a size, and of a zero-sized type no element is lost.
    let start = match range.start_bound() {
        Bound::Included(first) => *first,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    if start <= end && end <= len {
        return Ok(start..end);
    }
    Err(Error::RangeOutOfBounds {
        operation,
        start,
        end,
        resource,
        len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_slices() {
        let check = |range: (Bound<usize>, Bound<usize>)| check_range("f", range, "the buffer", 4);
        assert_eq!(check_range("f", .., "the buffer", 4), Ok(0..4));
        assert_eq!(check_range("f", 1..=2, "the buffer", 4), Ok(1..3));
        assert_eq!(check_range("f", 4.., "the buffer", 4), Ok(4..4));
        let after = (Bound::Excluded(0), Bound::Included(3));
        assert_eq!(check(after), Ok(1..4));
        for (start, end) in [
            (Bound::Included(0), Bound::Included(4)),
            (Bound::Included(5), Bound::Unbounded),
            (Bound::Included(3), Bound::Excluded(2)),
            (Bound::Included(0), Bound::Included(usize::MAX)),
            (Bound::Excluded(usize::MAX), Bound::Unbounded),
        ] {
            assert!(check((start, end)).is_err(), "{start:?} {end:?}");
        }
    }

    #[test]
    fn a_range_outside_is_named() {
        let text = |range| {
            let error = check_range("DeviceBuffer::slice", range, "the buffer", 4);
            error.unwrap_err().to_string()
        };
        let prefix = "DeviceBuffer::slice: the range";
        assert_eq!(
            text(3..9),
            format!("{prefix} 3..9 exceeds the buffer's 4 elements")
        );
        assert_eq!(
            text(Range { start: 3, end: 2 }),
            format!("{prefix} 3..2 ends before it begins")
        );
        let one = check_range("f", 1..2, "the memory", 1).unwrap_err();
        assert_eq!(
            one.to_string(),
            "f: the range 1..2 exceeds the memory's 1 element"
        );
    }
}
