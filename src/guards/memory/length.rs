//! Checks of lengths and sizes, for all guards.

use crate::error::{Error, Result};

/// The size of `count` values of `T` in bytes.
pub(crate) fn bytes_of<T>(operation: &'static str, count: usize) -> Result<usize> {
    let size = size_of::<T>();
    // A slice has at most isize::MAX bytes.
    count
        .checked_mul(size)
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or(Error::SizeOverflow {
            operation,
            count,
            size,
        })
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
