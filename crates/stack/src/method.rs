//! How stack traces are captured, as a value to print.

use std::fmt;

/// How [`capture`](crate::capture) finds the frames of a stack.
///
/// ```
/// use cuguard_stack::Method;
///
/// assert_eq!(Method::Rules.to_string(), "unwind rules");
/// assert_eq!(Method::Backtrace.to_string(), "backtrace");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// By a table of unwind rules, and by `backtrace` for stacks that the rules do not cover.
    Rules,
    /// By `backtrace`, for all stacks.
    Backtrace,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Method::Rules => "unwind rules",
            Method::Backtrace => "backtrace",
        })
    }
}
