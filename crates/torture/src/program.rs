//! A program: how it begins, its steps, and how it ends.

use arbitrary::{Arbitrary, Unstructured};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};

use crate::step::{Step, steps};

/// A sequence of steps between a beginning and an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The context that it begins with: bit 0 for one of its own, else the primary one.
    pub begin: u8,
    /// What it does.
    pub steps: Vec<Step>,
    /// How it ends: bit 0 to close contexts before guards go, bit 1 to go from the last to the
    /// first, bit 2 to drop contexts instead of closing them.
    pub end: u8,
}

impl Program {
    /// The most steps of a program that comes from bytes.
    pub const MOST_STEPS: usize = 100;

    /// A program from any bytes, such as a fuzzer makes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut bytes = Unstructured::new(bytes);
        // Nothing here fails: where bytes are missing, zeros are taken.
        Self::arbitrary(&mut bytes).unwrap_or(Self {
            begin: 0,
            steps: Vec::new(),
            end: 0,
        })
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
