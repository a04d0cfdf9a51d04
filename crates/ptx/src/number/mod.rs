//! Floating-point arithmetic of all formats and rounding modes.

mod float;
mod format;
mod half;
mod soft;

pub(crate) use float::Float;
pub(crate) use format::{BF16, E4M3, E5M2, F16 as HALF, F32, F64, Format, Rounding, TF32};
pub(crate) use half::{Bf16, F16};
pub(crate) use soft::{add, convert, divide, fma, from_integer, multiply, square_root};
