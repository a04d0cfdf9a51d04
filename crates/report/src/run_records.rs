//! What the cuguard crate notes for `cuguard run`, whose audit library does not see a program on the simulated GPU.
//!
//! `crates/audit/src/output/run_folder.rs` describes the records.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Once, OnceLock};

use crate::open_file::NO_FOLLOW;
use crate::parse::VARIABLE;
use crate::phrase::printable;

/// `O_NONBLOCK`.
const NO_WAIT: i32 = 0o4000;

/// The folder of `cuguard run`, in a process of it.
pub(crate) const FOLDER: &str = "CUGUARD_RUN";

/// The value of `LEAK_REPORT` with which `cuguard run` started the program.
const WORDS: &str = "CUGUARD_RUN_REPORT";

/// What `cuguard run` has told this process.
struct Run {
    folder: PathBuf,
    /// Whether `LEAK_REPORT` is the command's, which applies the exit code in it itself. Other words, of a script perhaps, ask for
    /// an exit code of this process.
    has_its_words: bool,
}

/// Once the crate uses CUDA in a process of `cuguard run`. At exit the environment must not be read: a thread that is
/// stopped may hold its lock.
static RUN: OnceLock<Run> = OnceLock::new();

/// Notes for `cuguard run`, if it runs this process, that the cuguard crate uses CUDA here, and the file that it records
/// into, once there is one.
pub fn note_crate() {
    static USED: Once = Once::new();
    static RECORDED: Once = Once::new();
    let Some(folder) = env::var_os(FOLDER) else {
        return;
    };
    let run = RUN.get_or_init(|| Run {
        folder: PathBuf::from(folder),
        has_its_words: env::var_os(VARIABLE).is_some_and(|own| env::var_os(WORDS) == Some(own)),
    });
    let process = std::process::id();
    // The folder may be removed.
    let note = |record: &str| drop(append(&run.folder, record));
    USED.call_once(|| note(&format!("crate\t{process}\n")));
    if let Some(path) = cuguard_recording::path() {
        RECORDED.call_once(|| {
            let path = path.to_string_lossy();
            note(&format!("recording\t{process}\t{}\n", printable(&path)));
        });
    }
}

/// Whether a file is in the folder of `cuguard run`, which reads it: several processes and libraries append to it.
pub(crate) fn is_in_folder(path: &Path) -> bool {
    RUN.get().is_some_and(|run| path.starts_with(&run.folder))
}

/// Notes that guards have leaked. Returns whether the exit code in `LEAK_REPORT` is that of `cuguard run`, which applies it for what
/// it finds in any process.
pub(crate) fn note_leak() -> bool {
    let record = format!("leak\t{}\n", std::process::id());
    RUN.get()
        .is_some_and(|run| append(&run.folder, &record).is_ok() && run.has_its_words)
}

/// In one piece: other processes append, too. The audit library has created the file. The command may have ended, and
/// another user have created the folder again: neither is a link followed, nor is the reader of a pipe waited for.
fn append(folder: &Path, records: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .append(true)
        .custom_flags(NO_FOLLOW | NO_WAIT)
        .open(folder.join("records"))?;
    file.write_all(records.as_bytes())
}
