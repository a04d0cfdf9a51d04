//! `cuguard man`: manual pages of the command and of all its subcommands.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command, ValueHint};
use clap_mangen::Man;

use crate::output_file;

/// The command's options.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Options {
    /// The folder of the pages, which is created. Existing pages are overwritten
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

const NOTES: &str = "\
Examples:
  cuguard man ~/.local/share/man/man1
  man cuguard-run";

/// Writes the pages. `commands` are the definitions of command lines.
pub(crate) fn run(options: &Options, commands: impl IntoIterator<Item = Command>) -> ExitCode {
    let mut commands = commands.into_iter();
    match commands.try_for_each(|command| try_run(&options.folder, command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let folder = options.folder.display();
            let _ = writeln!(
                io::stderr(),
                "cuguard man: cannot write the pages to {folder}: {error}"
            );
            ExitCode::FAILURE
        }
    }
}

fn try_run(folder: &Path, command: Command) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // Otherwise each subcommand of `help` has a page.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let subcommands: Vec<_> = command.get_subcommands().cloned().collect();
    for command in subcommands.into_iter().chain([command]) {
        let page = Man::new(command).source(concat!("cuguard ", env!("CARGO_PKG_VERSION")));
        let mut text = Vec::new();
        page.render(&mut text)?;
        let text = String::from_utf8_lossy(&text)
            // Lines are not stretched to the margin: some have one long word.
            .replacen(".SH NAME\n", ".ad l\n.SH NAME\n", 1)
            .replacen(".SH EXTRA\n", ".SH NOTES\n", 1);
        output_file::write(&folder.join(page.get_filename()), text.as_bytes())?;
    }
    Ok(())
}
