//! Integers of all sizes, as conversions see them.

use crate::machine::Value;

/// An integer.
pub(super) trait Whole: Value {
    fn wide(self) -> i128;
    /// The least or greatest where the value does not fit.
    fn saturating(value: i128) -> Self;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    /// The integral part; the least or greatest where it does not fit.
    fn of_f64(value: f64) -> Self;
}

macro_rules! whole {
    ($($type:ident)*) => { $(
        impl Whole for $type {
            #[inline(always)]
            fn wide(self) -> i128 {
                self.into()
            }
            #[inline(always)]
            fn saturating(value: i128) -> Self {
                value.clamp($type::MIN.into(), $type::MAX.into()) as Self
            }
            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn of_f64(value: f64) -> Self {
                value as Self
            }
        }
    )* };
}

whole! { u8 i8 u16 i16 u32 i32 u64 i64 }
