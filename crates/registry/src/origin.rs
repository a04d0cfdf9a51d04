//! Lines of the program and the stack traces that led there, as plain data.

use std::fmt;
use std::panic::Location;

/// A line of the program.
///
/// ```
/// let site = cuguard::snapshot::Site::new("src/main.rs", 12, 5);
/// assert_eq!(site.to_string(), "src/main.rs:12:5");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The file, as the compiler names it.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl Site {
    /// A line of the program.
    #[must_use]
    pub const fn new(file: &'static str, line: u32, column: u32) -> Self {
        Self { file, line, column }
    }
}

impl From<&'static Location<'static>> for Site {
    fn from(location: &'static Location<'static>) -> Self {
        Self::new(location.file(), location.line(), location.column())
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Where something was allocated, freed or dropped: the line, and the stack trace where those are
/// recorded.
///
/// ```
/// let origin = cuguard::snapshot::Origin::default();
/// assert!(origin.site.is_none() && origin.stack.is_empty());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The line of the program.
    pub site: Option<Site>,
    /// Frames, innermost first; empty below [`TrackingLevel::Stacks`](crate::TrackingLevel). Return addresses of this
    /// process, or numbers for frames of libraries that can be unloaded and of interpreters. Reports resolve their names.
    pub stack: &'static [usize],
}

impl Origin {
    /// An unknown origin.
    pub const UNKNOWN: Self = Self {
        site: None,
        stack: &[],
    };
}
