//! What all threads of a grid share.

use super::region::Region;

/// The memory of the device, which the driver keeps.
///
/// # Safety
///
/// The regions that [`find`](Self::find) returns are what [`Region::new`] requires, for as long as the value is
/// borrowed: a driver keeps allocations that a kernel may use until the launch has returned.
pub unsafe trait Memory: Sync {
    /// The allocation that contains an address; `None` if there is none, such as after a free.
    fn find(&self, address: u64) -> Option<Region<'_>>;
}

/// What the functions of the device's runtime do.
pub trait Host: Sync {
    /// Prints the output of one `printf`.
    fn print(&self, text: &str);

    /// Allocates from the device's heap; 0 if it is full.
    fn allocate(&self, bytes: u64) -> u64;

    /// Frees what `allocate` returned; false if it is none.
    fn free(&self, address: u64) -> bool;

    /// `%globaltimer`: nanoseconds.
    fn nanoseconds(&self) -> u64;
}

/// What all threads of a grid share.
pub(crate) struct Grid<'a> {
    pub(crate) memory: &'a dyn Memory,
    pub(crate) host: &'a dyn Host,
    /// The extent of the grid in blocks, of a block in threads, of a cluster in blocks.
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) is_explicit_cluster: bool,
    /// The arguments of the kernel, at the offsets of its parameters.
    pub(crate) arguments: &'a [u8],
    /// The addresses of variables.
    pub(crate) variables: &'a [u64],
    /// The offsets of shared variables; those that the kernel does not use have none.
    pub(crate) shared: Vec<Option<u32>>,
    pub(crate) static_shared: u32,
    pub(crate) dynamic_shared: u32,
    pub(crate) grid_id: u64,
    /// What `cooperative_groups` finds in `%envreg1` and `%envreg2`: the address of its barrier of the grid.
    pub(crate) workspace: u64,
}

/// The identity of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockId {
    pub(crate) index: [u32; 3],
    /// Its cluster, and its position in that.
    pub(crate) cluster: [u32; 3],
    pub(crate) in_cluster: [u32; 3],
    pub(crate) rank: u32,
}

/// Functions have addresses that nothing else has.
const FUNCTIONS: u64 = 0x0003_0000_0000_0000;

/// The address of a function.
pub(crate) fn function_address(index: usize) -> u64 {
    FUNCTIONS + 16 * (index as u64 + 1)
}

/// The function at an address.
pub(crate) fn function_at(address: u64) -> Option<usize> {
    let offset = address.checked_sub(FUNCTIONS)?;
    let index = (offset / 16).checked_sub(1)?;
    (offset % 16 == 0).then_some(index as usize)
}
