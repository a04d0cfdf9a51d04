//! Arrays and mipmapped arrays.

use cuguard_registry::ResourceKind;
use cuguard_sys::*;

use super::{Call, New};

/// `CUDA_ARRAY3D_LAYERED`, and `CUDA_ARRAY3D_CUBEMAP`: the depth is a number of layers, the same at all levels.
const LAYERED: u32 = 0x01 | 0x04;
/// `CUDA_ARRAY3D_SPARSE`, and `CUDA_ARRAY3D_DEFERRED_MAPPING`: memory is mapped later, from a handle of its own.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

/// The size of an array, without the padding that the driver adds.
fn bytes_of(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> u64 {
    if descriptor.Flags & WITHOUT_MEMORY != 0 {
        return 0;
    }
    let size = |size: usize, level: u32| (size as u64).checked_shr(level).unwrap_or(0).max(1);
    let level = |level: u32| {
        let (width, height) = (
            size(descriptor.Width, level),
            size(descriptor.Height, level),
        );
        let depth = match descriptor.Flags & LAYERED {
            0 => size(descriptor.Depth, level),
            _ => size(descriptor.Depth, 0),
        };
        let plane = plane_bytes(descriptor, width, height);
        plane.saturating_mul(depth)
    };
    // More levels than a size has bits are all of one element; no driver allows them.
    (0..levels.clamp(1, 64)).fold(0, |sum: u64, number| sum.saturating_add(level(number)))
}

/// The size of one layer. 0 for a format that is not known here.
fn plane_bytes(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, width: u64, height: u64) -> u64 {
    let elements = width.saturating_mul(height);
    let channels = u64::from(descriptor.NumChannels);
    let blocks = width.div_ceil(4).saturating_mul(height.div_ceil(4));
    match descriptor.Format {
        array_format::UNSIGNED_INT8 | array_format::SIGNED_INT8 => elements * channels,
        array_format::UNSIGNED_INT16 | array_format::SIGNED_INT16 | array_format::HALF => {
            elements.saturating_mul(2 * channels)
        }
        array_format::UNSIGNED_INT32 | array_format::SIGNED_INT32 | array_format::FLOAT => {
            elements.saturating_mul(4 * channels)
        }
        // Two planes: brightness, and color at half the resolution in both directions.
        array_format::NV12 => elements.saturating_mul(3) / 2,
        array_format::UNORM_INT8X1 | array_format::SNORM_INT8X1 => elements,
        array_format::UNORM_INT8X2
        | array_format::SNORM_INT8X2
        | array_format::UNORM_INT16X1
        | array_format::SNORM_INT16X1 => elements.saturating_mul(2),
        array_format::UNORM_INT8X4
        | array_format::SNORM_INT8X4
        | array_format::UNORM_INT16X2
        | array_format::SNORM_INT16X2 => elements.saturating_mul(4),
        array_format::UNORM_INT16X4 | array_format::SNORM_INT16X4 => elements.saturating_mul(8),
        // Compressed blocks of 4 by 4 elements.
        array_format::BC1_UNORM
        | array_format::BC1_UNORM_SRGB
        | array_format::BC4_UNORM
        | array_format::BC4_SNORM => blocks.saturating_mul(8),
        array_format::BC2_UNORM
        | array_format::BC2_UNORM_SRGB
        | array_format::BC3_UNORM
        | array_format::BC3_UNORM_SRGB
        | array_format::BC5_UNORM
        | array_format::BC5_SNORM
        | array_format::BC6H_UF16
        | array_format::BC6H_SF16
        | array_format::BC7_UNORM
        | array_format::BC7_UNORM_SRGB => blocks.saturating_mul(16),
        _ => 0,
    }
}

/// The size of the array that a program describes.
///
/// # Safety
///
/// `descriptor` is null or can be read.
unsafe fn described<T: Copy + Into<Described>>(descriptor: *const T, levels: u32) -> u64 {
    match descriptor.is_null() {
        true => 0,
        // SAFETY: as the caller guarantees.
        false => bytes_of(&unsafe { descriptor.read_unaligned() }.into().0, levels),
    }
}

/// A descriptor in the newest form.
struct Described(CUDA_ARRAY3D_DESCRIPTOR);

macro_rules! from {
    ($($type:ident: |$own:ident| $depth:expr, $flags:expr;)*) => {$(
        impl From<$type> for Described {
            fn from($own: $type) -> Self {
                Self(CUDA_ARRAY3D_DESCRIPTOR {
                    Width: $own.Width as usize,
                    Height: $own.Height as usize,
                    Depth: $depth as usize,
                    Format: $own.Format,
                    NumChannels: $own.NumChannels,
                    Flags: $flags,
                })
            }
        }
    )*};
}
from! {
    CUDA_ARRAY_DESCRIPTOR: |own| 0_u32, 0;
    CUDA_ARRAY_DESCRIPTOR_v1: |own| 0_u32, 0;
    CUDA_ARRAY3D_DESCRIPTOR: |own| own.Depth, own.Flags;
    CUDA_ARRAY3D_DESCRIPTOR_v1: |own| own.Depth, own.Flags;
}

type Create = unsafe extern "C-unwind" fn(*mut CUarray, *const CUDA_ARRAY_DESCRIPTOR) -> CUresult;

/// `cuArrayCreate_v2`
pub(crate) unsafe fn create(
    call: &Call,
    real: Create,
    out: *mut CUarray,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, descriptor) };
    // SAFETY: the driver read it.
    let bytes = unsafe { described(descriptor, 1) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Array, bytes)) }
}

type CreateV1 =
    unsafe extern "C-unwind" fn(*mut CUarray, *const CUDA_ARRAY_DESCRIPTOR_v1) -> CUresult;

/// `cuArrayCreate`
pub(crate) unsafe fn create_v1(
    call: &Call,
    real: CreateV1,
    out: *mut CUarray,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR_v1,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, descriptor) };
    // SAFETY: the driver read it.
    let bytes = unsafe { described(descriptor, 1) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Array, bytes)) }
}

type Create3d =
    unsafe extern "C-unwind" fn(*mut CUarray, *const CUDA_ARRAY3D_DESCRIPTOR) -> CUresult;

/// `cuArray3DCreate_v2`
pub(crate) unsafe fn create_3d(
    call: &Call,
    real: Create3d,
    out: *mut CUarray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, descriptor) };
    // SAFETY: the driver read it.
    let bytes = unsafe { described(descriptor, 1) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Array, bytes)) }
}

type Create3dV1 =
    unsafe extern "C-unwind" fn(*mut CUarray, *const CUDA_ARRAY3D_DESCRIPTOR_v1) -> CUresult;

/// `cuArray3DCreate`
pub(crate) unsafe fn create_3d_v1(
    call: &Call,
    real: Create3dV1,
    out: *mut CUarray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR_v1,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, descriptor) };
    // SAFETY: the driver read it.
    let bytes = unsafe { described(descriptor, 1) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Array, bytes)) }
}

type CreateMipmapped = unsafe extern "C-unwind" fn(
    *mut CUmipmappedArray,
    *const CUDA_ARRAY3D_DESCRIPTOR,
    u32,
) -> CUresult;

/// `cuMipmappedArrayCreate`
pub(crate) unsafe fn create_mipmapped(
    call: &Call,
    real: CreateMipmapped,
    out: *mut CUmipmappedArray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, descriptor, levels) };
    // SAFETY: the driver read it.
    let bytes = unsafe { described(descriptor, levels) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Array, bytes)) }
}

type Destroy = unsafe extern "C-unwind" fn(CUarray) -> CUresult;

/// `cuArrayDestroy`
pub(crate) unsafe fn destroy(call: &Call, real: Destroy, h_array: CUarray) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.freed(&[ResourceKind::Array], h_array, || unsafe { real(h_array) })
}

type DestroyMipmapped = unsafe extern "C-unwind" fn(CUmipmappedArray) -> CUresult;

/// `cuMipmappedArrayDestroy`
pub(crate) unsafe fn destroy_mipmapped(
    call: &Call,
    real: DestroyMipmapped,
    h_mipmapped_array: CUmipmappedArray,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.freed(&[ResourceKind::Array], h_mipmapped_array, || unsafe {
        real(h_mipmapped_array)
    })
}
