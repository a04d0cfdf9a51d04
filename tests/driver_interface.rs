//! The driver's interface in `crates/sys`: `scripts/driver-interface.py --check` fails when the generated code is not
//! what the script makes of the lists. It needs no network.

use cuguard_testing::{Requirement, not_run};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs the script of a repository: whether it succeeds, and what it prints. `None`, and a line that says so, where
/// that is not possible.
fn check(repository: &Path) -> Option<(bool, String)> {
    let script = repository.join("scripts/driver-interface.py");
    if !script.exists() {
        not_run(Requirement::Sources, "");
        return None;
    }
    match Command::new("python3").arg(script).arg("--check").output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            Some((output.status.success(), text))
        }
        Err(error) => {
            not_run(Requirement::Python, error);
            None
        }
    }
}

#[test]
fn lists_and_generated_code_agree() {
    if let Some((success, text)) = check(root()) {
        assert!(success, "{text}");
    }
}

/// What the documentation says of the list.
#[test]
fn the_number_of_functions_is_true() {
    let number = cuguard_sys::FUNCTIONS.len();
    for file in [
        "README.md",
        "crates/driver/README.md",
        "crates/sys/README.md",
    ] {
        let Ok(text) = std::fs::read_to_string(root().join(file)) else {
            not_run(Requirement::Sources, file);
            continue;
        };
        let sentence = format!("{number} functions of the driver API");
        assert!(text.contains(&sentence), "{file}: no \"{sentence}\"");
    }
}

/// A copy of the script and the lists, with one line of the list changed.
struct Copied(PathBuf);

impl Copied {
    fn new() -> Option<Copied> {
        let copy = std::env::temp_dir().join(format!("cuguard-interface-{}", std::process::id()));
        let copied = Copied(copy);
        for folder in ["scripts", "crates/sys/list", "crates/sys/src/generated"] {
            let files = std::fs::read_dir(root().join(folder)).ok()?;
            std::fs::create_dir_all(copied.0.join(folder)).expect("a folder");
            for file in files.flatten().filter(|file| file.path().is_file()) {
                let to = copied.0.join(folder).join(file.file_name());
                std::fs::copy(file.path(), to).expect("a copy");
            }
        }
        Some(copied)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_change_of_a_list_alone_is_noticed() {
    let Some(copy) = Copied::new() else {
        return not_run(Requirement::Sources, "");
    };
    let list = copy.0.join("crates/sys/list/functions.txt");
    let text = std::fs::read_to_string(&list).expect("the list");
    let changed = text.replacen("| 12050 |", "| 12060 |", 1);
    assert_ne!(text, changed);
    std::fs::write(&list, changed).expect("the list");
    if let Some((success, text)) = check(&copy.0) {
        assert!(!success);
        assert!(
            text.contains("crates/sys/src/generated/functions.rs: not what"),
            "{text}"
        );
    }
}
