//! The size of a grid, a block or a cluster.

/// The size of a grid in blocks, of a block in threads, or of a cluster in blocks: CUDA's `dim3`. A number or a tuple of up
/// to three is one, and with the feature `cust` its `GridSize` and `BlockSize`.
///
/// ```
/// use cuguard::code::Dim3;
///
/// assert_eq!(Dim3::from(256), Dim3 { x: 256, y: 1, z: 1 });
/// assert_eq!(Dim3::from((8, 4)), Dim3 { x: 8, y: 4, z: 1 });
/// assert_eq!(Dim3::from((8, 4, 2)), Dim3 { x: 8, y: 4, z: 2 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim3 {
    /// The first dimension, which varies fastest.
    pub x: u32,
    /// The second dimension.
    pub y: u32,
    /// The third dimension.
    pub z: u32,
}

impl Dim3 {
    pub(super) fn to_array(self) -> [u32; 3] {
        [self.x, self.y, self.z]
    }
}

impl From<u32> for Dim3 {
    fn from(x: u32) -> Self {
        Self { x, y: 1, z: 1 }
    }
}

impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Self {
        Self { x, y, z: 1 }
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self { x, y, z }
    }
}
