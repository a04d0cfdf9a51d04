//! `cargo cuguard`: cargo starts this program, which starts `cuguard cargo` of the same installation.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let own = env::current_exe().unwrap_or_default();
    let cuguard = own.with_file_name("cuguard");
    // Cargo passes the name of the subcommand first.
    let mut arguments = env::args_os().skip(1).peekable();
    arguments.next_if(|first| first == "cuguard");
    let error = Command::new(&cuguard).arg("cargo").args(arguments).exec();
    eprintln!(
        "cargo cuguard: cannot start {}: {error}. `cargo install cuguard-cli` installs both programs",
        cuguard.display()
    );
    ExitCode::from(127)
}
