//! How thoroughly a program is checked.

/// How thoroughly a program is checked while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Compares everything after each step; else the live totals, and everything at the end.
    pub every_step: bool,
    /// The most bytes of one resource.
    pub largest: usize,
    /// Whether programs may record stacks.
    pub stacks: bool,
    /// Whether contexts write a report, which is checked.
    pub reports: bool,
    /// Whether all steps for other threads run there; else few do.
    pub threads: bool,
}

impl Options {
    /// Checks everything.
    #[must_use]
    pub fn thorough() -> Self {
        Self {
            every_step: true,
            largest: usize::MAX,
            stacks: true,
            reports: true,
            threads: true,
        }
    }

    /// For fuzzers, which run millions of programs.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            every_step: false,
            largest: 4096,
            stacks: false,
            reports: false,
            threads: false,
        }
    }
}
