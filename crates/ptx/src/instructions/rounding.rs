//! Rounding modifiers.

use super::form::Form;
use crate::number::Rounding;

/// Takes `.rn` and its like.
pub(super) fn take_rounding(form: &mut Form<'_>) -> Option<Rounding> {
    form.take_one(&[
        ("rn", Rounding::Nearest),
        ("rz", Rounding::Zero),
        ("rm", Rounding::Down),
        ("rp", Rounding::Up),
        ("rna", Rounding::Away),
    ])
}

/// Takes `.rni` and its like.
pub(super) fn take_integer_rounding(form: &mut Form<'_>) -> Option<Rounding> {
    form.take_one(&[
        ("rni", Rounding::Nearest),
        ("rzi", Rounding::Zero),
        ("rmi", Rounding::Down),
        ("rpi", Rounding::Up),
    ])
}

/// Rounds to an integral number.
pub(super) fn integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Away => value.round(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}
