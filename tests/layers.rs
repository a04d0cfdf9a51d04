//! The layers of the repository: `scripts/check-layers.py` fails when a lower layer imports a higher one.

use std::path::Path;
use std::process::Command;

/// Runs the script. Where that is not possible it prints a line that says so.
fn check_layers(arguments: &[&str]) {
    let script = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/scripts/check-layers.py"
    ));
    if !script.exists() {
        return eprintln!("NOT RUN: the layers: the sources are not on this machine");
    }
    match Command::new("python3").arg(script).args(arguments).output() {
        Ok(output) if output.status.code() == Some(3) => {
            eprintln!("NOT RUN: the layers: needs Python 3.11 or newer");
        }
        Ok(output) => assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => eprintln!("NOT RUN: the layers: python3: {error}"),
    }
}

#[test]
fn no_layer_imports_a_higher_one() {
    check_layers(&[]);
}

#[test]
fn an_import_that_goes_up_is_noticed() {
    check_layers(&["--self-test"]);
}
