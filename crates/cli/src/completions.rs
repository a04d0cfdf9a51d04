//! `cuguard completions`: a script with which a shell completes commands and options.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

/// The command's options.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Options {
    /// The shell
    shell: Shell,
}

const NOTES: &str = "\
Examples:
  cuguard completions bash > ~/.local/share/bash-completion/completions/cuguard
  cuguard completions zsh > ~/.zfunc/_cuguard     # a folder of fpath
  cuguard completions fish > ~/.config/fish/completions/cuguard.fish";

/// Writes the script to standard output. `command` is the definition of the command line.
pub(crate) fn run(options: &Options, mut command: Command) -> ExitCode {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(options.shell, &mut command, name, &mut script);
    match io::stdout().write_all(&script) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(
                io::stderr(),
                "cuguard completions: cannot write the script: {error}"
            );
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
