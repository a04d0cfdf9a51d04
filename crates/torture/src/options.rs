//! How thoroughly a program is checked.

/// How thoroughly a program is checked while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Everything is compared after each step; else the live figures only, and everything at the
    /// end.
    pub every_step: bool,
    /// The most bytes of one thing.
    pub largest: usize,
    /// Whether stacks are recorded where a program asks for it.
    pub stacks: bool,
    /// Whether contexts write a report, which is read back.
    pub reports: bool,
    /// Whether steps run on other threads where a program asks for it. Else few do.
    pub threads: bool,
}

impl Options {
    /// All that can be checked.
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
