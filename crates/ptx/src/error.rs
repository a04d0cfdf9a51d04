//! Why a text does not load.

use std::fmt;

/// An error in a text, or what it uses that is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    line: u32,
    message: String,
}

impl LoadError {
    pub(crate) fn new(line: u32, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { line, message }
    }

    /// The line, counted from 1; 0 if the error concerns the text as a whole.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The message without the line.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for LoadError {}

/// All errors of a text that could be found, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadErrors(pub Vec<LoadError>);

impl fmt::Display for LoadErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let separator = if index > 0 { "\n" } else { "" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadErrors {}

impl From<LoadError> for LoadErrors {
    fn from(error: LoadError) -> Self {
        Self(vec![error])
    }
}
