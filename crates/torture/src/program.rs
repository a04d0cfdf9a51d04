//! A program: how it begins, its steps, and how it ends.

use arbitrary::{Arbitrary, Unstructured};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};

use crate::step::{Step, steps};

/// A sequence of steps between a beginning and an end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The first context: bit 0 for a dedicated one, else the primary one; the next bits for its level. Bit 7 for a second
    /// context.
    pub begin: u8,
    /// Its steps.
    pub steps: Vec<Step>,
    /// How it ends: bit 0 to end contexts before guards are dropped, bit 1 to end the last context first,
    /// bit 2 to drop contexts instead of closing them.
    pub end: u8,
}

impl Program {
    /// The most steps of a program that comes from bytes.
    pub const MOST_STEPS: usize = 100;

    /// A program from any bytes, as of a fuzzer.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut bytes = Unstructured::new(bytes);
        // This does not fail: missing bytes are zeros.
        Self::arbitrary(&mut bytes).unwrap_or_default()
    }

    /// Random programs of up to `most` steps, which shrink to fewer and simpler ones.
    pub fn strategy(most: usize) -> impl Strategy<Value = Self> {
        (any::<u8>(), vec(steps(), 0..=most), any::<u8>()).prop_map(|(begin, steps, end)| Self {
            begin,
            steps,
            end,
        })
    }
}

impl<'a> Arbitrary<'a> for Program {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let begin = bytes.arbitrary().unwrap_or(0);
        let end = bytes.arbitrary().unwrap_or(0);
        let mut steps = Vec::new();
        while !bytes.is_empty() && steps.len() < Self::MOST_STEPS {
            steps.push(Step::arbitrary(bytes)?);
        }
        Ok(Self { begin, steps, end })
    }
}
