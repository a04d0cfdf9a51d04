//! The layers of the repository: `scripts/check-layers.py` fails when a lower layer imports a higher one.

use cuguard_testing::{Requirement, not_run};
use std::path::Path;
use std::process::Command;

/// Runs the script. Where that is not possible it prints a line that says so.
fn check_layers(arguments: &[&str]) {
    let script = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/scripts/check-layers.py"
    ));
    if !script.exists() {
        return not_run(Requirement::Sources, "");
    }
    match Command::new("python3").arg(script).args(arguments).output() {
        Ok(output) if output.status.code() == Some(3) => {
            not_run(Requirement::Python, "3.11 or newer");
        }
        Ok(output) => assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => not_run(Requirement::Python, error),
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
