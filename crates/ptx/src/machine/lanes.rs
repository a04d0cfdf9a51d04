//! The lanes of a warp.

/// The threads of a warp.
pub(crate) const LANES: usize = 32;

/// A value for each lane of a warp.
pub(crate) type Lanes<T> = [T; LANES];

/// The value of each lane.
#[inline(always)]
pub(crate) fn lanes<T>(of: impl FnMut(usize) -> T) -> Lanes<T> {
    std::array::from_fn(of)
}
