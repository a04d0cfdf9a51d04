//! The modifiers of conversions.

use super::form::Form;
use super::rounding::{take_integer_rounding, take_rounding};
use crate::number::Rounding;

/// The modifiers of a conversion.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Modifiers {
    pub(super) rounding: Option<Rounding>,
    pub(super) to_integral: Option<Rounding>,
    pub(super) flushes: bool,
    pub(super) saturates: bool,
    pub(super) relu: bool,
    pub(super) is_finite: bool,
}

impl Modifiers {
    /// Takes the modifiers before the types.
    pub(super) fn take(form: &mut Form<'_>) -> Self {
        let mut found = Self {
            rounding: take_rounding(form),
            to_integral: take_integer_rounding(form),
            ..Self::default()
        };
        loop {
            match form.peek() {
                Some("ftz") => found.flushes = true,
                Some("sat") => found.saturates = true,
                Some("relu") => found.relu = true,
                Some("satfinite") => found.is_finite = true,
                _ => return found,
            }
            form.take(form.peek().unwrap_or_default());
        }
    }
}
