//! Sizes of grids and blocks as `cust` has them.

use cust::function::{BlockSize, GridSize};

use crate::guards::Dim3;

impl From<GridSize> for Dim3 {
    fn from(grid: GridSize) -> Self {
        Self::from((grid.x, grid.y, grid.z))
    }
}

impl From<BlockSize> for Dim3 {
    fn from(block: BlockSize) -> Self {
        Self::from((block.x, block.y, block.z))
    }
}
