//! What the command writes about itself: manual pages, and scripts for the completion of shells.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::support::reporting::{Folder, refused, shown};

/// The names of all subcommands, as `--help` lists them.
fn subcommands() -> Vec<String> {
    let help = shown(&["--help"]);
    let (_, list) = help.split_once("Commands:\n").expect("it has a list");
    let (list, _) = list.split_once("\n\n").expect("the list ends");
    let names = list.lines().filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!name.is_empty() && name != "help").then(|| name.to_owned())
    });
    names.collect()
}

/// The long options of a subcommand, as `--help` lists them.
fn options(subcommand: &str) -> Vec<String> {
    let help = shown(&[subcommand, "--help"]);
    let starts = help.lines().filter_map(|line| {
        let (short, long) = line.trim_start().split_once("--")?;
        (short.is_empty() || short.starts_with('-')).then_some(long)
    });
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '-';
    starts
        .filter_map(|start| start.split(|character| !is_part(character)).next())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_command_has_a_manual_page_with_all_options() {
    let folder = Folder::new("man");
    let pages = folder.path("share/man1");
    assert_eq!(shown(&["man", &pages]), "");
    let written: BTreeMap<_, _> = fs::read_dir(&pages)
        .expect("it was created")
        .flatten()
        .map(|entry| {
            let text = fs::read_to_string(entry.path()).expect("a page is text");
            (entry.file_name().into_string().expect("a name"), text)
        })
        .collect();
    let subcommands = subcommands();
    assert!(subcommands.len() >= 8, "{subcommands:?}");
    let of_cargo = ["", "-test", "-nextest", "-run"];
    for subcommand in of_cargo {
        let page = &written[&format!("cargo-cuguard{subcommand}.1")];
        let title = format!(".TH cargo-cuguard{subcommand} 1");
        assert!(page.contains(&title), "{page}");
        let has_option = page.contains("\\-\\-exitcode");
        assert_eq!(has_option, !subcommand.is_empty(), "{page}");
    }
    let pages = subcommands.len() + 1 + of_cargo.len();
    assert_eq!(written.len(), pages, "{:?}", written.keys());
    assert!(written["cuguard.1"].starts_with(".ie "), "{written:?}");
    for subcommand in subcommands {
        let page = &written[&format!("cuguard-{subcommand}.1")];
        assert!(
            page.contains(&format!(".TH cuguard-{subcommand} 1")),
            "{page}"
        );
        assert!(written["cuguard.1"].contains(&format!("cuguard\\-{subcommand}(1)")));
        let options = options(&subcommand);
        assert!(options.contains(&"help".to_owned()), "{options:?}");
        for option in options {
            let escaped = format!("\\-\\-{}", option.replace('-', "\\-"));
            assert!(page.contains(&escaped), "{option} is missing:\n{page}");
        }
    }
}

#[test]
fn a_folder_that_cannot_be_created_is_named() {
    let folder = Folder::new("man-refused");
    let file = folder.path("file");
    fs::write(&file, "").expect("own folder");
    let (code, error) = refused(&["man", &file]);
    assert_eq!(code, 1);
    assert!(
        error.starts_with(&format!("cuguard man: cannot write the pages to {file}: ")),
        "{error}"
    );
}

#[test]
fn each_shell_completes_all_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = shown(&["completions", shell]);
        for subcommand in subcommands() {
            assert!(script.contains(&subcommand), "{shell}: {subcommand}");
        }
        for option in options("run") {
            assert!(script.contains(&option), "{shell}: {option}");
        }
    }
    let (code, _) = refused(&["completions", "sh"]);
    assert_eq!(code, 2);
}

/// The script in the shell itself.
#[test]
fn bash_completes() {
    let folder = Folder::new("completions");
    let script = folder.path("cuguard");
    fs::write(&script, shown(&["completions", "bash"])).expect("own folder");
    let completed = |words: &str| {
        let text = format!(
            ". '{script}'; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()\n\
             _cuguard cuguard \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["--norc", "-c", &text]).output();
        let output = output.expect("bash can be started");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("names are text")
    };
    assert_eq!(completed("cuguard rep"), "report\n");
    assert_eq!(completed("cuguard run --exit"), "--exitcode\n");
    assert_eq!(completed("cuguard run --report js"), "json\n");
}
