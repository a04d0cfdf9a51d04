//! Why a file is not read.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::format::VERSION;

/// Why a file is not read, and which.
#[derive(Debug, Error)]
#[error("{}: {error}", path.display())]
pub struct OpenError {
    path: PathBuf,
    #[source]
    error: ReadError,
}

impl OpenError {
    pub(super) fn new(path: &Path, error: ReadError) -> Self {
        Self {
            path: path.to_owned(),
            error,
        }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is wrong.
    #[must_use]
    pub fn error(&self) -> &ReadError {
        &self.error
    }
}

/// Why bytes are no recording.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is nothing in the file.
    #[error("the file is empty; a recording begins with CUGUARDR")]
    Empty,
    /// It is another kind of file.
    #[error("no recording, but {found}; a recording begins with CUGUARDR")]
    Foreign {
        /// What it seems to be.
        found: String,
    },
    /// It is a recording of another version of the format.
    #[error("a recording in version {found} of the format; this program reads version {VERSION}")]
    Version {
        /// The version.
        found: u32,
    },
    /// The file ends within its header, or the header has no sense.
    #[error("a recording with a broken header: {0}")]
    Header(String),
}

/// What a file that is not a recording seems to be.
pub(super) fn describe(bytes: &[u8]) -> String {
    let known: [(&[u8], &str); 6] = [
        (b"\x7fELF", "a program or library (ELF)"),
        (b"\x1f\x8b", "a file compressed by gzip"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"<!DOCTYPE", "an HTML page"),
        (b"<svg", "an SVG picture"),
        (b"%PDF", "a PDF document"),
    ];
    if let Some((_, name)) = known.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return (*name).to_owned();
    }
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let start = &bytes[..bytes.len().min(16)];
    let is_text = start
        .iter()
        .all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~'));
    match (first, is_text) {
        (Some(b'{' | b'['), true) => "what looks like JSON".to_owned(),
        (_, true) => "text".to_owned(),
        _ => {
            let words: Vec<String> = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("a file that begins with the bytes {}", words.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn files_are_named() {
        assert_eq!(describe(b"\x7fELF\x02"), "a program or library (ELF)");
        assert_eq!(describe(b"\n {\"a\": 1}"), "what looks like JSON");
        assert_eq!(describe(b"hello"), "text");
        assert_eq!(
            describe(&[1, 0xff]),
            "a file that begins with the bytes 01 ff"
        );
    }
}
