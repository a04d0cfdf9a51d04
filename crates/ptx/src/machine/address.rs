//! Addresses of memory operands, and the windows of generic addresses.

use super::operand::Source;
use crate::types::Space;

/// Where generic addresses of shared memory begin. Neither the device's nor the host's memory is there.
pub(crate) const SHARED_WINDOW: u64 = 0x0001_0000_0000_0000;
/// Where generic addresses of local memory begin.
pub(crate) const LOCAL_WINDOW: u64 = 0x0001_0001_0000_0000;
/// Where generic addresses of kernel parameters begin.
pub(crate) const PARAM_WINDOW: u64 = 0x0001_0002_0000_0000;
/// The bytes of each window.
pub(crate) const WINDOW: u64 = 1 << 32;

/// A memory operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) space: Space,
    pub(crate) base: Source,
    pub(crate) offset: i64,
    /// Which of the regions found last it tries first.
    pub(crate) hint: u8,
}

/// A space that a generic address is in, and the address there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Global(u64),
    Shared(u64),
    Local(u64),
    Param(u64),
}

/// The space of a generic address.
pub(crate) fn place_of(address: u64) -> Place {
    match address.wrapping_sub(SHARED_WINDOW) {
        offset if offset < WINDOW => Place::Shared(offset),
        offset if offset < 2 * WINDOW => Place::Local(offset - WINDOW),
        offset if offset < 3 * WINDOW => Place::Param(offset - 2 * WINDOW),
        _ => Place::Global(address),
    }
}
