//! The scripts in `card/`, which compare reports on a machine with a GPU: their own tests need neither a GPU nor a compiler.

use std::path::Path;
use std::process::Command;

#[test]
fn the_comparison_on_a_gpu_notices_differences() {
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/card/tests.py"));
    if !script.exists() {
        return cuguard_testing::not_run(cuguard_testing::Requirement::Sources, "");
    }
    match Command::new("python3").arg(script).output() {
        Ok(output) => assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => cuguard_testing::not_run(cuguard_testing::Requirement::Python, error),
    }
}
