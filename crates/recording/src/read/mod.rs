//! Reading: a file as a [`Recording`], as much of it as can be read.
//!
//! It must not know how files are written, nor trust what is in them: any bytes are read without a panic.

mod assemble;
mod chunks;
mod error;

use std::path::Path;

pub use error::{OpenError, ReadError};

use crate::data::Recording;

impl Recording {
    /// Reads a recording from a file, also one that is still written or whose process was killed.
    /// [`problems`](Recording::problems) has what could not be read.
    ///
    /// # Errors
    /// The file cannot be opened, is no recording, or is of another version.
    ///
    /// ```
    /// let error = cuguard_recording::Recording::open("/nowhere/run.cgr").unwrap_err();
    /// assert!(error.to_string().starts_with("/nowhere/run.cgr: "));
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let failed = |error| OpenError::new(path, error);
        // Read and not mapped: the process that writes it may shorten it.
        let bytes = std::fs::read(path).map_err(|error| failed(ReadError::Io(error)))?;
        Self::read(&bytes).map_err(failed)
    }

    /// Reads a recording from the bytes of a file.
    ///
    /// All indexes in the result are valid: what events refer to and the file does not define is unknown.
    ///
    /// # Errors
    /// The bytes are no recording, or one of another version.
    ///
    /// ```
    /// use cuguard_recording::{ReadError, Recording};
    ///
    /// assert!(matches!(Recording::read(b""), Err(ReadError::Empty)));
    /// assert!(matches!(Recording::read(b"\x7fELF"), Err(ReadError::Foreign { .. })));
    /// ```
    pub fn read(bytes: &[u8]) -> Result<Self, ReadError> {
        assemble::read(bytes)
    }
}
