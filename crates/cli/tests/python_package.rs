//! The tests of the Python package, which are Python's: they run the command that cargo built.

use std::env;
use std::path::Path;
use std::process::Command;

use cuguard_testing::{Requirement, not_run};

use crate::support::program;

#[test]
fn the_tests_of_the_python_package_pass() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    if !package.is_dir() {
        return not_run(Requirement::Sources, "");
    }
    let Some(python) = env::var_os("CUGUARD_PYTEST") else {
        return not_run(Requirement::Pytest, "");
    };
    let program = program();
    let folder = program.parent().expect("it is in a folder").to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([folder].into_iter().chain(env::split_paths(&path)));
    let output = Command::new(&python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"])
        .current_dir(package)
        .env("PATH", path.expect("no folder has a colon"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("PYTEST_ADDOPTS")
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", python.display()));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    // None was left out.
    assert!(
        !text.contains("skipped") && text.contains(" passed"),
        "{text}"
    );
}
