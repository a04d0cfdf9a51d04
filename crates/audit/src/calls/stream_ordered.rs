//! Stream-ordered memory and memory pools, which belong to the device and survive contexts.
//!
//! On a stream that is being captured, these functions allocate and free nothing: they add nodes to a graph.

use std::ffi::c_void;

use cuguard_registry::ResourceKind;
use cuguard_sys::*;

use super::{Address, Call, DEVICE_CPU, New, Place, device_at, is_freed};
use crate::real::queries;
use crate::shortage::pools;
use crate::state::{self, contexts, counted, graphs};
use crate::turn;

/// Which stream null means.
type IsCapturing = unsafe fn(CUstream, *mut CUstreamCaptureStatus) -> CUresult;

/// What `cuMemFreeAsync` can free: also memory of `cuMemAlloc`.
const FREEABLE: &[ResourceKind] = &[
    ResourceKind::StreamOrdered,
    ResourceKind::GraphMemory,
    ResourceKind::Imported,
    ResourceKind::Device,
];

/// Whether a call on a stream adds a node to a graph.
#[inline]
fn is_captured(stream: CUstream, query: IsCapturing) -> bool {
    graphs::any_capture() && asks_driver(stream, query)
}

#[cold]
fn asks_driver(stream: CUstream, query: IsCapturing) -> bool {
    let mut status = stream_capture_status::NONE;
    // SAFETY: the program passes the stream to the driver as well; the status can be written to.
    let result = unsafe { query(stream, &mut status) };
    result.is_success() && status != stream_capture_status::NONE
}

impl Call {
    /// After an allocation on a stream.
    ///
    /// # Safety
    ///
    /// `out` is null or what the driver wrote to.
    #[inline]
    unsafe fn allocated_on(
        &self,
        result: CUresult,
        out: *const CUdeviceptr,
        bytes: usize,
        (stream, place): (CUstream, Place),
        query: IsCapturing,
    ) -> CUresult {
        if result.is_success() && is_captured(stream, query) {
            graphs::note_memory_node();
            return result;
        }
        let new = New {
            stream: stream.address(),
            place,
            ..New::in_process(ResourceKind::StreamOrdered, bytes as u64)
        };
        // SAFETY: as the caller guarantees.
        unsafe { self.created(result, out, new) }
    }

    /// A free on a stream.
    #[inline]
    fn freed_on(
        &self,
        address: CUdeviceptr,
        stream: CUstream,
        query: IsCapturing,
        free: impl FnOnce() -> CUresult,
    ) -> CUresult {
        if is_captured(stream, query) {
            graphs::note_memory_node();
            return free();
        }
        self.freed(FREEABLE, address, free)
    }
}

type Alloc = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, CUstream) -> CUresult;

/// `cuMemAllocAsync`
#[inline(always)]
pub(crate) unsafe fn alloc(
    call: &Call,
    real: Alloc,
    out: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    let _turn = turn::wait();
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, bytes, stream) };
    // SAFETY: the driver wrote to it.
    unsafe {
        call.allocated_on(
            result,
            out,
            bytes,
            (stream, Place::Stream),
            queries::cuStreamIsCapturing,
        )
    }
}

/// `cuMemAllocAsync_ptsz`
pub(crate) unsafe fn alloc_ptsz(
    call: &Call,
    real: Alloc,
    out: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    let _turn = turn::wait();
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, bytes, stream) };
    // SAFETY: the driver wrote to it.
    unsafe {
        call.allocated_on(
            result,
            out,
            bytes,
            (stream, Place::Stream),
            queries::cuStreamIsCapturing_ptsz,
        )
    }
}

/// Where the memory of a pool is.
fn place_of(pool: CUmemoryPool) -> Place {
    match pools().get(&pool.address()) {
        Some(&DEVICE_CPU) => Place::Host,
        Some(&device) => Place::Device(device),
        None => Place::Unknown,
    }
}

type AllocFromPool =
    unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, CUmemoryPool, CUstream) -> CUresult;

/// `cuMemAllocFromPoolAsync`
pub(crate) unsafe fn alloc_from_pool(
    call: &Call,
    real: AllocFromPool,
    out: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    let _turn = turn::wait();
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, bytes, pool, stream) };
    // SAFETY: the driver wrote to it.
    unsafe {
        call.allocated_on(
            result,
            out,
            bytes,
            (stream, place_of(pool)),
            queries::cuStreamIsCapturing,
        )
    }
}

/// `cuMemAllocFromPoolAsync_ptsz`
pub(crate) unsafe fn alloc_from_pool_ptsz(
    call: &Call,
    real: AllocFromPool,
    out: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> CUresult {
    let _turn = turn::wait();
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, bytes, pool, stream) };
    // SAFETY: the driver wrote to it.
    unsafe {
        call.allocated_on(
            result,
            out,
            bytes,
            (stream, place_of(pool)),
            queries::cuStreamIsCapturing_ptsz,
        )
    }
}

type Free = unsafe extern "C-unwind" fn(CUdeviceptr, CUstream) -> CUresult;

/// `cuMemFreeAsync`
#[inline(always)]
pub(crate) unsafe fn free(
    call: &Call,
    real: Free,
    address: CUdeviceptr,
    stream: CUstream,
) -> CUresult {
    let _turn = turn::wait();
    // SAFETY: as the caller guarantees.
    let free = || unsafe { real(address, stream) };
    call.freed_on(address, stream, queries::cuStreamIsCapturing, free)
}

/// `cuMemFreeAsync_ptsz`
pub(crate) unsafe fn free_ptsz(
    call: &Call,
    real: Free,
    address: CUdeviceptr,
    stream: CUstream,
) -> CUresult {
    let _turn = turn::wait();
    // SAFETY: as the caller guarantees.
    let free = || unsafe { real(address, stream) };
    call.freed_on(address, stream, queries::cuStreamIsCapturing_ptsz, free)
}

type CreatePool = unsafe extern "C-unwind" fn(*mut CUmemoryPool, *const CUmemPoolProps) -> CUresult;

/// `cuMemPoolCreate`
pub(crate) unsafe fn create_pool(
    call: &Call,
    real: CreatePool,
    out: *mut CUmemoryPool,
    properties: *const CUmemPoolProps,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, properties) };
    // SAFETY: as the caller guarantees.
    let properties = unsafe { properties.as_ref() };
    let device = properties.and_then(|properties| device_at(properties.location));
    if let Some(device) = device
        && result.is_success()
        && !out.is_null()
    {
        // SAFETY: the driver wrote to it.
        let pool = unsafe { out.read_unaligned() };
        pools().insert(pool.address(), device);
        contexts::note_device(device);
    }
    let new = New::in_process(ResourceKind::MemoryPool, 0).on(device);
    // SAFETY: as above.
    unsafe { call.created(result, out, new) }
}

type DestroyPool = unsafe extern "C-unwind" fn(CUmemoryPool) -> CUresult;

/// `cuMemPoolDestroy`. What was allocated from the pool stays allocated.
pub(crate) unsafe fn destroy_pool(_: &Call, real: DestroyPool, pool: CUmemoryPool) -> CUresult {
    let (taken, device) = {
        // The diagnosis of a shortage queries pools that have a record.
        let mut pools = pools();
        let taken = state::take(&[ResourceKind::MemoryPool], pool.address());
        (taken, pools.remove(&pool.address()))
    };
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(pool) };
    if !is_freed(result) {
        if let Some(device) = device {
            pools().insert(pool.address(), device);
        }
        state::put_back(taken);
    }
    result
}

type ImportPool = unsafe extern "C-unwind" fn(
    *mut CUmemoryPool,
    *mut c_void,
    CUmemAllocationHandleType,
    u64,
) -> CUresult;

/// `cuMemPoolImportFromShareableHandle`
pub(crate) unsafe fn import_pool(
    call: &Call,
    real: ImportPool,
    out: *mut CUmemoryPool,
    handle: *mut c_void,
    handle_type: CUmemAllocationHandleType,
    flags: u64,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, handle, handle_type, flags) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_process(ResourceKind::MemoryPool, 0)) }
}

type ImportPointer = unsafe extern "C-unwind" fn(
    *mut CUdeviceptr,
    CUmemoryPool,
    *mut CUmemPoolPtrExportData,
) -> CUresult;

/// `cuMemPoolImportPointer`: memory of a pool in another process, freed like memory of an own pool.
pub(crate) unsafe fn import_pointer(
    call: &Call,
    real: ImportPointer,
    out: *mut CUdeviceptr,
    pool: CUmemoryPool,
    data: *mut CUmemPoolPtrExportData,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, pool, data) };
    if result.is_success() && !out.is_null() {
        // SAFETY: the driver wrote to it.
        let address = unsafe { out.read_unaligned() };
        counted::forget(address);
        let new = New::in_process(
            ResourceKind::Imported,
            super::imported::size_of_range(address),
        );
        // SAFETY: as above.
        return unsafe { call.created(result, out, new) };
    }
    call.refused(result, &New::in_process(ResourceKind::Imported, 0))
}
