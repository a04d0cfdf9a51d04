//! How the tests start the program.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that cargo built; on a machine to which the tests were taken it lies beside them.
fn program() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_cuguard"));
    if built.is_file() {
        return built.to_owned();
    }
    let own = std::env::current_exe().expect("this program has a file");
    let bundle = own.parent().and_then(Path::parent);
    bundle.expect("it is in a folder").join("bin/cuguard")
}

/// The command with a driver, and nothing else from the environment that it would look at.
pub fn cuguard(driver: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command
        .args(arguments)
        .env("CUGUARD_DRIVER", driver)
        .env_remove("CUGUARD_SIM")
        .env_remove("CUDA_VISIBLE_DEVICES")
        // A report of leaks would be on standard error; there must be none.
        .env("LEAK_REPORT", "1");
    command
}
