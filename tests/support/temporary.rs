//! Temporary files of tests.

use std::path::PathBuf;
use std::sync::OnceLock;

/// With the process that created it: a forked child leaves it alone.
static FOLDER: OnceLock<(u32, PathBuf)> = OnceLock::new();

/// A path in a folder of this process for the report of a context. The crate writes a report of guards that are dropped late when the
/// process exits, after the test: the folder is removed after that.
pub fn temporary(name: &str) -> PathBuf {
    let (_, folder) = FOLDER.get_or_init(|| {
        let process = std::process::id();
        let folder = std::env::temp_dir().join(format!("cuguard-tests-{process}"));
        std::fs::create_dir_all(&folder).expect("a folder can be created");
        (process, folder)
    });
    folder.join(name)
}

extern "C" fn remove() {
    if let Some((process, folder)) = FOLDER.get()
        && *process == std::process::id()
    {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Before the crate's exit handler, which is registered with the first context: handlers run in reverse order.
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = {
    extern "C" fn register() {
        // SAFETY: the function does not unwind.
        unsafe { libc::atexit(remove) };
    }
    register
};
