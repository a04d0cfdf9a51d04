//! Reading: a file as a [`Recording`], as much of it as can be read.
//!
//! It must not know how files are written, nor trust what is in them: any bytes are read without a panic.

mod assemble;
mod chunks;
mod error;
pub(crate) mod written;

use std::fs::File;
use std::io::Read;
use std::path::Path;

pub use error::{OpenError, ReadError};

use crate::data::Recording;

impl Recording {
    /// Reads a recording from a file, also one whose process was killed, or that is still written: as it was at one moment
    /// after the call. [`problems`](Recording::problems) has what could not be read.
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
        let read = || {
            let mut file = File::open(path)?;
            let mut bytes = Vec::new();
            // Read and not mapped: the process that writes it may shorten it.
            file.read_to_end(&mut bytes)?;
            Self::read_file(&file, bytes)
        };
        read().map_err(failed)
    }

    /// [`open`](Self::open) for a file whose bytes were read: it is read again where it is still written.
    ///
    /// # Errors
    /// The bytes are no recording, or one of another version; the file cannot be read again.
    ///
    /// ```
    /// use cuguard_recording::{ReadError, Recording};
    ///
    /// let file = std::fs::File::open("/dev/null")?;
    /// assert!(matches!(Recording::read_file(&file, Vec::new()), Err(ReadError::Empty)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_file(file: &File, bytes: Vec<u8>) -> Result<Self, ReadError> {
        written::read(file, bytes)
    }

    /// Reads a recording from the bytes of a file, which is not written any more.
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
        assemble::read(bytes, u64::MAX)
    }
}
