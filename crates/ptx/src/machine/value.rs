//! Values of lanes.

use super::lanes::Lanes;
use super::registers::Registers;
use crate::number::{Bf16, F16};

/// What the lanes of a register are stored as: 32 or 64 bits.
pub(crate) trait Row: Value<Row = Self> + Default {
    const IS_LONG: bool;
    fn get(registers: &Registers, slot: u32) -> &Lanes<Self>;
    fn set(registers: &mut Registers, slot: u32, mask: u32, values: &Lanes<Self>);
}

impl Row for u32 {
    const IS_LONG: bool = false;
    #[inline(always)]
    fn get(registers: &Registers, slot: u32) -> &Lanes<Self> {
        registers.words(slot)
    }
    #[inline(always)]
    fn set(registers: &mut Registers, slot: u32, mask: u32, values: &Lanes<Self>) {
        registers.set_words(slot, mask, values);
    }
}

impl Row for u64 {
    const IS_LONG: bool = true;
    #[inline(always)]
    fn get(registers: &Registers, slot: u32) -> &Lanes<Self> {
        registers.longs(slot)
    }
    #[inline(always)]
    fn set(registers: &mut Registers, slot: u32, mask: u32, values: &Lanes<Self>) {
        registers.set_longs(slot, mask, values);
    }
}

/// What a register can hold. A register that is wider than a value keeps it extended, by its sign if it has one.
pub(crate) trait Value: Copy + Send + Sync + 'static {
    /// How a register of this type is stored.
    type Row: Row;
    fn from_row(row: Self::Row) -> Self;
    fn to_row(self) -> Self::Row;
    /// From the lowest bits.
    fn from_long(long: u64) -> Self;
    fn to_word(self) -> u32;
    fn to_long(self) -> u64;
}

macro_rules! integers {
    ($($row:ty: $($type:ty),*;)*) => { $($(
        impl Value for $type {
            type Row = $row;
            #[inline(always)]
            fn from_row(row: $row) -> Self {
                row as Self
            }
            #[inline(always)]
            fn to_row(self) -> $row {
                self as $row
            }
            #[inline(always)]
            fn from_long(long: u64) -> Self {
                long as Self
            }
            #[inline(always)]
            fn to_word(self) -> u32 {
                self as u32
            }
            #[inline(always)]
            fn to_long(self) -> u64 {
                self as u64
            }
        }
    )*)* };
}

integers! {
    u32: u8, i8, u16, i16, u32, i32;
    u64: u64, i64;
}

macro_rules! floats {
    ($($type:ty, $row:ty;)*) => { $(
        impl Value for $type {
            type Row = $row;
            #[inline(always)]
            fn from_row(row: $row) -> Self {
                Self::from_bits(row)
            }
            #[inline(always)]
            fn to_row(self) -> $row {
                self.to_bits()
            }
            #[inline(always)]
            fn from_long(long: u64) -> Self {
                Self::from_bits(long as $row)
            }
            #[inline(always)]
            fn to_word(self) -> u32 {
                self.to_bits() as u32
            }
            #[inline(always)]
            fn to_long(self) -> u64 {
                self.to_bits().into()
            }
        }
    )* };
}

floats! {
    f32, u32;
    f64, u64;
}

macro_rules! halves {
    ($($type:ident)*) => { $(
        impl Value for $type {
            type Row = u32;
            #[inline(always)]
            fn from_row(row: u32) -> Self {
                Self(row as u16)
            }
            #[inline(always)]
            fn to_row(self) -> u32 {
                self.0.into()
            }
            #[inline(always)]
            fn from_long(long: u64) -> Self {
                Self(long as u16)
            }
            #[inline(always)]
            fn to_word(self) -> u32 {
                self.0.into()
            }
            #[inline(always)]
            fn to_long(self) -> u64 {
                self.0.into()
            }
        }
    )* };
}

halves! { F16 Bf16 }
