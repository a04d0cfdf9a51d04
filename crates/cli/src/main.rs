//! The command `cuguard`.
//!
//! `cuguard doctor` examines the GPUs of this machine; `cuguard doctor --help` says how.

mod doctor;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Looks after what CUDA programs take from a GPU
#[derive(Debug, Parser)]
#[command(name = "cuguard", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Examine the GPUs of this machine: memory, who holds it, what can still be had
    Doctor(doctor::Options),
}

fn main() -> ExitCode {
    // It is for the programs that are examined, and would win over the settings of this one.
    // SAFETY: nothing has started a thread yet.
    unsafe { std::env::remove_var("LEAK_REPORT") };
    match Arguments::parse().command {
        Command::Doctor(options) => doctor::run(&options),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Arguments::command().debug_assert();
    }
}
