//! Starts the program.

pub mod audited;
pub mod pty;
pub mod recorded;
pub mod reporting;
pub mod running;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that cargo built; in a bundle it is next to the tests.
fn program() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_cuguard"));
    if built.is_file() {
        return built.to_owned();
    }
    let own = std::env::current_exe().expect("this program has a file");
    let bundle = own.parent().and_then(Path::parent);
    bundle.expect("it is in a folder").join("bin/cuguard")
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
