//! What memory is grouped by.

use std::fmt;
use std::str::FromStr;

use crate::error::ViewError;

/// What memory is grouped by.
///
/// ```
/// use cuguard_view::By;
///
/// assert_eq!("library".parse::<By>()?, By::Library);
/// let error = "colour".parse::<By>().unwrap_err();
/// assert_eq!(error.to_string(), "\"colour\" is none of stack, function, library, label, thread, stream, size, kind");
/// # Ok::<(), cuguard_view::ViewError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    /// The call site: the whole stack trace.
    #[default]
    Stack,
    /// The innermost function of the program that is not an [allocation helper](crate::Run::naming_frames).
    Function,
    /// The library of the innermost function outside of the driver and the CUDA runtime.
    Library,
    /// The label.
    Label,
    /// The thread that allocated.
    Thread,
    /// The stream of stream-ordered memory.
    Stream,
    /// The size, in powers of two.
    Size,
    /// The kind.
    Kind,
}

impl By {
    /// All, in the order of help texts.
    ///
    /// ```
    /// assert_eq!(cuguard_view::By::ALL.len(), 8);
    /// ```
    pub const ALL: [Self; 8] = [
        Self::Stack,
        Self::Function,
        Self::Library,
        Self::Label,
        Self::Thread,
        Self::Stream,
        Self::Size,
        Self::Kind,
    ];

    /// The word of options and of JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stack => "stack",
            Self::Function => "function",
            Self::Library => "library",
            Self::Label => "label",
            Self::Thread => "thread",
            Self::Stream => "stream",
            Self::Size => "size",
            Self::Kind => "kind",
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for By {
    type Err = ViewError;

    fn from_str(word: &str) -> Result<Self, ViewError> {
        let found = Self::ALL.into_iter().find(|by| by.name() == word);
        found.ok_or_else(|| ViewError::By {
            word: word.to_owned(),
        })
    }
}
