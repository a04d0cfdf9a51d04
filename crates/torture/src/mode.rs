//! How thoroughly a program is checked.

/// How thoroughly a program is checked while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Compares everything after each step. Resources have any size, programs may record stacks, contexts
    /// write a report, which is checked, and all steps for other threads run there.
    Thorough,
    /// For fuzzers, which run millions of programs: compares the live totals now and then, and everything at
    /// the end. Resources are small, nothing records stacks or writes reports, and few steps run on other
    /// threads.
    Quick,
}
