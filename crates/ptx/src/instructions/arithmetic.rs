//! Integer arithmetic: `add`, `sub`, `mul`, `mad`, `div`, `rem`, `abs`, `neg`, `min`, `max`.

use super::action::Action;
use super::apply::{binary, binary_to, ternary, ternary_to, unary};
use super::form::{Decoded, Form};
use crate::machine::Value;
use crate::types::Type;

/// An integer that instructions compute with.
pub(super) trait Integer: Value + Copy + PartialOrd + Ord {
    /// The product of two of them fits.
    type Wide: Value;
    fn wrapping_add(self, other: Self) -> Self;
    fn wrapping_sub(self, other: Self) -> Self;
    fn wrapping_mul(self, other: Self) -> Self;
    /// The upper half of the product.
    fn mul_high(self, other: Self) -> Self;
    fn mul_wide(self, other: Self) -> Self::Wide;
    fn mad_wide(self, other: Self, addend: Self::Wide) -> Self::Wide;
    /// By zero: all bits are one.
    fn divide(self, other: Self) -> Self;
    /// By zero: the dividend.
    fn remainder(self, other: Self) -> Self;
    fn wrapping_neg(self) -> Self;
    fn absolute(self) -> Self;
    fn saturating_add(self, other: Self) -> Self;
    fn saturating_sub(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($type:ident, $wide:ident, $product:ident, $absolute:expr;)*) => { $(
        impl Integer for $type {
            type Wide = $wide;
            #[inline(always)]
            fn wrapping_add(self, other: Self) -> Self {
                $type::wrapping_add(self, other)
            }
            #[inline(always)]
            fn wrapping_sub(self, other: Self) -> Self {
                $type::wrapping_sub(self, other)
            }
            #[inline(always)]
            fn wrapping_mul(self, other: Self) -> Self {
                $type::wrapping_mul(self, other)
            }
            #[inline(always)]
            fn mul_high(self, other: Self) -> Self {
                (self as $product * other as $product >> $type::BITS) as Self
            }
            #[inline(always)]
            fn mul_wide(self, other: Self) -> $wide {
                (self as $wide).wrapping_mul(other as $wide)
            }
            #[inline(always)]
            fn mad_wide(self, other: Self, addend: $wide) -> $wide {
                self.mul_wide(other).wrapping_add(addend)
            }
            #[inline(always)]
            fn divide(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn remainder(self, other: Self) -> Self {
                if other == 0 { self } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            fn wrapping_neg(self) -> Self {
                $type::wrapping_neg(self)
            }
            #[inline(always)]
            fn absolute(self) -> Self {
                $absolute(self)
            }
            #[inline(always)]
            fn saturating_add(self, other: Self) -> Self {
                $type::saturating_add(self, other)
            }
            #[inline(always)]
            fn saturating_sub(self, other: Self) -> Self {
                $type::saturating_sub(self, other)
            }
        }
    )* };
}

// The wide product of 64-bit integers has no instruction.
integers! {
    u16, u32, u32, |own| own;
    i16, i32, i32, i16::wrapping_abs;
    u32, u64, u64, |own| own;
    i32, i64, i64, i32::wrapping_abs;
    u64, u64, u128, |own| own;
    i64, i64, i128, i64::wrapping_abs;
}

/// Calls a generic function with the Rust type of an integer type.
macro_rules! with_integer {
    ($form:expr, $type:expr, $function:ident($($argument:expr),*)) => {
        match $type {
            Type::U16 => $function::<u16>($($argument),*),
            Type::S16 => $function::<i16>($($argument),*),
            Type::U32 => $function::<u32>($($argument),*),
            Type::S32 => $function::<i32>($($argument),*),
            Type::U64 => $function::<u64>($($argument),*),
            Type::S64 => $function::<i64>($($argument),*),
            _ => Err($form.unsupported()),
        }
    };
}
pub(super) use with_integer;

/// Which part of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Low,
    High,
    Wide,
}

const PARTS: [(&str, Part); 3] = [("lo", Part::Low), ("hi", Part::High), ("wide", Part::Wide)];

pub(super) fn decode(form: &mut Form<'_>) -> Decoded<Action> {
    let root = form.root();
    let part = match root {
        "mul" | "mad" => Some(form.take_one(&PARTS).ok_or_else(|| form.unsupported())?),
        _ => None,
    };
    let saturates = form.take("sat");
    // Of `min` and `max`: what is negative becomes zero.
    let relu = matches!(root, "min" | "max") && form.take("relu");
    let of = form.take_type()?;
    if (saturates || relu) && of != Type::S32 {
        return Err(form.unsupported());
    }
    if relu {
        return match root {
            "min" => binary(form, of, |a: i32, b: i32| a.min(b).max(0)),
            _ => binary(form, of, |a: i32, b: i32| a.max(b).max(0)),
        };
    }
    with_integer!(form, of, select(form, of, part, saturates))
}

fn select<T: Integer>(
    form: &Form<'_>,
    of: Type,
    part: Option<Part>,
    saturates: bool,
) -> Decoded<Action> {
    match (form.root(), part) {
        ("add", _) if saturates => binary(form, of, T::saturating_add),
        ("sub", _) if saturates => binary(form, of, T::saturating_sub),
        ("mul", Some(Part::Low)) if !saturates => binary(form, of, T::wrapping_mul),
        ("mul", Some(Part::High)) if !saturates => binary(form, of, T::mul_high),
        ("mad", Some(Part::High)) if saturates => {
            ternary(form, of, |a: T, b, c| a.mul_high(b).saturating_add(c))
        }
        _ if saturates => Err(form.unsupported()),
        ("add", _) => binary(form, of, T::wrapping_add),
        ("sub", _) => binary(form, of, T::wrapping_sub),
        ("mad", Some(Part::Low)) => {
            ternary(form, of, |a: T, b, c| a.wrapping_mul(b).wrapping_add(c))
        }
        ("mad", Some(Part::High)) => ternary(form, of, |a: T, b, c| a.mul_high(b).wrapping_add(c)),
        ("mul", _) => {
            form.finish(3)?;
            let wide = wider(of).ok_or_else(|| form.unsupported())?;
            let sources = [form.source(1, of)?, form.source(2, of)?];
            Ok(binary_to(form.destination(0, wide)?, sources, T::mul_wide))
        }
        ("mad", _) => {
            form.finish(4)?;
            let wide = wider(of).ok_or_else(|| form.unsupported())?;
            let sources = [
                form.source(1, of)?,
                form.source(2, of)?,
                form.source(3, wide)?,
            ];
            Ok(ternary_to(form.destination(0, wide)?, sources, T::mad_wide))
        }
        ("div", _) => binary(form, of, T::divide),
        ("rem", _) => binary(form, of, T::remainder),
        ("abs", _) if of.is_signed() => unary(form, of, T::absolute),
        ("neg", _) if of.is_signed() => unary(form, of, T::wrapping_neg),
        ("min", _) => binary(form, of, |a: T, b| a.min(b)),
        ("max", _) => binary(form, of, |a: T, b| a.max(b)),
        _ => Err(form.unsupported()),
    }
}

/// The type of a wide product.
pub(super) fn wider(of: Type) -> Option<Type> {
    Some(match of {
        Type::U16 => Type::U32,
        Type::S16 => Type::S32,
        Type::U32 => Type::U64,
        Type::S32 => Type::S64,
        _ => return None,
    })
}
