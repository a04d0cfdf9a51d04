//! Starts the program.

pub mod audited;
pub mod leaky_crate;
pub mod metrics;
pub mod pty;
pub mod recorded;
pub mod reporting;
pub mod running;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program next to the tests in a bundle, or the one that cargo built.
pub fn program() -> PathBuf {
    let own = std::env::current_exe().expect("this program has a file");
    let bundle = own.parent().and_then(Path::parent);
    let bundled = bundle.expect("it is in a folder").join("bin/cuguard");
    if bundled.is_file() {
        return bundled;
    }
    PathBuf::from(env!("CARGO_BIN_EXE_cuguard"))
}

/// The command with a driver, and without the other variables that it reads.
pub fn cuguard(driver: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command
        .args(arguments)
        .env("CUGUARD_DRIVER", driver)
        .env_remove("CUGUARD_SIM")
        .env_remove("CUDA_VISIBLE_DEVICES")
        // A leak report would be on stderr; there must be none.
        .env("LEAK_REPORT", "1");
    command
}
