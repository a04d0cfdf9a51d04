//! The sides of a copy: rows and layers in host memory, device memory or an array.

use std::ffi::c_void;

use cuguard_sys::{CUDA_MEMCPY3D, CUarray, CUresult, memory_type};

use super::find_array;
use crate::handle::Id;
use crate::memory::{Extent, Shape, Span, Volume};
use crate::result::{DriverResult, valid};
use crate::state::{DriverState, Operand};

/// Both sides of a copy: the memory, and whether it is pageable.
pub(super) struct Plan {
    pub(super) to: (Extent, bool),
    pub(super) from: (Extent, bool),
}

/// Resolves the sides of a copy on a stream; `None` if there is nothing to copy.
pub(super) trait Planner: FnOnce(&DriverState, Id) -> DriverResult<Option<Plan>> {}
impl<F: FnOnce(&DriverState, Id) -> DriverResult<Option<Plan>>> Planner for F {}

/// How much is copied: bytes of a row, rows of a layer, layers.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) width: usize,
    pub(super) rows: usize,
    pub(super) layers: usize,
}

/// One side of a copy.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) memory_type: u32,
    pub(super) host: u64,
    pub(super) device: u64,
    pub(super) array: CUarray,
    /// Where the copy starts: bytes, rows, layers.
    pub(super) start: (usize, usize, usize),
    /// The bytes from one row to the next; 0 for rows without a gap.
    pub(super) pitch: usize,
    /// The rows from one layer to the next; 0 for layers without a gap.
    pub(super) height: usize,
}

/// The offset of a position, unless it overflows.
fn offset(
    (x, y, z): (usize, usize, usize),
    pitch: usize,
    layer_pitch: usize,
) -> DriverResult<usize> {
    let rows = y.checked_mul(pitch);
    let layers = z.checked_mul(layer_pitch);
    let offset = rows.zip(layers).and_then(|(r, l)| r.checked_add(l));
    let offset = offset.and_then(|offset| offset.checked_add(x));
    offset.ok_or(CUresult::INVALID_VALUE)
}

fn sum(a: usize, b: usize) -> DriverResult<usize> {
    a.checked_add(b).ok_or(CUresult::INVALID_VALUE)
}

impl Side {
    /// The memory of this side, and whether it is pageable.
    fn resolve(&self, state: &DriverState, stream: Id, size: Size) -> DriverResult<(Extent, bool)> {
        let (x, y, z) = self.start;
        let end_of_row = sum(x, size.width)?;
        let end_of_rows = sum(y, size.rows)?;
        if self.memory_type == memory_type::ARRAY {
            valid(self.array != CUarray::NULL)?;
            let array = &state.arrays[&find_array(state, self.array)?];
            let height = array.descriptor.Height.max(1);
            let depth = array.descriptor.Depth.max(1);
            let end_of_layers = sum(z, size.layers)?;
            valid(end_of_row <= array.row_bytes && end_of_rows <= height)?;
            valid(end_of_layers <= depth)?;
            let volume = volume(size, array.row_bytes, height)?;
            let len = volume.byte_len().ok_or(CUresult::INVALID_VALUE)?;
            let offset = offset(self.start, array.row_bytes, volume.layer_pitch)?;
            let span = Span::within(&array.block, offset, len);
            return Ok((Extent::new(vec![span], volume), false));
        }
        let (operand, volume) = self.memory(size)?;
        state.resolve(stream, operand, volume)
    }

    /// Where the copy starts and which bytes it accesses, unless this side is an array.
    fn memory(&self, size: Size) -> DriverResult<(Operand, Volume)> {
        let (x, y, _) = self.start;
        let end_of_row = sum(x, size.width)?;
        let end_of_rows = sum(y, size.rows)?;
        let pitch = match self.pitch {
            0 => end_of_row,
            pitch => pitch,
        };
        let height = match self.height {
            0 => end_of_rows,
            height => height,
        };
        let (base, operand): (u64, fn(u64) -> Operand) = match self.memory_type {
            memory_type::HOST => (self.host, Operand::Any),
            memory_type::DEVICE => (self.device, Operand::Known),
            memory_type::UNIFIED => (self.device, Operand::Any),
            _ => return Err(CUresult::INVALID_VALUE),
        };
        valid(base != 0 && pitch >= end_of_row)?;
        valid(height >= end_of_rows)?;
        let volume = volume(size, pitch, height)?;
        let offset = offset(self.start, pitch, volume.layer_pitch)?;
        let start = base.checked_add(offset as u64);
        let start = start.ok_or(CUresult::INVALID_VALUE)?;
        Ok((operand(start), volume))
    }

    /// Fails unless the memory exists, or will exist when a graph executes.
    fn check(&self, state: &DriverState, size: Size) -> DriverResult {
        if self.memory_type == memory_type::ARRAY {
            return self.resolve(state, 0, size).map(drop);
        }
        let (operand, volume) = self.memory(size)?;
        state.check_operand(operand, volume)
    }
}

fn volume(size: Size, pitch: usize, height: usize) -> DriverResult<Volume> {
    let layer_pitch = pitch.checked_mul(height);
    Ok(Volume {
        rows: Shape {
            width: size.width,
            pitch,
            rows: size.rows,
        },
        layers: size.layers,
        layer_pitch: layer_pitch.ok_or(CUresult::INVALID_VALUE)?,
    })
}

/// A copy from one side to the other.
pub(super) fn plan(to: Side, from: Side, size: Size) -> impl Planner {
    move |state: &DriverState, stream: Id| {
        if size.width == 0 || size.rows == 0 || size.layers == 0 {
            return Ok(None);
        }
        let from = from.resolve(state, stream, size)?;
        let to = to.resolve(state, stream, size)?;
        Ok(Some(Plan { to, from }))
    }
}

/// Both sides and the size of a structure that describes a copy in three dimensions.
macro_rules! sides {
    ($copy:expr) => {{
        let copy = $copy;
        let to = Side {
            memory_type: copy.dstMemoryType,
            host: copy.dstHost as u64,
            device: copy.dstDevice,
            array: copy.dstArray,
            start: (copy.dstXInBytes, copy.dstY, copy.dstZ),
            pitch: copy.dstPitch,
            height: copy.dstHeight,
        };
        let from = Side {
            memory_type: copy.srcMemoryType,
            host: copy.srcHost as u64,
            device: copy.srcDevice,
            array: copy.srcArray,
            start: (copy.srcXInBytes, copy.srcY, copy.srcZ),
            pitch: copy.srcPitch,
            height: copy.srcHeight,
        };
        let size = Size {
            width: copy.WidthInBytes,
            rows: copy.Height,
            layers: copy.Depth,
        };
        (to, from, size)
    }};
}
pub(super) use sides;

/// The copy that a structure describes.
pub(super) fn plan_3d(parameters: &CUDA_MEMCPY3D) -> impl Planner + use<> {
    let (to, from, size) = sides!(parameters);
    plan(to, from, size)
}

/// The parameters of a node with a copy.
pub(super) fn node_3d(to: Side, from: Side, size: Size) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: from.start.0,
        srcY: from.start.1,
        srcZ: from.start.2,
        srcMemoryType: from.memory_type,
        srcHost: from.host as *const c_void,
        srcDevice: from.device,
        srcArray: from.array,
        srcPitch: from.pitch,
        srcHeight: from.height,
        dstXInBytes: to.start.0,
        dstY: to.start.1,
        dstZ: to.start.2,
        dstMemoryType: to.memory_type,
        dstHost: to.host as *mut c_void,
        dstDevice: to.device,
        dstArray: to.array,
        dstPitch: to.pitch,
        dstHeight: to.height,
        WidthInBytes: size.width,
        Height: size.rows,
        Depth: size.layers,
        ..CUDA_MEMCPY3D::default()
    }
}

/// Fails unless a graph can have a node with this copy.
pub(super) fn check_3d(state: &DriverState, parameters: &CUDA_MEMCPY3D) -> DriverResult {
    let (to, from, size) = sides!(parameters);
    valid(size.width > 0 && size.rows > 0 && size.layers > 0)?;
    from.check(state, size)?;
    to.check(state, size)
}
