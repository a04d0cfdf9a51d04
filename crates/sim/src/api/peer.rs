//! Access to the memory of other devices.
//!
//! Copies between devices work with and without it. It is for kernels, so enabling it changes only
//! what the driver reports.

use cuguard_sys::{CUcontext, CUdevice, CUresult, device_p2p_attribute};

use super::context::find_live;
use super::write_out;
use crate::handle::Id;
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, lock};

/// Any device can access the memory of every other.
pub unsafe fn cuDeviceCanAccessPeer(can: *mut i32, dev: CUdevice, peer: CUdevice) -> DriverResult {
    valid(!can.is_null())?;
    let state = lock();
    let (device, peer) = (state.check_device(dev)?, state.check_device(peer)?);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(can, i32::from(device != peer)) }
}

/// There are no attributes of a device and itself. Atomic operations and arrays of peers are for
/// kernels, which are not simulated.
pub unsafe fn cuDeviceGetP2PAttribute(
    out: *mut i32,
    which: u32,
    dev: CUdevice,
    peer: CUdevice,
) -> DriverResult {
    valid(!out.is_null())?;
    let state = lock();
    let (device, peer) = (state.check_device(dev)?, state.check_device(peer)?);
    check(device != peer, CUresult::INVALID_DEVICE)?;
    let value = match which {
        device_p2p_attribute::ACCESS_SUPPORTED => 1,
        device_p2p_attribute::PERFORMANCE_RANK
        | device_p2p_attribute::NATIVE_ATOMIC_SUPPORTED
        | device_p2p_attribute::CUDA_ARRAY_ACCESS_SUPPORTED
        | device_p2p_attribute::ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => 0,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, value) }
}

/// The current context and the live context of a peer.
fn pair(state: &DriverState, peer: CUcontext) -> DriverResult<(Id, Id)> {
    let own = state.current()?;
    Ok((own, find_live(state, peer)?))
}

pub unsafe fn cuCtxEnablePeerAccess(peer: CUcontext, flags: u32) -> DriverResult {
    let mut state = lock();
    let (own, peer) = pair(&state, peer)?;
    valid(flags == 0)?;
    let other_device = state.device_of(own) != state.device_of(peer);
    check(other_device, CUresult::PEER_ACCESS_UNSUPPORTED)?;
    let added = state.current_context()?.peers.insert(peer);
    check(added, CUresult::PEER_ACCESS_ALREADY_ENABLED)
}

pub unsafe fn cuCtxDisablePeerAccess(peer: CUcontext) -> DriverResult {
    let mut state = lock();
    let (_, peer) = pair(&state, peer)?;
    let removed = state.current_context()?.peers.remove(&peer);
    check(removed, CUresult::PEER_ACCESS_NOT_ENABLED)
}
