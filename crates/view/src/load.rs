//! Files as runs: recordings, and leak reports in JSON.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use cuguard_recording::{ReadError, Recording};

use crate::error::ViewError;
use crate::input::read_reports;
use crate::run::Run;
use crate::symbols::{SymbolOptions, Symbols};

/// How a recording begins.
const MAGIC: &[u8] = b"CUGUARDR";

/// Reads a file: a recording is one run, a file with leak reports in JSON one for each process.
///
/// ```
/// use cuguard_view::{SymbolOptions, open};
///
/// let error = open("/nowhere/run.cgr".as_ref(), &SymbolOptions::default()).unwrap_err();
/// assert!(error.to_string().starts_with("/nowhere/run.cgr: "));
/// ```
///
/// # Errors
/// The file cannot be read, or is neither a recording nor a report. What is broken inside of one is listed in
/// [`Run::problems`].
pub fn open(path: &Path, options: &SymbolOptions) -> Result<Vec<Run>, ViewError> {
    let failed = |error| ViewError::Read {
        path: path.to_owned(),
        error,
    };
    let mut file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    let source = path.display().to_string();
    let foreign = |why: String| ViewError::Foreign {
        path: path.to_owned(),
        why,
    };
    if bytes.starts_with(MAGIC) {
        let recording = Recording::read_file(&file, bytes).map_err(|error| match error {
            ReadError::Io(error) => failed(error),
            error => foreign(error.to_string()),
        })?;
        return Ok(vec![recorded(recording, source, options)]);
    }
    read_reports(&bytes, &source).map_err(|error| {
        // An empty file, and what a file of another kind is.
        let why = match Recording::read(&bytes) {
            Err(ReadError::Foreign { found }) if !looks_like_json(&bytes) => {
                format!("no recording and no report, but {found}")
            }
            _ => error.to_string(),
        };
        foreign(why)
    })
}

fn recorded(recording: Recording, source: String, options: &SymbolOptions) -> Run {
    let mut symbols = Symbols::new(&recording, options);
    let mut run = Run::from_recording(recording, &mut symbols);
    run.source = source;
    run.problems.extend_from_slice(symbols.problems());
    run
}

fn looks_like_json(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"{")
}
